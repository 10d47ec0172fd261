//! What a daemon answers to anybody who can reach its metrics' port, loopback unless the configuration says
//! otherwise: figures about itself, and nothing that changes anything.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::metrics;

/// Connections at a time. Whoever comes beyond that waits in the kernel's queue.
const CONNECTIONS_MAX: usize = 64;
/// How long a caller may take for its request, and between requests.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a connection may last. Who does not read what he asked for would keep his place for ever otherwise.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest request.
const REQUEST_BYTES_MAX: usize = 16 << 10;
/// How long to wait when no connection can be accepted, most likely for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What there is to see.
pub trait Pages: Send + Sync + 'static {
    /// All metrics in Prometheus' text format.
    fn metrics(&self) -> String;
}

/// The port cannot be used.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot listen for metrics on TCP {address}; check that the port is free, or set `metrics` in the configuration"
)]
pub struct ListenError {
    address: SocketAddr,
    source: io::Error,
}

impl ListenError {
    /// Whether somebody listens there.
    pub fn is_in_use(&self) -> bool {
        self.source.kind() == io::ErrorKind::AddrInUse
    }
}

/// Answers until it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    _accepting: JoinSet<()>,
}

impl Server {
    /// Listens on `address`.
    pub async fn start(address: SocketAddr, pages: Arc<dyn Pages>) -> Result<Self, ListenError> {
        let failed = |source| ListenError { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, pages));
        Ok(Self { address, _accepting: accepting })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn accept(listener: TcpListener, pages: Arc<dyn Pages>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        // Nobody closes the places.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let pages = Arc::clone(&pages);
                connections.spawn(async move {
                    serve(stream, pages).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a connection for metrics was not accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, pages: Arc<dyn Pages>) {
    let answers = service_fn(|request: Request<Incoming>| {
        let answer = answer(request.method(), request.uri().path(), &*pages);
        std::future::ready(Ok::<_, Infallible>(answer))
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .max_buf_size(REQUEST_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), answers);
    match timeout(CONNECTION_TIMEOUT, serving).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection for metrics ended early"),
        Err(_) => tracing::debug!("a connection for metrics lasted too long"),
    }
}

/// The whole routing.
fn answer(method: &Method, path: &str, pages: &dyn Pages) -> Response<Full<Bytes>> {
    let is_read = matches!(*method, Method::GET | Method::HEAD);
    match path {
        _ if !is_read => {
            let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "there is nothing to change here\n");
            refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            refused
        }
        "/metrics" => {
            let mut page = plain(StatusCode::OK, pages.metrics());
            page.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE));
            page
        }
        _ => plain(StatusCode::NOT_FOUND, "there is nothing here; see /metrics\n"),
    }
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    use super::*;

    const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

    struct Fixed;

    impl Pages for Fixed {
        fn metrics(&self) -> String {
            "fleasefs_node 3\n".to_owned()
        }
    }

    /// What comes back for `request` until the server hangs up.
    async fn ask(server: &Server, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(server.address()).await.unwrap();
        // A server that refuses early may hang up before it has read all.
        let _ = stream.write_all(request).await;
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response).await;
        String::from_utf8(response).unwrap()
    }

    async fn get(server: &Server, what: &str) -> String {
        ask(server, format!("{what} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").as_bytes()).await
    }

    #[tokio::test]
    async fn metrics_are_answered_and_nothing_else() {
        let server = Server::start(ANY_PORT, Arc::new(Fixed)).await.unwrap();
        let page = get(&server, "GET /metrics").await;
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.contains("version=0.0.4"), "{page}");
        assert!(page.ends_with("\r\n\r\nfleasefs_node 3\n"), "{page}");
        assert!(get(&server, "GET /").await.starts_with("HTTP/1.1 404"));
        assert!(get(&server, "POST /metrics").await.starts_with("HTTP/1.1 405"));
        assert!(get(&server, "HEAD /metrics").await.ends_with("\r\n\r\n"));
    }

    #[tokio::test]
    async fn garbage_and_endless_requests_end_their_connection_only() {
        let server = Server::start(ANY_PORT, Arc::new(Fixed)).await.unwrap();
        let garbage = ask(&server, b"\x16\x03\x01 this is no HTTP\r\n\r\n").await;
        assert!(garbage.starts_with("HTTP/1.1 400") || garbage.is_empty(), "{garbage}");
        let endless = [b"GET /metrics HTTP/1.1\r\nHost: ".as_slice(), &vec![b'a'; 1 << 20]].concat();
        assert!(!ask(&server, &endless).await.starts_with("HTTP/1.1 200"));
        assert!(get(&server, "GET /metrics").await.starts_with("HTTP/1.1 200"));
    }

    #[tokio::test]
    async fn idle_callers_keep_nobody_out_for_ever() {
        tokio::time::pause();
        let server = Server::start(ANY_PORT, Arc::new(Fixed)).await.unwrap();
        let mut idle = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            idle.push(TcpStream::connect(server.address()).await.unwrap());
        }
        assert!(get(&server, "GET /metrics").await.starts_with("HTTP/1.1 200"));
    }

    #[tokio::test]
    async fn a_caller_that_does_not_read_keeps_no_place_for_ever() {
        tokio::time::pause();
        // Far shorter than the answer.
        let (mut caller, served) = tokio::io::duplex(64);
        let serving = tokio::spawn(serve(served, Arc::new(Fixed)));
        caller.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        timeout(CONNECTION_TIMEOUT * 2, serving).await.expect("it does not end").unwrap();
    }

    #[tokio::test]
    async fn a_taken_port_is_named() {
        let first = Server::start(ANY_PORT, Arc::new(Fixed)).await.unwrap();
        let error = Server::start(first.address(), Arc::new(Fixed)).await.unwrap_err().to_string();
        assert!(error.contains(&first.address().to_string()), "{error}");
    }
}
