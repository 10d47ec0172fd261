//! Machines that can be cut off, on one machine: a network namespace for each daemon, and one for whoever uses them.
//!
//! The namespaces have no names. They last as long as somebody is in them or has them open, so nothing stays behind, however this ends.
//! Takes root, and `ip` of iproute2.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::thread;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// The first three numbers of the addresses, which are those that are set aside for measurements.
const NET: &str = "198.18.0";
/// The last number of the address of whoever uses the daemons.
const HUB: usize = 100;
/// Each daemon has an address of its own, so they may all have the same port.
const PORT: u16 = 7_000;

/// Why there are none.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// Not allowed.
    #[error(
        "a partition takes network namespaces, and those take root; run it as root, or leave `partition` out"
    )]
    NotRoot,
    /// The kernel does not.
    #[error("no network namespace could be made: {0}")]
    Kernel(io::Error),
    /// No program to set them up.
    #[error("`ip` could not be run ({0}); install iproute2, or leave `partition` out")]
    NoIp(io::Error),
    /// It refuses.
    #[error("`ip {command}` failed: {said}")]
    Refused {
        /// What it was asked for.
        command: String,
        /// What it said.
        said: String,
    },
}

/// A namespace for each of some daemons. The thread that has made them is in one more, with cables to all.
pub struct Namespaces {
    members: Vec<OwnedFd>,
}

impl Namespaces {
    /// Moves this thread, and what it starts from now on, out of the machine's network, and makes a namespace for each of `count` daemons.
    pub fn make(count: usize) -> Result<Self, NamespaceError> {
        if !rustix::process::geteuid().is_root() {
            return Err(NamespaceError::NotRoot);
        }
        leave_network().map_err(NamespaceError::Kernel)?;
        let mut made = Self { members: Vec::new() };
        ip(None, "link set lo up")?;
        ip(None, "link add hub type bridge")?;
        ip(None, &format!("addr add {NET}.{HUB}/24 dev hub"))?;
        ip(None, "link set hub up")?;
        for id in 1..=count {
            made.add(id)?;
        }
        Ok(made)
    }

    /// Where daemons `1..=count` listen.
    pub fn addresses(count: usize) -> Vec<String> {
        (1..=count).map(|id| format!("{NET}.{id}:{PORT}")).collect()
    }

    /// Has a process run in the namespace of daemon `id`.
    pub(crate) fn enter_member(&self, command: &mut Command, id: usize) {
        enter(command, self.members[id - 1].as_raw_fd());
    }

    /// Pulls the cable of daemon `id`.
    pub(crate) fn cut(&self, id: usize) -> Result<(), NamespaceError> {
        ip(None, &format!("link set port{id} down"))
    }

    /// Puts it back.
    pub(crate) fn mend(&self, id: usize) -> Result<(), NamespaceError> {
        ip(None, &format!("link set port{id} up"))
    }

    fn add(&mut self, id: usize) -> Result<(), NamespaceError> {
        let opened = thread::spawn(|| {
            leave_network()?;
            Ok(OwnedFd::from(File::open("/proc/thread-self/ns/net")?))
        });
        let opened = opened.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
        let member = opened.map_err(NamespaceError::Kernel)?;
        let (process, number) = (std::process::id(), member.as_raw_fd());
        ip(None, &format!("link add port{id} type veth peer name cable{id}"))?;
        ip(None, &format!("link set port{id} master hub"))?;
        ip(None, &format!("link set port{id} up"))?;
        ip(None, &format!("link set cable{id} netns /proc/{process}/fd/{number}"))?;
        ip(Some(number), "link set lo up")?;
        ip(Some(number), &format!("addr add {NET}.{id}/24 dev cable{id}"))?;
        ip(Some(number), &format!("link set cable{id} up"))?;
        self.members.push(member);
        Ok(())
    }
}

fn leave_network() -> io::Result<()> {
    // SAFETY: what may not be unshared alone are file descriptors, and this unshares the network and nothing else.
    Ok(unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?)
}

/// Runs `ip`, in another namespace if one is given.
fn ip(namespace: Option<RawFd>, arguments: &str) -> Result<(), NamespaceError> {
    let mut command = Command::new("ip");
    command.args(arguments.split(' ')).stdin(Stdio::null());
    if let Some(namespace) = namespace {
        enter(&mut command, namespace);
    }
    let output = command.output().map_err(NamespaceError::NoIp)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(NamespaceError::Refused { command: arguments.to_owned(), said })
}

/// The descriptor stays open until the process is started.
fn enter(command: &mut Command, namespace: RawFd) {
    // SAFETY: between fork and exec only functions that are safe in signal handlers may be called. This makes one
    // system call, on a descriptor that whoever starts the process keeps open meanwhile.
    unsafe {
        command.pre_exec(move || {
            let namespace = std::os::fd::BorrowedFd::borrow_raw(namespace);
            Ok(move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?)
        });
    }
}
