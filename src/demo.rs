//! `fleasefs demo`: failover to be watched.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::bench::demo::{self, Happened, Look, Verdict};
use ::bench::failover::{Access, FailoverError, Stage};
use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use tokio::signal::unix::{SignalKind, signal};

use crate::bench::cluster::Cluster;

/// Where there is no terminal, a line says so often how it is.
const LINE_EVERY: Duration = Duration::from_secs(2);
/// 128 and the number of SIGINT.
const EXIT_INTERRUPTED: u8 = 130;

/// Watch a cluster lose daemons and nothing else
///
/// Three daemons are started as separate processes, and their volume is mounted
/// twice; where nothing can be mounted two clients take the place of the mounts.
/// Programs write, append, create and read files; each write is synced. Meanwhile
/// the busiest daemon is killed, another one is frozen for some seconds, and the
/// third is stopped in order and started again. In the end every byte that was
/// acknowledged is read again, and a table says how long the longest call took at
/// each event, what failed, and what was lost. Everything is in a temporary folder
/// and taken away, also after Ctrl-C.
///
/// A stall above what is promised counts against the verdict, unless a timer that
/// does nothing else was more than 20 ms late meanwhile: then the machine stalled.
///
/// Exit codes: 0 when all was as promised; 1 when it was not, or something else
/// failed; 2 when the command line was wrong; 130 when it was interrupted.
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Use the client library, also where the volume can be mounted
    #[arg(long)]
    library: bool,

    /// Print the verdict as a JSON object, and nothing else on standard output; units stand at the end of each key
    #[arg(long)]
    json: bool,

    /// For how long it goes on, without the waits for a daemon to come back
    #[arg(long, value_name = "SECONDS", default_value_t = 40, hide = true)]
    seconds: u64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    static STOP: AtomicBool = AtomicBool::new(false);
    stop_on_signals(&STOP)?;
    let mut display = Display::new()?;
    display.say("starting three daemons");
    let played = play(args, &STOP, &mut display);
    display.end();
    match played {
        Ok(verdict) => {
            print(&verdict, args.json).context("could not print the verdict")?;
            Ok(if verdict.ok { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Err(error) if matches!(error.downcast_ref(), Some(FailoverError::Interrupted)) => {
            writeln!(io::stderr(), "fleasefs: interrupted; everything is taken away again")?;
            Ok(ExitCode::from(EXIT_INTERRUPTED))
        }
        Err(error) => Err(error),
    }
}

/// Everything that is started here is gone when this returns.
fn play(args: &Args, stop: &AtomicBool, display: &mut Display) -> anyhow::Result<Verdict> {
    let program = std::env::current_exe().context("could not find this program")?;
    let mut cluster = Cluster::start(3, node::Settings::default(), None)?;
    let folder = cluster.folder().to_owned();
    let access = Access { program, folder: folder.clone(), library: args.library };
    let parts = (&mut cluster.daemons, &cluster.config);
    let mut stage = Stage::set_up(parts, &access, stop)?;
    match &stage.no_mount {
        Some(why) => {
            display.say(&format!("nothing is mounted: {why}. Programs use the client library instead"))
        }
        None => {
            display.say(&format!("the volume is mounted at {0}/mount-1 and {0}/mount-2", folder.display()))
        }
    }
    let length = Duration::from_secs(args.seconds);
    let verdict = demo::run(&mut stage, length, &mut |look| display.show(look))?;
    display.say("taking everything away");
    Ok(verdict)
}

/// A signal is a wish: whoever looks at `stop` takes everything away.
fn stop_on_signals(stop: &'static AtomicBool) -> anyhow::Result<()> {
    let runtime = crate::runtime()?;
    let guard = runtime.enter();
    let [interrupt, terminate, hang_up] =
        [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()].map(signal);
    let (mut interrupt, mut terminate, mut hang_up) = (interrupt?, terminate?, hang_up?);
    drop(guard);
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hang_up.recv() => {}
            }
            stop.store(true, Ordering::Relaxed);
            std::future::pending::<()>().await;
        });
    })?;
    Ok(())
}

/// Shows on standard error how it is: at a terminal in place, elsewhere line by line.
struct Display {
    bar: Option<ProgressBar>,
    begun: Instant,
    last_line: Option<Instant>,
}

impl Display {
    fn new() -> anyhow::Result<Self> {
        let bar = io::stderr().is_terminal().then(ProgressBar::new_spinner);
        if let Some(bar) = &bar {
            bar.set_style(ProgressStyle::with_template("{spinner} {msg}")?);
            bar.enable_steady_tick(Duration::from_millis(100));
        }
        Ok(Self { bar, begun: Instant::now(), last_line: None })
    }

    /// Something that stays to be read.
    fn say(&mut self, text: &str) {
        let line = format!("{:>5.1} s  {text}", self.begun.elapsed().as_secs_f64());
        // Whoever has closed standard error does not want to know.
        let _ = match &self.bar {
            Some(bar) => bar.suspend(|| writeln!(io::stderr(), "{line}")),
            None => writeln!(io::stderr(), "{line}"),
        };
    }

    fn show(&mut self, look: &Look) {
        if let Some(news) = &look.news {
            self.say(news);
        }
        match &self.bar {
            Some(bar) => bar.set_message(format!("{}\n  {}", look.step, figures(look).join("\n  "))),
            None if self.last_line.is_none_or(|at| at.elapsed() >= LINE_EVERY) => {
                self.last_line = Some(Instant::now());
                self.say(&figures(look).join("; "));
            }
            None => {}
        }
    }

    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn figures(look: &Look) -> [String; 3] {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let primaries = look.primaries.iter().map(|(node, leases)| {
        format!("daemon {node} {}", leases.map_or_else(|| "-".to_owned(), |leases| leases.to_string()))
    });
    [
        format!(
            "writes {:>5}/s, p99 {:>6.1} ms; reads {:>5}/s, p99 {:>6.1} ms",
            look.writes_per_s,
            ms(look.write_p99),
            look.reads_per_s,
            ms(look.read_p99)
        ),
        format!("leases: {}", primaries.collect::<Vec<_>>().join(", ")),
        format!("{:.1} MiB acknowledged, {} errors", mib(look.acked_bytes), look.errors),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn print(verdict: &Verdict, json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer(&mut out, verdict)?;
        writeln!(out)?;
        return Ok(());
    }
    let [event, daemon, writer, reader] = ["event", "daemon", "writer", "reader"];
    writeln!(out, "{event:<9} {daemon:>6} {writer:>10} {reader:>10} {:>10}", "promised")?;
    for happened in &verdict.happened {
        let Happened { event, daemon, writer_stall_ms, reader_stall_ms, bound_ms, .. } = happened;
        let remark = match (happened.void, happened.is_kept()) {
            (true, _) => format!("  the machine itself stalled for {:.0} ms", happened.control_stall_ms),
            (false, false) => format!("  MISSED; one fdatasync took {:.0} ms", happened.disk_stall_ms),
            (false, true) => String::new(),
        };
        writeln!(
            out,
            "{:<9} {:>6} {writer_stall_ms:>7.0} ms {reader_stall_ms:>7.0} ms {bound_ms:>7.0} ms{remark}",
            event.name(),
            daemon.to_string(),
        )?;
    }
    let Verdict { over, seconds, operations, errors, files_checked, bytes_checked, bytes_lost, .. } = verdict;
    writeln!(out, "{operations} calls in {seconds} s over the {over}, {errors} errors")?;
    for text in &verdict.error_texts {
        writeln!(out, "  {text}")?;
    }
    writeln!(
        out,
        "{bytes_checked} acknowledged bytes in {files_checked} files read again, {bytes_lost} lost"
    )?;
    writeln!(out, "{}", if verdict.ok { "All as promised." } else { "NOT as promised." })?;
    Ok(())
}
