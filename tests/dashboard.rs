//! The page that every daemon serves: who may see it, and what a browser shows of a cluster while a daemon is killed.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use bytes::Bytes;
use client::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

/// Generous: other tests keep the processors busy.
const PATIENCE: Duration = Duration::from_secs(60);
const TOKEN: &str = "0123456789abcdef";

/// A folder with a cluster of three in it, which is stopped when the test ends, however it ends.
struct Cluster {
    folder: tempfile::TempDir,
}

impl Cluster {
    fn up() -> Self {
        let cluster = Self { folder: tempfile::tempdir().unwrap() };
        cluster.run("up");
        cluster
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("cluster")
    }

    fn osd(&self, node: u64) -> PathBuf {
        self.dir().join(format!("osd-{node}"))
    }

    fn run(&self, command: &str) {
        let output = fleasefs().arg(command).arg(self.dir()).output().unwrap();
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    }

    /// Where each daemon says that its page is.
    fn pages(&self) -> BTreeMap<u64, Value> {
        let output = self.status(&["--json"]);
        let status: Value = serde_json::from_slice(&output.stdout).unwrap();
        let daemons = status["daemons"].as_array().unwrap();
        let page = |daemon: &Value| (daemon["node"].as_u64().unwrap(), daemon["status"]["page"].clone());
        daemons.iter().map(page).collect()
    }

    fn status(&self, arguments: &[&str]) -> Output {
        fleasefs().arg("status").args(arguments).arg("--cluster").arg(self.dir()).output().unwrap()
    }

    /// The daemon itself, its supervisor's child.
    fn daemon(&self, node: u64) -> Pid {
        let note = fs::read_to_string(self.osd(node).join("pid")).unwrap();
        let supervisor = note.split(' ').next().unwrap();
        let children = fs::read_to_string(format!("/proc/{supervisor}/task/{supervisor}/children")).unwrap();
        Pid::from_raw(children.trim().parse().unwrap()).unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = fleasefs().arg("down").arg(self.dir()).output();
    }
}

fn fleasefs() -> Command {
    Command::new(env!("CARGO_BIN_EXE_fleasefs"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What `look` finds, as soon as it finds something; `what` it is.
fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "it did not happen: {what}");
        sleep(Duration::from_millis(50));
    }
}

/// The answer to an HTTP request: its status, its head in lower case, and its content.
struct Answer {
    status: u16,
    head: String,
    content: String,
}

/// Asks at `host:port`. Nothing if nobody answers.
fn http(address: &str, method: &str, path: &str, (headers, body): (&[&str], &str)) -> Option<Answer> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
    .ok()?;
    let (mut stream, mut head) = (BufReader::new(stream), String::new());
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let (status, head) = (head.split(' ').nth(1)?.parse().ok()?, head.to_ascii_lowercase());
    // Not everybody hangs up who was asked to.
    let length = head.split_once("content-length:")?.1.split("\r\n").next()?.trim().parse().ok()?;
    let mut content = vec![0; length];
    stream.read_exact(&mut content).ok()?;
    Some(Answer { status, head, content: text(&content) })
}

fn get(address: &str, path: &str, headers: &[&str]) -> Answer {
    eventually(path, || http(address, "GET", path, (headers, "")))
}

/// `host:port` of a page's address.
fn address_of(page: &Value) -> String {
    page["url"].as_str().unwrap().trim_start_matches("http://").trim_end_matches('/').to_owned()
}

#[test]
fn the_page_is_for_this_machine_or_for_those_with_the_token() {
    const HERE: &str = "Host: localhost";
    let cluster = Cluster::up();
    let pages = cluster.pages();
    assert_eq!(pages.len(), 3);
    let plain = cluster.status(&[]);
    for (node, page) in &pages {
        let address = address_of(page);
        assert!(text(&plain.stdout).contains(&format!("page of daemon {node}: http://{address}/\n")));
        let answer = get(&address, "/", &[HERE]);
        assert_eq!(answer.status, 200);
        assert!(answer.head.contains("content-security-policy: default-src 'none';"), "{}", answer.head);
        assert!(answer.content.contains("<title>fleasefs</title>"));
        let metrics = get(&address, "/metrics", &["Host: 127.0.0.1:1"]).content;
        assert!(
            metrics.contains(&format!("fleasefs_node {node}\n"))
                && metrics.contains("fleasefs_requests_total "),
            "{metrics}"
        );
    }
    let address = address_of(&pages[&1]);
    let rebound = get(&address, "/metrics", &["Host: evil.example"]);
    assert!(rebound.status == 421 && !rebound.content.contains("fleasefs_node"), "{}", rebound.content);
    assert_eq!(http(&address, "POST", "/", (&[HERE], "x")).unwrap().status, 405);

    cluster.run("down");
    let token = cluster.osd(1).join("page.token");
    fs::write(&token, TOKEN).unwrap();
    fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
    cluster.run("up");
    assert_eq!(cluster.pages()[&1]["needs_token"], true);
    assert!(text(&cluster.status(&[]).stdout).contains("(asks for its token)"));
    for path in ["/", "/events", "/metrics"] {
        let refused = get(&address, path, &[HERE]);
        assert!(
            refused.status == 401 && refused.head.contains("www-authenticate: basic"),
            "{path} {}",
            refused.head
        );
        let wrong = get(&address, path, &[HERE, "Authorization: Bearer 0123456789abcdeg"]);
        assert_eq!(wrong.status, 401, "{path}");
    }
    let shown = get(&address, "/metrics", &["Host: any.example", "Authorization: Bearer 0123456789abcdef"]);
    assert!(shown.status == 200 && shown.content.contains("fleasefs_node 1\n"));
}

#[test]
fn a_page_that_others_can_reach_is_not_served_without_a_token() {
    let cluster = Cluster::up();
    cluster.run("down");
    let config = cluster.osd(1).join("osd.toml");
    let written = fs::read_to_string(&config).unwrap();
    // Documentation's addresses are nobody's: that it is refused is seen before anything is listened on.
    fs::write(&config, written.replace("\n[files]", "\nmetrics = \"192.0.2.1:9100\"\n[files]")).unwrap();
    let output = fleasefs().arg("osd").arg("--config").arg(&config).stdin(Stdio::null()).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("`metrics` is `192.0.2.1:9100`, which other machines can reach"), "{said}");
    assert!(said.contains("osd-1/page.token"), "{said}");
}

/// Chromium, as somebody uses it who looks at a page.
struct Browser {
    driver: Child,
    address: String,
    session: String,
    _profile: tempfile::TempDir,
}

impl Browser {
    fn start() -> Self {
        let missing =
            "chromedriver cannot be started; install Debian's packages chromium and chromium-driver";
        let mut driver =
            Command::new("chromedriver").arg("--port=0").stdout(Stdio::piped()).spawn().expect(missing);
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = lines.find_map(|line| {
            let line = line.ok()?;
            line.rsplit_once("successfully on port ")?.1.trim_end_matches('.').parse::<u16>().ok()
        });
        // What else it says has to go somewhere.
        std::thread::spawn(move || lines.for_each(drop));
        let address = format!("127.0.0.1:{}", port.expect("chromedriver does not say where it listens"));
        let profile = tempfile::tempdir().unwrap();
        let mut browser = Self { driver, address, session: String::new(), _profile: profile };
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1200,1000",
        ];
        let folder = format!("--user-data-dir={}", browser._profile.path().display());
        let arguments: Vec<&str> = arguments.into_iter().chain([folder.as_str()]).collect();
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        } } });
        let session = browser.ask("POST", "/session", &wanted);
        session["sessionId"].as_str().expect("a session").clone_into(&mut browser.session);
        browser
    }

    /// What the driver says to a command.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let headers = ["Host: 127.0.0.1", "Content-Type: application/json"];
        let body = if method == "POST" { body.to_string() } else { String::new() };
        let answer = http(&self.address, method, path, (&headers, &body)).expect("chromedriver answers");
        let mut said: Value = serde_json::from_str(&answer.content).unwrap();
        assert_eq!(answer.status, 200, "{method} {path}: {said}");
        said["value"].take()
    }

    fn command(&self, path: &str, body: &Value) -> Value {
        self.ask("POST", &format!("/session/{}/{path}", self.session), body)
    }

    fn open(&self, url: &str) {
        self.command("url", &json!({ "url": url }));
    }

    /// The value of an expression in the page.
    fn eval(&self, expression: &str) -> Value {
        self.command("execute/sync", &json!({ "script": format!("return {expression};"), "args": [] }))
    }

    /// What the page says about each daemon.
    fn members(&self) -> BTreeMap<u64, Value> {
        let all = self.eval("[...document.querySelectorAll('.member')].map((card) => ({ ...card.dataset }))");
        all.as_array().unwrap().iter().map(|card| (number(&card["node"]), card.clone())).collect()
    }

    /// The lines of what happened with this kind and daemon.
    fn happened(&self, kind: &str, node: u64) -> Vec<Value> {
        let lines = self.eval(&format!(
            "[...document.querySelectorAll('#timeline li[data-kind={kind}][data-node=\"{node}\"]')]\
             .map((line) => ({{ ...line.dataset, text: line.textContent }}))"
        ));
        lines.as_array().unwrap().clone()
    }

    /// The sum of all that a chart shows.
    fn sum(&self, chart: &str) -> f64 {
        let sum = self.eval(&format!("document.querySelector('[data-chart={chart}]')?.dataset.sum ?? '0'"));
        sum.as_str().unwrap().parse().unwrap()
    }

    /// How far each daemon's clock may be off, in words.
    fn clocks(&self) -> Vec<String> {
        let all =
            self.eval("[...document.querySelectorAll('#clocks .value')].map((value) => value.textContent)");
        all.as_array().unwrap().iter().map(|value| value.as_str().unwrap().to_owned()).collect()
    }

    /// Whether the chart of reply times shows any.
    fn shows_reply_times(&self) -> bool {
        let curve = self.eval("document.querySelector('[data-chart=latency] .s0')?.getAttribute('d')");
        let figure = self.eval("document.querySelector('[data-figure=latency] b').textContent");
        curve.as_str().is_some_and(|curve| curve != "M0,0") && figure != "–"
    }

    fn state(&self) -> String {
        self.eval("document.getElementById('state').dataset.state").as_str().unwrap().to_owned()
    }

    /// Keeps a picture of the whole page, shown as wide as this, where tests keep things, and returns it.
    fn picture(&self, name: &str, width: u32) -> Vec<u8> {
        let cdp = |cmd: &str, params: Value| {
            self.command("goog/cdp/execute", &json!({ "cmd": cmd, "params": params }))
        };
        let size = json!({ "width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500 });
        cdp("Emulation.setDeviceMetricsOverride", size);
        let wide = format!("document.documentElement.scrollWidth <= {width} && innerWidth == {width}");
        eventually("the page fits", || self.eval(&wide).as_bool().filter(|fits| *fits));
        let drawn = "document.querySelector('.chart svg').getBoundingClientRect().width <= \
                     document.querySelector('.chart').clientWidth \
                     && document.querySelector('.chart svg').viewBox.baseVal.width <= innerWidth";
        eventually("the charts fit", || self.eval(drawn).as_bool().filter(|fit| *fit));
        let taken = cdp("Page.captureScreenshot", json!({ "captureBeyondViewport": true }));
        let picture = from_base64(taken["data"].as_str().unwrap());
        assert!(
            picture.starts_with(b"\x89PNG\r\n\x1a\n") && picture.len() > 10_000,
            "{} bytes",
            picture.len()
        );
        fs::write(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name), &picture).unwrap();
        picture
    }

    /// What the browser complains about.
    fn complaints(&self) -> Vec<String> {
        let log = self.command("se/log", &json!({ "type": "browser" }));
        let severe = |line: &&Value| line["level"] == "SEVERE";
        log.as_array().unwrap().iter().filter(severe).map(|line| line["message"].to_string()).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver ends its browser with the session.
        let path = format!("/session/{}", self.session);
        let _ = http(&self.address, "DELETE", &path, (&["Host: 127.0.0.1"], ""));
        let _ = self.driver.kill().and_then(|()| self.driver.wait());
    }
}

/// Numbers in a page are text.
fn number(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn from_base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digit = |byte: &u8| u32::try_from(DIGITS.iter().position(|known| known == byte).unwrap()).unwrap();
    let text = text.trim_end_matches('=').as_bytes();
    text.chunks(4)
        .flat_map(|group| {
            let bits = group.iter().fold(0, |bits, byte| bits << 6 | digit(byte)) << (6 * (4 - group.len()));
            bits.to_be_bytes()[1..group.len()].to_vec()
        })
        .collect()
}

/// Writers of some objects, each of which writes again as soon as it is answered.
struct Load {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Load {
    const OBJECTS: usize = 9;

    fn on(cluster: &Cluster) -> Self {
        let (stop, dir) = (Arc::new(AtomicBool::new(false)), cluster.dir());
        let stopped = stop.clone();
        Self { stop, thread: std::thread::spawn(move || Self::work(&dir, &stopped)) }
    }

    fn work(dir: &Path, stop: &AtomicBool) -> u64 {
        let config = client::Config::find(Some(dir)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = Client::connect(&config).await.unwrap();
            let write = async |number: usize| {
                let object = client.object_named(&format!("load {number}")).unwrap();
                object.create().await.unwrap();
                let mut written = 0;
                while !stop.load(Ordering::Relaxed) {
                    written += 1;
                    let block: Bytes = u64::to_le_bytes(written).repeat(512).into();
                    object.write_synced(0, block.clone()).await.unwrap();
                    assert_eq!(object.read(0, 4_096).await.unwrap(), block);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                written
            };
            let [a, b, c, d, e, f, g, h, i] = std::array::from_fn::<_, { Self::OBJECTS }, _>(write);
            let (a, b, c, d, e, f, g, h, i) = tokio::join!(a, b, c, d, e, f, g, h, i);
            client.close().await;
            [a, b, c, d, e, f, g, h, i].iter().sum()
        })
    }

    /// Ends it. Nobody has seen an error.
    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

#[test]
fn a_browser_shows_a_failover_with_its_cause_and_its_stall() {
    let cluster = Cluster::up();
    let pages = cluster.pages();
    let browser = Browser::start();
    let load = Load::on(&cluster);
    browser.open(pages[&1]["url"].as_str().unwrap());
    let all_well = |browser: &Browser| {
        let members = browser.members();
        let is_well = |member: &Value| member["state"] == "ok";
        (members.len() == 3 && members.values().all(is_well)).then_some(members)
    };
    eventually("all daemons are well", || all_well(&browser));
    let led = |members: &BTreeMap<u64, Value>| {
        members.values().map(|member| number(&member["primaries"])).sum::<u64>()
    };
    let members = eventually("all objects have primaries", || {
        all_well(&browser).filter(|members| led(members) >= Load::OBJECTS as u64)
    });
    let victim = *members.iter().max_by_key(|(_, member)| number(&member["primaries"])).unwrap().0;
    let other = if victim == 1 { 2 } else { 1 };

    browser.open(pages[&other]["url"].as_str().unwrap());
    let before = eventually("all is shown by another daemon, too", || {
        let is_shown = || ["requests", "data", "primaries"].iter().all(|chart| browser.sum(chart) > 0.0);
        all_well(&browser).filter(|_| is_shown() && browser.shows_reply_times())
    });
    eventually("no clock is far off", || {
        let clocks = browser.clocks();
        let is_near = |clock: &String| clock.contains(" % of ε") && !clock.contains(" 100 %");
        (clocks.len() == 3 && clocks.iter().all(is_near)).then_some(())
    });
    assert!(browser.happened("died", victim).is_empty());
    let start = number(&before[&victim]["start"]);
    kill_process(cluster.daemon(victim), Signal::KILL).unwrap();

    let line = eventually("the failover is shown", || {
        browser.happened("died", victim).into_iter().find(|line| number(&line["files"]) > 0)
    });
    let said = line["text"].as_str().unwrap();
    assert_eq!((number(&line["start"]), line["tone"].as_str()), (start, Some("bad")), "{line}");
    assert!(said.contains(&format!("Daemon {victim} died")) && said.contains("its supervisor"), "{said}");
    assert!(said.contains("took over") && said.contains("stall"), "{said}");
    let stall_us = number(&line["stallUs"]);
    assert!((1..60_000_000).contains(&stall_us), "{said}");
    let sum = browser.sum("requests");
    eventually("clients go on", || (browser.sum("requests") > sum).then_some(()));
    let after = eventually("the daemon is back", || {
        all_well(&browser).filter(|members| number(&members[&victim]["start"]) > start)
    });
    assert!(led(&after) >= Load::OBJECTS as u64, "{after:?}");
    browser.picture("dashboard-desktop.png", 1_200);
    browser.picture("dashboard-phone.png", 360);
    assert_eq!(browser.complaints(), [""; 0]);

    // Whoever looks at a daemon that is gone is told so, and sees when it is back.
    let serving = cluster.daemon(other);
    kill_process(serving, Signal::STOP).unwrap();
    eventually("it is said that the daemon is gone", || (browser.state() == "gone").then_some(()));
    kill_process(serving, Signal::CONT).unwrap();
    eventually("it is shown that the daemon is back", || (browser.state() == "live").then_some(()));
    assert!(load.end() > 20, "nothing was going on");
}
