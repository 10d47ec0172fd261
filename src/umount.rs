//! `fleasefs umount`: takes a mount away.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use client_fuse::Unmount;

/// Unmount a volume
///
/// When this returns, everything that was written through the mount is with the
/// daemons, but for what they have refused, as when they have no space: whoever
/// synced or closed it later was told, and the `--log-file` of the mount names it.
/// A mount that is in use stays, and whoever uses it is named. A mount whose
/// process has gone ("Transport endpoint is not connected") is taken away in any
/// case. If daemons are away or slow it may not all be there after a minute: then
/// this fails, and names the process that goes on until it is.
///
/// Exit codes: 0 when it is unmounted and nothing is left to write, 1 when not, 2
/// when the command line was wrong.
///
/// Example:
///   fleasefs umount /mnt
#[derive(clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Args {
    /// Where the volume is mounted
    #[arg(value_name = "PATH")]
    path: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if client_fuse::unmount(&args.path)? == Unmount::Recovered {
        let path = args.path.display();
        writeln!(io::stdout(), "the mount at {path} had lost its process, and is gone now")
            .context("could not print")?;
    }
    Ok(ExitCode::SUCCESS)
}
