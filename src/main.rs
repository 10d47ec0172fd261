//! `fleasefs`: the one command. One file per subcommand, no logic of its own.

#![recursion_limit = "256"] // for the one long `json!`

mod accept_loss;
mod background;
mod bench;
mod cert;
mod cluster_dir;
mod demo;
mod down;
mod drain;
mod family;
mod init;
mod local;
mod lock;
mod log;
mod mount;
mod named;
mod object;
mod osd;
mod restart;
mod shell;
mod sim;
mod status;
mod store;
mod top;
mod umount;
mod up;
mod volume;
mod when;
mod who;
mod why;

use std::io::{self, Write};
use std::process::ExitCode;

use ::bench::heap::CountingAllocator;
use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// A replicated file service in which every open file has its own primary.
///
/// Exit codes: 0 when all went well, 1 when the work failed, 2 when the command line was wrong.
#[derive(Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    AcceptLoss(accept_loss::Args),
    Bench(bench::Args),
    Cert(cert::Args),
    Demo(demo::Args),
    Down(down::Args),
    Drain(drain::DrainArgs),
    Init(init::Args),
    Lock(lock::Args),
    Mount(mount::Args),
    Object(object::Args),
    Osd(osd::Args),
    Restart(restart::Args),
    /// Run the cluster in one thread under a seed, with faults and checkers
    Sim(sim::SimArgs),
    Status(status::Args),
    Store(store::Args),
    Top(top::Args),
    Umount(umount::Args),
    Undrain(drain::UndrainArgs),
    Up(up::Args),
    Volume(volume::Args),
    Who(who::Args),
    Why(why::Args),
}

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    if mount::helper::is_called(&arguments) {
        return mount::helper::run(arguments);
    }
    let result = match Cli::parse_from(arguments).command {
        Command::AcceptLoss(args) => accept_loss::run(&args),
        Command::Bench(args) => bench::run(args),
        Command::Cert(args) => cert::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Down(args) => down::run(&args),
        Command::Drain(args) => drain::drain(&args),
        Command::Init(args) => init::run(&args),
        Command::Lock(args) => lock::run(&args),
        Command::Mount(args) => mount::run(&args),
        Command::Object(args) => object::run(args),
        Command::Osd(args) => osd::run(&args),
        Command::Restart(args) => restart::run(&args),
        Command::Sim(args) => sim::run(args),
        Command::Status(args) => status::run(&args),
        Command::Store(args) => store::run(&args),
        Command::Top(args) => top::run(&args),
        Command::Umount(args) => umount::run(&args),
        Command::Undrain(args) => drain::undrain(&args),
        Command::Up(args) => up::run(&args),
        Command::Volume(args) => volume::run(&args),
        Command::Who(args) => who::run(&args),
        Command::Why(args) => why::run(&args),
    };
    match result {
        Ok(code) => code,
        // Whoever reads the output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            tell(&error);
            ExitCode::FAILURE
        }
    }
}

fn tell(error: &anyhow::Error) {
    // Nobody is left to be told if this fails.
    let _ = writeln!(io::stderr(), "fleasefs: {}", told(error));
}

/// Whether there is a command of this name.
fn has_command(name: &str) -> bool {
    Cli::command().find_subcommand(name).is_some()
}

/// One thread is enough for what waits for a network.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("could not start the asynchronous runtime")
}

/// What went wrong, and why. Many errors name their cause themselves; it is not said twice.
fn told(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind =
        |cause: &(dyn std::error::Error + 'static)| cause.downcast_ref::<io::Error>().map(io::Error::kind);
    error.chain().any(|cause| kind(cause) == Some(io::ErrorKind::BrokenPipe))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What clap finds wrong it says only when the subcommand in question is used.
    #[test]
    fn the_command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_cause_is_told_once() {
        let cause = io::Error::other("the disk is gone");
        assert_eq!(
            told(&anyhow::Error::from(cause).context("cannot read a")),
            "cannot read a: the disk is gone"
        );
        let cause = io::Error::other("the disk is gone");
        let named = anyhow::Error::from(cause).context("cannot read a: the disk is gone; check the path");
        assert_eq!(told(&named), "cannot read a: the disk is gone; check the path");
    }

    /// Lines that are kept as they are written would be broken in the middle, and the rest of each stand alone.
    #[test]
    fn help_fits_a_terminal_of_80_columns() {
        let mut commands = vec![Cli::command()];
        while let Some(command) = commands.pop() {
            let help = command.get_long_about().map(ToString::to_string).unwrap_or_default();
            // A paragraph of one line is wrapped as a whole.
            let kept = help.split("\n\n").filter(|paragraph| paragraph.trim_end().contains('\n'));
            for line in kept.flat_map(str::lines) {
                assert!(line.chars().count() <= 80, "{}: {line}", command.get_name());
            }
            commands.extend(command.get_subcommands().cloned());
        }
    }
}
