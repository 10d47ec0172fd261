//! The supervisor with children that are scripts: what it starts, what it reports, and what it leaves behind.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::{Incarnation, NodeId, Process, Span, StartId};
use osd::supervisor::{
    Config, CrashLoop, EXIT_HOPELESS, Ended, History, Policy, SupervisorError, Witness, supervise,
};
use tokio::process::Command;
use tokio::sync::mpsc;
use wire::Notice;

const NODE: NodeId = NodeId(3);
const POLICY: Policy = Policy {
    delay_min: Span::from_millis(1),
    delay_max: Span::from_millis(2),
    good_run: Span::from_secs(60),
    deaths_max: 3,
};
const CONFIG: Config = Config {
    node: NODE,
    policy: POLICY,
    stop_timeout: Duration::from_secs(30),
    notice_timeout: Duration::from_secs(30),
};

/// Keeps what it is to report. Says so to whoever waits for it.
#[derive(Clone, Default)]
struct Recorder {
    reports: Arc<Mutex<Vec<Notice>>>,
    /// Whether a report takes for ever.
    hangs: bool,
}

impl Witness for Recorder {
    async fn report(self, notice: Notice) {
        self.reports.lock().unwrap().push(notice);
        if self.hangs {
            std::future::pending::<()>().await;
        }
    }
}

/// A folder for what the children of one test leave behind, and the requests to stop them.
struct Scene {
    folder: tempfile::TempDir,
    recorder: Recorder,
    stop: mpsc::Sender<()>,
    stops: mpsc::Receiver<()>,
}

impl Scene {
    fn new() -> Self {
        let (stop, stops) = mpsc::channel(2);
        Self { folder: tempfile::tempdir().unwrap(), recorder: Recorder::default(), stop, stops }
    }

    /// Supervises a script, in which `$1` counts the restarts. The script starts in the folder and its id goes to `ids`.
    async fn run(self, config: Config, script: &str) -> (Result<Ended, SupervisorError>, Vec<Notice>) {
        let script = format!("echo $$ >> ids\n{script}");
        let folder = self.folder.path();
        let command = |History { restarts, .. }| {
            let mut command = Command::new("sh");
            command.args(["-c", &script, "child", &restarts.to_string()]).current_dir(folder);
            command
        };
        let ended = supervise(config, self.recorder.clone(), self.stops, command).await;
        let ids = std::fs::read_to_string(folder.join("ids")).unwrap_or_default();
        for id in ids.lines() {
            let process = format!("/proc/{id}");
            assert!(!std::path::Path::new(&process).exists(), "process {id} is still there");
        }
        let reports = self.recorder.reports.lock().unwrap().clone();
        (ended, reports)
    }
}

/// The incarnations of [`NODE`], all of the line that its children tell.
fn deaths(incarnations: &[u32]) -> Vec<Notice> {
    let line = StartId { incarnation: Incarnation(0), nonce: 9 };
    let dead = |&i: &u32| Process { node: NODE, incarnation: Incarnation(i) };
    incarnations.iter().map(|i| Notice { dead: dead(i), line }).collect()
}

/// Returns once `file` exists.
async fn wait_for(file: std::path::PathBuf) {
    while !file.exists() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_killed_child_is_reported_and_started_again() {
    let scene = Scene::new();
    let (ended, reports) = scene.run(CONFIG, "echo incarnation $((10 + $1)) line 0 9; kill -9 $$").await;
    assert!(matches!(ended, Err(SupervisorError::CrashLoop(CrashLoop { deaths: 3, .. }))), "{ended:?}");
    assert_eq!(reports, deaths(&[10, 11, 12]));
}

#[tokio::test]
async fn a_child_that_exits_is_reported_too() {
    let (ended, reports) = Scene::new().run(CONFIG, "echo incarnation 4 line 0 9; exit 1").await;
    assert!(matches!(ended, Err(SupervisorError::CrashLoop(_))), "{ended:?}");
    assert_eq!(reports, deaths(&[4, 4, 4]));
}

#[tokio::test]
async fn a_child_that_did_not_say_who_it_is_is_not_reported() {
    for words in ["", "printf 'incarnation 5 line 0 9'", "echo hello", "head -c 100000 /dev/zero"] {
        let (ended, reports) = Scene::new().run(CONFIG, &format!("{words}\nexit 1")).await;
        assert!(matches!(ended, Err(SupervisorError::CrashLoop(_))), "{ended:?}");
        assert_eq!(reports, [], "after {words}");
    }
}

#[tokio::test]
async fn a_hopeless_child_is_not_started_again() {
    let (ended, reports) =
        Scene::new().run(CONFIG, &format!("echo incarnation 1 line 0 9; exit {EXIT_HOPELESS}")).await;
    assert!(matches!(ended, Err(SupervisorError::Hopeless)), "{ended:?}");
    assert_eq!(reports, [], "it has taken no part, and may be a copy of one that does");
}

#[tokio::test]
async fn a_program_that_cannot_be_started_is_given_up() {
    let (_stop, stops) = mpsc::channel(1);
    let ended = supervise(CONFIG, Recorder::default(), stops, |_| Command::new("/no/such/program")).await;
    assert!(matches!(ended, Err(SupervisorError::CrashLoop(_))), "{ended:?}");
}

#[tokio::test]
async fn a_stop_is_passed_on_and_waited_for() {
    let scene = Scene::new();
    let (ready, stop) = (scene.folder.path().join("ready"), scene.stop.clone());
    let script = "trap 'exit 0' TERM; echo incarnation 1 line 0 9; touch ready; while :; do sleep 0.01; done";
    let ask = async {
        wait_for(ready).await;
        stop.send(()).await.unwrap();
    };
    let ((ended, reports), ()) = tokio::join!(scene.run(CONFIG, script), ask);
    assert_eq!((ended.unwrap(), reports), (Ended::Stopped, deaths(&[1])));
}

/// Stubborn on purpose.
const STUBBORN: &str = "trap '' TERM; echo incarnation 1 line 0 9; touch ready; while :; do sleep 0.01; done";

#[tokio::test]
async fn a_child_that_does_not_stop_is_killed() {
    let scene = Scene::new();
    let (ready, stop) = (scene.folder.path().join("ready"), scene.stop.clone());
    let config = Config { stop_timeout: Duration::from_millis(50), ..CONFIG };
    let ask = async {
        wait_for(ready).await;
        stop.send(()).await.unwrap();
    };
    let ((ended, reports), ()) = tokio::join!(scene.run(config, STUBBORN), ask);
    assert_eq!((ended.unwrap(), reports), (Ended::Killed, deaths(&[1])));
}

#[tokio::test]
async fn who_asks_twice_does_not_wait() {
    let scene = Scene::new();
    let (ready, stop) = (scene.folder.path().join("ready"), scene.stop.clone());
    let ask = async {
        wait_for(ready).await;
        stop.send(()).await.unwrap();
        stop.send(()).await.unwrap();
    };
    let ((ended, _), ()) = tokio::join!(scene.run(CONFIG, STUBBORN), ask);
    assert_eq!(ended.unwrap(), Ended::Killed);
}

#[tokio::test]
async fn a_stop_between_two_runs_ends_it() {
    let scene = Scene::new();
    let (ids, stop) = (scene.folder.path().join("ids"), scene.stop.clone());
    let hour = Span::from_secs(3_600);
    let config = Config { policy: Policy { delay_min: hour, delay_max: hour, ..POLICY }, ..CONFIG };
    let reports = Arc::clone(&scene.recorder.reports);
    let ask = async {
        wait_for(ids).await;
        while reports.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        stop.send(()).await.unwrap();
    };
    let ((ended, _), ()) = tokio::join!(scene.run(config, "echo incarnation 1 line 0 9; exit 1"), ask);
    assert_eq!(ended.unwrap(), Ended::Stopped);
}

#[tokio::test]
async fn a_notice_that_cannot_be_delivered_holds_up_nothing() {
    let mut scene = Scene::new();
    scene.recorder.hangs = true;
    let config = Config { notice_timeout: Duration::from_millis(20), ..CONFIG };
    let (ended, reports) = scene.run(config, "echo incarnation $1 line 0 9; exit 1").await;
    assert!(matches!(ended, Err(SupervisorError::CrashLoop(_))), "{ended:?}");
    assert_eq!(reports, deaths(&[0, 1, 2]), "each death was reported while the report before it hung");
}
