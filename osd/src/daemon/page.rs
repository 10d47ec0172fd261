//! The page as the driver sees it: who serves it, and what it shows.

use std::net::SocketAddr;
use std::sync::Arc;

use node::PageStatus;

use crate::board::Board;
use crate::http::{Pages, Server, Site};

/// The page of this daemon.
pub(super) struct Page {
    pub(super) board: Arc<Board>,
    server: Option<Server>,
    needs_token: bool,
}

impl Page {
    /// Serves the page at this address to whoever shows the token, if there is one.
    pub(super) fn open(
        at: Option<(SocketAddr, Option<String>)>,
        pages: Arc<dyn Pages>,
        board: Arc<Board>,
    ) -> Self {
        let Some((address, token)) = at else { return Self { board, server: None, needs_token: false } };
        let server = Server::start(address, Site::new(pages, board.clone(), token.as_deref()));
        Self { board, server: Some(server), needs_token: token.is_some() }
    }

    /// What the daemon says of it; `known_as` is the daemon's address for others.
    pub(super) fn status(&self, known_as: &str) -> Option<PageStatus> {
        let server = self.server.as_ref()?;
        Some(PageStatus {
            url: url(server.address(), known_as),
            needs_token: self.needs_token,
            fault: server.fault(),
        })
    }
}

/// Who listens at all addresses of a machine is found by the name that others have for it.
fn url(address: SocketAddr, known_as: &str) -> String {
    match known_as.rsplit_once(':').filter(|_| address.ip().is_unspecified()) {
        Some((host, _)) => format!("http://{host}:{}/", address.port()),
        None => format!("http://{address}/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_page_can_be_opened() {
        let page = |address: &str| url(address.parse().unwrap(), "storage-1:7000");
        assert_eq!(page("127.0.0.1:7001"), "http://127.0.0.1:7001/");
        assert_eq!(page("[::1]:7001"), "http://[::1]:7001/");
        assert_eq!(page("0.0.0.0:9100"), "http://storage-1:9100/");
        assert_eq!(page("[::]:9100"), "http://storage-1:9100/");
    }
}
