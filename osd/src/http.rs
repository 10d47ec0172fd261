//! What a daemon answers over HTTP, on a port of its own: the page that shows the cluster, what that page is told as long as it is
//! open, and the metrics. Nothing here changes anything.
//!
//! The port is a convenience, so a daemon serves without it: as long as somebody else has it, that is in the log and in the
//! daemon's status.

mod body;
mod guard;

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, WWW_AUTHENTICATE};
use hyper::http::request;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::board::{Board, Watcher};
use crate::metrics;
use body::Content;
use guard::{CHALLENGE, Guard};

/// Connections at a time. Whoever comes beyond that waits in the kernel's queue.
const CONNECTIONS_MAX: usize = 64;
const _: () = assert!(crate::board::WATCHERS_MAX < CONNECTIONS_MAX, "pages leave room for metrics");
/// How long a caller may take for its request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a page is told what there is before it has to ask again.
const WATCH_TIMEOUT: Duration = Duration::from_secs(50);
/// How long a connection may last. Who does not read what he asked for would keep his place for ever otherwise.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(60);
const _: () = assert!(
    WATCH_TIMEOUT.as_secs() < CONNECTION_TIMEOUT.as_secs(),
    "a page is told the end of what it is told"
);
/// The longest request.
const REQUEST_BYTES_MAX: usize = 16 << 10;
/// What is told to a page may wait for the page so often; then nothing more is said until it has read.
const UNREAD_MAX: usize = 1;
/// How long to wait when no connection can be accepted, most likely for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often a port that somebody else has is tried, and how often before that is called a fault: the process before this one may be
/// about to end.
const LISTEN_PAUSE: Duration = Duration::from_millis(200);
const LISTEN_ATTEMPTS: u32 = 15;

/// The page. Everything it shows it makes of what it is told.
const PAGE: &str = include_str!("http/page.html");
const STYLE: &str = include_str!("http/page.css");
const SCRIPT: &str = include_str!("http/page.js");
/// The page consists of what is served here, and nothing else may be part of it, also not what a message could smuggle in.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'";

/// What there is to see.
pub(crate) trait Pages: Send + Sync + 'static {
    /// All metrics in Prometheus' text format.
    fn metrics(&self) -> String;
}

/// What is served to whom.
pub(crate) struct Site {
    pub(crate) pages: Arc<dyn Pages>,
    pub(crate) board: Arc<Board>,
    guard: Guard,
}

impl Site {
    /// Whoever asks has to show `token`, if there is one.
    pub(crate) fn new(pages: Arc<dyn Pages>, board: Arc<Board>, token: Option<&str>) -> Arc<Self> {
        Arc::new(Self { pages, board, guard: Guard::new(token) })
    }
}

/// Answers until it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    fault: Fault,
    _accepting: JoinSet<()>,
}

/// Why nobody can be answered at present, if that is so.
type Fault = Arc<Mutex<Option<String>>>;

impl Server {
    /// Listens on `address`, as soon as that is free.
    pub(crate) fn start(address: SocketAddr, site: Arc<Site>) -> Self {
        let (listener, fault) = (bind(address).ok(), Fault::default());
        let found = listener.as_ref().and_then(|listener| listener.local_addr().ok());
        let mut accepting = JoinSet::new();
        let told = fault.clone();
        accepting.spawn(async move {
            let listener = match listener {
                Some(listener) => listener,
                None => listen(address, &told).await,
            };
            accept(listener, site).await;
        });
        Self { address: found.unwrap_or(address), fault, _accepting: accepting }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Why it does not, if that is so.
    pub(crate) fn fault(&self) -> Option<String> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = StdListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Waits until the port is free.
async fn listen(address: SocketAddr, fault: &Fault) -> TcpListener {
    let tell = |what: Option<String>| *fault.lock().unwrap_or_else(PoisonError::into_inner) = what;
    let mut attempts = 0;
    loop {
        sleep(LISTEN_PAUSE).await;
        attempts += 1;
        match bind(address) {
            Ok(listener) => {
                if attempts > LISTEN_ATTEMPTS {
                    tracing::info!("the page and the metrics are served at {address}");
                }
                tell(None);
                return listener;
            }
            Err(error) => {
                if attempts == LISTEN_ATTEMPTS {
                    let what = format!("cannot listen on TCP {address}: {error}");
                    tracing::warn!(
                        "the page and the metrics are not served until that is possible: {what}; free the port, or set `metrics` in \
                         the configuration"
                    );
                    tell(Some(what));
                }
            }
        }
    }
}

async fn accept(listener: TcpListener, site: Arc<Site>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        // Nobody closes the places.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let site = Arc::clone(&site);
                connections.spawn(async move {
                    serve(stream, site).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::debug!(%error, "a connection for the page was not accepted");
                sleep(ACCEPT_PAUSE).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin, site: Arc<Site>) {
    let answers = service_fn(|request: Request<Incoming>| {
        let (asked, _) = request.into_parts();
        let mut answer = answer(&asked, &site);
        protect(&mut answer);
        std::future::ready(Ok::<_, Infallible>(answer))
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .max_buf_size(REQUEST_BYTES_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), answers);
    match timeout(CONNECTION_TIMEOUT, serving).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection for the page ended early"),
        Err(_) => tracing::debug!("a connection for the page lasted too long"),
    }
}

/// The whole routing.
fn answer(asked: &request::Parts, site: &Arc<Site>) -> Response<Content> {
    if let Err((status, why)) = site.guard.check(&asked.uri, &asked.headers) {
        let mut refused = plain(status, why);
        if status == StatusCode::UNAUTHORIZED {
            refused.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static(CHALLENGE));
        }
        return refused;
    }
    if !matches!(asked.method, Method::GET | Method::HEAD) {
        let mut refused = plain(StatusCode::METHOD_NOT_ALLOWED, "there is nothing to change here\n");
        refused.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return refused;
    }
    let is_of_other_site = asked.headers.get("sec-fetch-site").is_some_and(|site| site == "cross-site");
    match asked.uri.path() {
        "/" => found("text/html; charset=utf-8", PAGE),
        _ if is_of_other_site => {
            plain(StatusCode::FORBIDDEN, "other sites may lead to the page and use nothing of it\n")
        }
        "/page.css" => found("text/css; charset=utf-8", STYLE),
        "/page.js" => found("text/javascript; charset=utf-8", SCRIPT),
        "/events" if asked.method == Method::HEAD => found(EVENTS, ""),
        "/events" => match site.board.watch() {
            Some(watcher) => events(watcher),
            None => plain(StatusCode::SERVICE_UNAVAILABLE, "too many look already\n"),
        },
        "/metrics" => found(metrics::CONTENT_TYPE, site.pages.metrics()),
        _ => plain(StatusCode::NOT_FOUND, "there is nothing here; see / and /metrics\n"),
    }
}

const EVENTS: &str = "text/event-stream";

/// Tells what there is to see until whoever looks has gone, or has looked for long.
fn events(mut watcher: Watcher) -> Response<Content> {
    let (sender, stream) = mpsc::channel(UNREAD_MAX);
    tokio::spawn(timeout(WATCH_TIMEOUT, async move {
        loop {
            let event = Bytes::from(format!("retry: 500\ndata: {}\n\n", watcher.next().await));
            if sender.send(event).await.is_err() {
                return;
            }
        }
    }));
    let mut response = Response::new(Content::Stream(stream));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(EVENTS));
    response
}

fn found(kind: &'static str, text: impl Into<Bytes>) -> Response<Content> {
    let mut response = Response::new(Content::Whole(text.into()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Content> {
    let mut response = found("text/plain; charset=utf-8", text);
    *response.status_mut() = status;
    response
}

/// What browsers are told about every answer.
fn protect(answer: &mut Response<Content>) {
    let headers = answer.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    for (name, value) in [
        ("content-security-policy", POLICY),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
        ("referrer-policy", "no-referrer"),
        ("x-content-type-options", "nosniff"),
    ] {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use base::{ClusterId, NodeId, Process};
    use node::{ClusterMap, Osd, Settings};
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

    fn site(token: Option<&str>) -> Arc<Site> {
        let osds = (1..=3).map(|id| Osd { id: NodeId(id), address: format!("10.0.0.{id}:7000") });
        let map = ClusterMap::new(ClusterId([7; 16]), 1, 3, Settings::default(), osds.collect()).unwrap();
        Site::new(Arc::new(Fixed), Board::new(Process::new(1, 1), &map), token)
    }

    fn start(site: Arc<Site>) -> Server {
        Server::start(ANY_PORT, site)
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
        ask(server, format!("{what} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").as_bytes())
            .await
    }

    #[tokio::test]
    async fn the_page_and_the_metrics_are_answered_and_nothing_else() {
        let server = start(site(None));
        let metrics = get(&server, "GET /metrics").await;
        assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n") && metrics.contains("version=0.0.4"), "{metrics}");
        assert!(metrics.ends_with("\r\n\r\nfleasefs_node 3\n"), "{metrics}");
        let page = get(&server, "GET /").await;
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with(PAGE), "{page}");
        assert!(page.contains("content-security-policy: default-src 'none'; script-src 'self'"), "{page}");
        for (what, status) in [
            ("GET /page.css", 200),
            ("GET /page.js", 200),
            ("HEAD /events", 200),
            ("GET /page.html", 404),
            ("GET /../etc/passwd", 404),
            ("POST /", 405),
            ("PUT /events", 405),
            ("DELETE /metrics", 405),
            ("OPTIONS /", 405),
        ] {
            let said = get(&server, what).await;
            assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{what}: {said}");
            assert!(said.contains("x-content-type-options: nosniff\r\n"), "{what}: {said}");
        }
        assert!(get(&server, "HEAD /metrics").await.ends_with("\r\n\r\n"));
    }

    #[tokio::test]
    async fn the_page_uses_nothing_that_its_policy_forbids() {
        let outside =
            ["http:", "https:", "//", "@import", "url(", " style=", "<style", " onclick", "javascript:"];
        for word in outside {
            assert!(!PAGE.contains(word), "{word}");
        }
        for word in ["@import", "url("] {
            assert!(!STYLE.contains(word), "{word}");
        }
        for word in
            ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "setAttribute(\"style"]
        {
            assert!(!SCRIPT.contains(word), "{word}");
        }
        assert_eq!(PAGE.matches("<script").count(), 1);
        assert!(PAGE.contains("<script src=\"page.js\" defer></script>"));
    }

    #[tokio::test]
    async fn strangers_are_refused() {
        let open = start(site(None));
        let rebound = ask(&open, b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n").await;
        assert!(
            rebound.starts_with("HTTP/1.1 421") && rebound.contains("give the daemon a token"),
            "{rebound}"
        );
        let other_site = |path: &str| {
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\n\r\n")
                .into_bytes()
        };
        assert!(ask(&open, &other_site("/events")).await.starts_with("HTTP/1.1 403"));
        assert!(ask(&open, &other_site("/")).await.starts_with("HTTP/1.1 200"), "a link may lead there");

        let closed = start(site(Some("0123456789abcdef")));
        for path in ["/", "/events", "/metrics", "/nothing"] {
            let refused = get(&closed, &format!("GET {path}")).await;
            assert!(
                refused.starts_with("HTTP/1.1 401") && refused.contains("www-authenticate: Basic"),
                "{refused}"
            );
            assert!(!refused.contains("fleasefs_node"), "{refused}");
        }
        let shown =
            b"GET /metrics HTTP/1.1\r\nHost: any.example\r\nAuthorization: Bearer 0123456789abcdef\r\n\r\n";
        assert!(ask(&closed, shown).await.starts_with("HTTP/1.1 200"));
    }

    #[tokio::test]
    async fn whoever_looks_is_told_and_makes_room_again() {
        tokio::time::pause();
        let site = site(None);
        let server = start(site.clone());
        let mut looking = Vec::new();
        for _ in 0..crate::board::WATCHERS_MAX {
            let mut stream = TcpStream::connect(server.address()).await.unwrap();
            stream.write_all(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
            let mut said = [0; 2_048];
            let read = stream.read(&mut said).await.unwrap();
            let said = String::from_utf8_lossy(&said[..read]).into_owned();
            assert!(said.starts_with("HTTP/1.1 200") && said.contains("text/event-stream"), "{said}");
            looking.push(stream);
        }
        assert!(site.board.is_watched());
        assert!(get(&server, "GET /events").await.starts_with("HTTP/1.1 503"));
        assert!(get(&server, "GET /metrics").await.starts_with("HTTP/1.1 200"));
        // The last one is told for as long as it may be, and told of the end.
        let mut told = Vec::new();
        looking.pop().unwrap().read_to_end(&mut told).await.unwrap();
        let told = String::from_utf8(told).unwrap();
        let events = told.matches("data: {\"cluster\":\"0707").count();
        assert!(events >= 20 && told.contains("\"address\":\"10.0.0.3:7000\""), "{events} {told}");
        assert!(told.ends_with("0\r\n\r\n"), "the end was not told");
        // Those who read nothing are cut off.
        sleep(CONNECTION_TIMEOUT).await;
        while site.board.is_watched() {
            sleep(Duration::from_secs(1)).await;
        }
    }

    #[tokio::test]
    async fn garbage_and_endless_requests_end_their_connection_only() {
        let server = start(site(None));
        let garbage = ask(&server, b"\x16\x03\x01 this is no HTTP\r\n\r\n").await;
        assert!(garbage.starts_with("HTTP/1.1 400") || garbage.is_empty(), "{garbage}");
        let endless = [b"GET /metrics HTTP/1.1\r\nHost: ".as_slice(), &vec![b'a'; 1 << 20]].concat();
        assert!(!ask(&server, &endless).await.starts_with("HTTP/1.1 200"));
        assert!(get(&server, "GET /metrics").await.starts_with("HTTP/1.1 200"));
    }

    #[tokio::test]
    async fn idle_callers_keep_nobody_out_for_ever() {
        tokio::time::pause();
        let server = start(site(None));
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
        let serving = tokio::spawn(serve(served, site(None)));
        caller.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        timeout(CONNECTION_TIMEOUT * 2, serving).await.expect("it does not end").unwrap();
    }

    #[tokio::test]
    async fn a_taken_port_is_named_and_taken_when_it_is_free() {
        tokio::time::pause();
        let first = start(site(None));
        let second = Server::start(first.address(), site(Some("0123456789abcdef")));
        assert_eq!(second.fault(), None, "the first may be about to go");
        while second.fault().is_none() {
            sleep(LISTEN_PAUSE).await;
        }
        let fault = second.fault().unwrap();
        assert!(fault.contains(&first.address().to_string()) && fault.contains("in use"), "{fault}");
        assert!(get(&first, "GET /").await.starts_with("HTTP/1.1 200"));
        drop(first);
        while second.fault().is_some() {
            sleep(LISTEN_PAUSE).await;
        }
        assert!(get(&second, "GET /").await.starts_with("HTTP/1.1 401"));
    }
}
