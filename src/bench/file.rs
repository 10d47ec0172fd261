//! `fleasefs bench file`: what programs get out of a file system.

use std::io::{self, IsTerminal, Write};
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ::bench::file_load::{self, Figures, Plan};
use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::Signal;

/// Measure what a file system gives to programs: a mount, a local disk, any other
///
/// One program does one thing at a time, in a folder of its own below the
/// directory:
///   small files    of 4 KiB are created, looked at, read and removed
///   a large file   is written from its beginning to its end, 1 MiB at a time,
///                  and synced, and read; p50 and p99 are of one MiB
///   short writes   of 4 KiB go to random places of a file, each followed by
///                  fsync
/// What is read is compared. What the kernel keeps in memory it may answer from
/// there. Nothing stays behind, after Ctrl-C neither.
///
/// Examples:
///   fleasefs bench file --path /mnt
///   fleasefs bench file --path /var/tmp --json | jq .create_per_s
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Measure the file system of this directory
    #[arg(long, value_name = "DIR")]
    path: PathBuf,

    /// So many small files
    #[arg(long, value_name = "N", default_value = "10000")]
    files: NonZeroU32,

    /// The large file is so long. What fits into memory is read from there, if the file system allows that
    #[arg(long, value_name = "MIB", default_value = "1024")]
    size_mib: NonZeroU64,

    /// How long short writes go on
    #[arg(long, value_name = "SECONDS", default_value = "5")]
    seconds: NonZeroU32,

    /// Print one JSON object instead of a table; units stand at the end of each key
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let dir = args
        .path
        .canonicalize()
        .with_context(|| format!("no directory {}; choose another with --path", args.path.display()))?;
    let stops = stops_on_signals().context("could not handle signals")?;
    let plan = Plan {
        dir,
        files: args.files,
        big_mib: args.size_mib,
        syncing: Duration::from_secs(args.seconds.get().into()),
    };
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} % {msg}")?;
    // On standard error, and only if that is a terminal.
    let bar = ProgressBar::new(0).with_style(style);
    let mut step = String::new();
    let figures = file_load::run(&plan, &stops, &mut |what, done, of| {
        bar.set_position(done);
        if step != what {
            what.clone_into(&mut step);
            bar.set_length(of);
            bar.set_message(step.clone());
            // However short the step is, it is seen.
            bar.force_draw();
        }
    });
    bar.finish_and_clear();
    print(&figures?, args.json).context("could not print the figures")
}

/// Becomes true when somebody wants this process to end.
fn stops_on_signals() -> io::Result<Arc<AtomicBool>> {
    let stops = Arc::new(AtomicBool::new(false));
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let stops = Arc::clone(&stops);
        // SAFETY: the action runs in a signal handler, and does nothing but store to an atomic.
        unsafe {
            signal_hook_registry::register(signal.as_raw(), move || stops.store(true, Ordering::Relaxed))?;
        }
    }
    Ok(stops)
}

/// How a table looks: with colours where somebody sees them.
struct Look {
    head: &'static str,
    figure: &'static str,
    quiet: &'static str,
    plain: &'static str,
}

impl Look {
    fn of(out: &impl IsTerminal) -> Self {
        let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if out.is_terminal() && !is_plain {
            Self { head: "\x1b[1m", figure: "\x1b[32m", quiet: "\x1b[2m", plain: "\x1b[0m" }
        } else {
            Self { head: "", figure: "", quiet: "", plain: "" }
        }
    }
}

fn print(figures: &Figures, json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer(&mut out, figures)?;
        writeln!(out)?;
        return Ok(());
    }
    let Look { head, figure, quiet, plain } = Look::of(&out);
    let title = format!("{} small files, a large one of {} MiB", figures.files, figures.big_mib);
    writeln!(out, "{head}{title:<40} {:>12} {:>13} {:>13}{plain}", "", "p50", "p99")?;
    let counts = figures.rows().map(|(what, per_s, times)| (what, format!("{per_s:>10.0}/s"), times));
    let rates = figures.rates().map(|(what, mib_s, times)| (what, format!("{mib_s:>6.0} MiB/s"), times));
    for (what, rate, [p50_us, p99_us]) in counts.into_iter().chain(rates) {
        writeln!(out, "{what:<40} {figure}{rate}{plain} {quiet}{p50_us:>10.0} µs {p99_us:>10.0} µs{plain}")?;
    }
    Ok(())
}
