//! `mount.fleasefs`: what mount(8) runs for volumes, and what it wants to hear from it.
//!
//! By this name, which is a link, the program takes SPEC DIR [-sfnv] [-o OPTIONS] and returns when the mount answers. It says with its exit code
//! what mount(8) would say: that it was called wrongly, or that nothing was mounted.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use client_fuse::NoSuchOption;

/// What the link is called.
const NAME: &str = "mount.fleasefs";
/// Called wrongly.
const USAGE: u8 = 1;
/// Nothing is mounted.
const FAILED: u8 = 32;

/// Mount a volume, as `mount -t fleasefs` and /etc/fstab have it done
///
/// It returns when the mount answers. Exit codes: 0 when it does, 1 when the command
/// line or an option was wrong, 32 when it could not be mounted.
#[derive(Parser)]
#[command(name = NAME, version, verbatim_doc_comment, args_override_self = true)]
struct Called {
    /// The cluster's folder or a client.toml, and behind a colon the volume; without one it is `main`
    #[arg(value_name = "SPEC")]
    target: PathBuf,
    /// An existing directory
    #[arg(value_name = "DIR")]
    path: PathBuf,
    /// Options, with commas between them
    #[arg(short, value_name = "OPTIONS")]
    options: Vec<String>,
    /// Pass over options that there are not
    #[arg(short)]
    sloppy: bool,
    /// Check everything and mount nothing
    #[arg(short)]
    fake: bool,
    /// Keep no list of mounts: there is none
    #[arg(short)]
    no_list: bool,
    /// Say more: there is no more to say
    #[arg(short)]
    verbose: bool,
    /// Do not mount read-only instead: that is never done
    #[arg(short)]
    writable: bool,
    /// The type that was asked for, if that says more than the name
    #[arg(short, value_name = "TYPE")]
    type_name: Option<String>,
    /// The namespace, which `mount` has entered already
    #[arg(short = 'N', value_name = "NAMESPACE")]
    namespace: Option<PathBuf>,
}

/// Whether the program was called by the helper's name.
pub(crate) fn is_called(arguments: &[OsString]) -> bool {
    arguments.first().is_some_and(|name| Path::new(name).file_name() == Some(NAME.as_ref()))
}

/// Mounts what `mount` wants mounted.
pub(crate) fn run(arguments: Vec<OsString>) -> ExitCode {
    let called = match Called::try_parse_from(arguments) {
        Ok(called) => called,
        Err(error) => {
            // Nobody is left to be told if this fails.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    match super::run(&called.meant()) {
        Ok(ExitCode::SUCCESS) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(FAILED),
        Err(error) => {
            crate::tell(&error);
            ExitCode::from(if error.is::<NoSuchOption>() { USAGE } else { FAILED })
        }
    }
}

impl Called {
    fn meant(self) -> super::Args {
        super::Args {
            options: self.options,
            background: true,
            sloppy: self.sloppy,
            is_fake: self.fake,
            ..super::Args::of(self.target, self.path)
        }
    }
}
