//! `fleasefs bench failover`: what programs notice when daemons fail.

use std::fs;
use std::io::{self, Write};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use ::bench::failover::{self, Access, Event, Figures, Stage};
use ::bench::netns::Namespaces;
use anyhow::{Context, bail};
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};

use super::cluster::Cluster;

/// Measure what programs notice when a daemon fails, is frozen, cut off or restarted
///
/// Three daemons run as separate processes on this machine, and their volume is
/// mounted twice; where nothing can be mounted two clients take the place of the
/// mounts. One program writes 4 KiB and syncs, again and again; one reads the same
/// file through the other mount, one reads other files. Something happens to the
/// daemon that the volume and the files have as their primary:
///   crash      it is killed, and its supervisor starts it again
///   machine    its supervisor is killed, too, so nobody reports its death
///   freeze     both stand still for some seconds, and go on
///   restart    it is stopped in order, and started again
///   drain      the same, after `fleasefs drain`; where there is that command
///   partition  it is cut off from everybody for some seconds; takes root and `ip`
///   all        all daemons are killed at once
/// The figure is the longest call of each program, the longest of all rounds. A
/// round in which a timer on this machine was more than 20 ms late is void. Every
/// byte that was acknowledged is read again.
///
/// Examples:
///   fleasefs bench failover --event crash --rounds 30 --json --check
///   fleasefs bench failover --event all
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// What happens; may be given several times [default: everything]
    #[arg(long = "event", value_enum)]
    events: Vec<Happens>,

    /// How often each
    #[arg(long, value_name = "N", default_value = "5")]
    rounds: NonZeroU32,

    /// Use the client library, also where the volume can be mounted
    #[arg(long)]
    library: bool,

    /// Print one JSON object a line instead of a table; units stand at the end of each key
    #[arg(long)]
    json: bool,

    /// Draw the stalls of all rounds into this file, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,

    /// Fail if a stall is above its bound, if something was lost or failed, or if too many rounds are void
    #[arg(long)]
    check: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Happens {
    Crash,
    Machine,
    Freeze,
    Restart,
    Drain,
    Partition,
    All,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let can_drain = crate::has_command("drain");
    let is_possible = |event: &Event| can_drain || *event != Event::Drain;
    let events: Vec<Event> = if args.events.is_empty() {
        Event::EVERY.into_iter().filter(is_possible).collect()
    } else {
        args.events.iter().map(|&event| event.into()).collect()
    };
    if !events.iter().all(is_possible) {
        bail!("this version has no command `fleasefs drain`; leave `drain` out");
    }
    let (apart, together): (Vec<Event>, Vec<Event>) =
        events.into_iter().partition(|event| *event == Event::Partition);
    let bar =
        ProgressBar::new_spinner().with_style(ProgressStyle::with_template("{spinner} {msg} ({elapsed})")?);
    bar.enable_steady_tick(Duration::from_millis(100));
    let mut all = Vec::new();
    if !together.is_empty() {
        let mut cluster = Cluster::start(3, node::Settings::default(), None)?;
        all.extend(measure(args, (&mut cluster, &together), &bar)?);
    }
    if !apart.is_empty() {
        // Last, because this process does not come back into the machine's network.
        let namespaces = Namespaces::make(3)?;
        let mut cluster = Cluster::start_apart(3, namespaces)?;
        all.extend(measure(args, (&mut cluster, &apart), &bar)?);
    }
    bar.finish_and_clear();
    if !args.json {
        print(&all).context("could not print the figures")?;
    }
    if let Some(path) = &args.plot {
        fs::write(path, failover::plot(&all))
            .with_context(|| format!("could not write {}", path.display()))?;
    }
    let shortfalls: Vec<String> = all.iter().flat_map(Figures::shortfalls).collect();
    if args.check && !shortfalls.is_empty() {
        bail!("{}", shortfalls.join("; "));
    }
    Ok(())
}

fn measure(
    args: &Args,
    (cluster, events): (&mut Cluster, &[Event]),
    bar: &ProgressBar,
) -> anyhow::Result<Vec<Figures>> {
    let program = std::env::current_exe().context("could not find this program")?;
    let access = Access { program, folder: cluster.folder().to_owned(), library: args.library };
    let (stop, rounds) = (AtomicBool::new(false), args.rounds.get());
    let parts = (&mut cluster.daemons, &cluster.config);
    let mut stage = Stage::set_up(parts, &access, &stop)?;
    if let Some(why) = &stage.no_mount {
        bar.suspend(|| {
            writeln!(io::stderr(), "fleasefs: nothing is mounted: {why}; clients are used instead")
        })?;
    }
    let mut all = Vec::new();
    for &event in events {
        let figures = failover::run(&mut stage, (event, rounds), |step| bar.set_message(step.to_owned()))?;
        if args.json {
            // At once: what is measured is not lost with what may go wrong later.
            bar.suspend(|| print_json(&figures)).context("could not print the figures")?;
        }
        all.push(figures);
    }
    Ok(all)
}

impl From<Happens> for Event {
    fn from(event: Happens) -> Self {
        match event {
            Happens::Crash => Self::Crash,
            Happens::Machine => Self::Machine,
            Happens::Freeze => Self::Freeze,
            Happens::Restart => Self::Restart,
            Happens::Drain => Self::Drain,
            Happens::Partition => Self::Partition,
            Happens::All => Self::All,
        }
    }
}

fn print_json(figures: &Figures) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, figures)?;
    Ok(writeln!(out)?)
}

fn print(all: &[Figures]) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let [event, rounds, void, writer, reader] = ["event", "rounds", "void", "writer", "reader"];
    let [quiet, bound, bytes, lost, errors] = ["without", "bound", "bytes", "lost", "errors"];
    writeln!(
        out,
        "{event:<9} {rounds:>6} {void:>5} {writer:>9} {reader:>9} {quiet:>9} {bound:>9} {bytes:>10} {lost:>5} {errors:>6}"
    )?;
    for figures in all {
        let ms = |ms: f64| format!("{ms:.0} ms");
        writeln!(
            out,
            "{:<9} {:>6} {:>5} {:>9} {:>9} {:>9} {:>9} {:>10} {:>5} {:>6}",
            figures.event.name(),
            figures.rounds,
            figures.void_rounds,
            ms(figures.writer_stall_max_ms),
            ms(figures.reader_stall_max_ms),
            ms(figures.quiet_stall_max_ms),
            ms(figures.bound_ms),
            figures.acked_bytes,
            figures.acked_lost,
            figures.errors,
        )?;
        for text in &figures.error_texts {
            writeln!(out, "          {text}")?;
        }
    }
    let over = all.first().map_or("mount", |figures| figures.over);
    writeln!(
        out,
        "Longest stalls of all rounds, over the {over}; `without` is the longest without any event."
    )?;
    Ok(())
}
