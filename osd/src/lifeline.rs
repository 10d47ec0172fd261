//! Children that do not outlive the process that started them.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Has the child of `command` get `signal` when this process ends, however it ends.
///
/// A child whose parent ends before it could ask for that is not executed at all.
pub fn tie(command: &mut Command, signal: Signal) {
    let parent = getpid();
    // SAFETY: between fork and exec only functions that are safe in signal handlers may be called. This makes two
    // system calls and touches no memory but its own stack.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(signal))?;
            if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
        });
    }
}
