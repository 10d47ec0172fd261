//! `fleasefs bench floor`: what this machine allows, before anything of ours is in the way.

use std::io::{self, Write};
use std::num::NonZeroU32;
use std::path::PathBuf;

use anyhow::Context;
use bench::floor::{DiskFloor, Floor, FuseFloor, Options, Part, QuicFloor};
use indicatif::{ProgressBar, ProgressStyle};

/// Measure what this machine allows: network, disk and FUSE with nothing in the way
///
/// Three parts, each the median of several short rounds:
///
/// * network: messages through QUIC with certificates on, from one sender to two
///   receivers on loopback, as a primary sends to its two backups;
/// * disk: appending 4 KiB and waiting until it would survive a loss of power
///   (fdatasync), by one writer and by three at once, as three daemons on one disk;
/// * FUSE: a mounted file system that does nothing. Without root this needs the
///   program fusermount3 (Debian package fuse3). Where nothing can be mounted the
///   rest is measured all the same, and the reason is shown.
///
/// Other measurements mean something only beside these figures, from the same
/// machine. Run it alone: whatever else runs is measured with it. It takes about a
/// quarter of a minute and leaves nothing behind.
///
/// Examples:
///   fleasefs bench floor
///   fleasefs bench floor --dir /var/lib/fleasefs
///   fleasefs bench floor --json | jq .fdatasync_alone_p50_us
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Print one JSON object instead of tables; units stand at the end of each key
    #[arg(long)]
    json: bool,

    /// Measure the disk under this directory; choose the disk that will hold the data.
    /// /tmp is often kept in memory and would tell nothing
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,

    /// Take each figure as the median of this many rounds; more rounds, less chance
    #[arg(long, value_name = "N", default_value = "5")]
    rounds: NonZeroU32,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    client_fuse::unmount_on_signals()?;
    let dir = args
        .dir
        .canonicalize()
        .with_context(|| format!("no directory {}; choose another with --dir", args.dir.display()))?;
    let bar = progress_bar(args.rounds);
    let options = Options { dir, rounds: args.rounds };
    let floor = bench::floor::run(&options, |part| {
        bar.set_message(part.name());
        bar.inc(1);
    });
    bar.finish_and_clear();
    print(&floor?, args.json).context("could not print the figures")
}

/// On standard error, and only if that is a terminal.
fn progress_bar(rounds: NonZeroU32) -> ProgressBar {
    let steps = u64::from(rounds.get()) * Part::ALL.len() as u64;
    let style = ProgressStyle::with_template("{bar:30} round {pos}/{len} {msg}");
    ProgressBar::new(steps).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn print(floor: &Floor, json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer(&mut out, floor)?;
        writeln!(out)?;
        return Ok(());
    }
    writeln!(out, "median of {} rounds on {} processors", floor.rounds, floor.processors)?;
    if let Some(percent) = floor.others_percent {
        writeln!(
            out,
            "other programs used {percent:.0} % of the processors; the more, the less these figures mean"
        )?;
    }
    print_quic(&mut out, &floor.quic)?;
    print_disk(&mut out, &floor.disk)?;
    print_fuse(&mut out, &floor.fuse)?;
    Ok(())
}

fn print_quic(out: &mut impl Write, quic: &QuicFloor) -> io::Result<()> {
    writeln!(
        out,
        "\nnetwork: QUIC on loopback, certificates both ways, packets of {} bytes, socket buffers of {} and {} KiB",
        quic.quic_packet_bytes,
        quic.quic_socket_send_buffer_bytes >> 10,
        quic.quic_socket_receive_buffer_bytes >> 10
    )?;
    row(out, "1 MiB messages to two, on one stream each", quic.quic_fan_out_1m_mib_s, "MiB/s")?;
    row(out, "1 MiB messages to two, a stream per message", quic.quic_fan_out_1m_stream_each_mib_s, "MiB/s")?;
    row(out, "128 B messages to two, on one stream each", quic.quic_fan_out_128b_messages_s, "messages/s")?;
    row(out, "1 MiB messages to one, on one stream", quic.quic_single_stream_mib_s, "MiB/s")?;
    row(out, "128 B round trip, p50", quic.quic_round_trip_p50_us, "µs")?;
    row(out, "128 B round trip, p99", quic.quic_round_trip_p99_us, "µs")
}

fn print_disk(out: &mut impl Write, disk: &DiskFloor) -> io::Result<()> {
    writeln!(
        out,
        "\ndisk: append of 4 KiB and fdatasync in {} ({} on {})",
        disk.fdatasync_dir, disk.fdatasync_file_system, disk.fdatasync_device
    )?;
    row(out, "one writer, p50", disk.fdatasync_alone_p50_us, "µs")?;
    row(out, "one writer, p99", disk.fdatasync_alone_p99_us, "µs")?;
    row(out, "one writer", disk.fdatasync_alone_s, "appends/s")?;
    row(out, "three writers, p50", disk.fdatasync_three_p50_us, "µs")?;
    row(out, "three writers, p99", disk.fdatasync_three_p99_us, "µs")?;
    row(out, "three writers, together", disk.fdatasync_three_s, "appends/s")
}

fn print_fuse(out: &mut impl Write, fuse: &FuseFloor) -> io::Result<()> {
    if let Some(reason) = &fuse.fuse_unavailable {
        return writeln!(out, "\nFUSE: not measured: {reason}");
    }
    let read_ahead = fuse.fuse_read_ahead_kib.map_or("unknown".to_owned(), |kib| format!("{kib} KiB"));
    writeln!(out, "\nFUSE: a file system that does nothing, one caller, read-ahead {read_ahead}")?;
    let rows = [
        ("stat, p50", fuse.fuse_stat_p50_us, "µs"),
        ("stat, p99", fuse.fuse_stat_p99_us, "µs"),
        ("stat on the caller's processor, p50", fuse.fuse_stat_one_processor_p50_us, "µs"),
        ("open and close, p50", fuse.fuse_open_close_p50_us, "µs"),
        ("create, close and unlink, p50", fuse.fuse_create_unlink_p50_us, "µs"),
        ("read of 4 KiB, p50", fuse.fuse_read_4k_p50_us, "µs"),
        ("write of 4 KiB, p50", fuse.fuse_write_4k_p50_us, "µs"),
        ("sequential read, 1 MiB at a time", fuse.fuse_read_1m_mib_s, "MiB/s"),
        ("sequential write, 1 MiB at a time", fuse.fuse_write_1m_mib_s, "MiB/s"),
    ];
    for (what, figure, unit) in rows {
        if let Some(figure) = figure {
            row(out, what, figure, unit)?;
        }
    }
    Ok(())
}

fn row(out: &mut impl Write, what: &str, figure: f64, unit: &str) -> io::Result<()> {
    writeln!(out, "  {what:<46}{figure:>12.0} {unit}")
}
