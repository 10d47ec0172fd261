//! Machines that can be cut off, on one machine: a network namespace for each daemon, and one for whoever uses them.
//!
//! The namespaces have no names. They last as long as somebody is in them or has them open, so nothing stays behind, however this ends.
//! Takes root, and `ip` of iproute2.
//!
//! A cable that is pulled cuts a machine off from all others. What is lost between two of them alone, or one way, is sent to an Ethernet address
//! that nobody has, and whoever sends it is not told.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// The first three numbers of the addresses, which are those that are set aside for measurements.
const NET: &str = "198.18.0";
/// Whoever uses the daemons, and the last number of its address.
pub const HUB: usize = 100;
/// Each daemon has an address of its own, so they may all have the same port.
const PORT: u16 = 7_000;
/// An Ethernet address that nobody has.
const NOBODY: &str = "02:00:00:00:00:00";
/// Says of each line that it reads whether `ip` did that, and if not, what it said.
const SCRIPT: &str =
    r#"while read -r line; do said=$(ip $line 2>&1) && echo ok || echo "$line:" $said; done"#;

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
    /// It refuses. What it was asked for, and what it said.
    #[error("`ip` failed: {0}")]
    Refused(String),
}

/// A namespace for each of some machines. The thread that has made them is in one more, with cables to all.
pub struct Namespaces {
    members: Vec<Member>,
    hub: Ip,
}

struct Member {
    network: OwnedFd,
    ip: Ip,
}

impl Namespaces {
    /// Moves this thread, and what it starts from now on, out of the machine's network, and makes a namespace for each of `count` machines.
    pub fn make(count: usize) -> Result<Self, NamespaceError> {
        if !rustix::process::geteuid().is_root() {
            return Err(NamespaceError::NotRoot);
        }
        Command::new("ip").arg("-Version").stdout(Stdio::null()).status().map_err(NamespaceError::NoIp)?;
        leave_network().map_err(NamespaceError::Kernel)?;
        let mut made = Self { members: Vec::new(), hub: Ip::start(None)? };
        made.hub.run("link set lo up")?;
        made.hub.run("link add hub type bridge")?;
        made.hub.run(&format!("addr add {NET}.{HUB}/24 dev hub"))?;
        made.hub.run("link set hub up")?;
        for id in 1..=count {
            made.add(id)?;
        }
        Ok(made)
    }

    /// Where daemons `1..=count` listen.
    pub fn addresses(count: usize) -> Vec<String> {
        (1..=count).map(|id| format!("{NET}.{id}:{PORT}")).collect()
    }

    /// Has a process run in the namespace of machine `id`.
    pub fn enter_member(&self, command: &mut Command, id: usize) {
        enter(command, self.members[id - 1].network.as_raw_fd());
    }

    /// Pulls the cable of machine `id`.
    pub fn cut(&self, id: usize) -> Result<(), NamespaceError> {
        self.hub.run(&format!("link set port{id} down"))
    }

    /// Puts it back.
    pub fn mend(&self, id: usize) -> Result<(), NamespaceError> {
        self.hub.run(&format!("link set port{id} up"))
    }

    /// What machine `from` sends to machine `to` is lost from now on. Either may be [`HUB`].
    pub fn silence(&self, from: usize, to: usize) -> Result<(), NamespaceError> {
        let (ip, device) = self.of(from);
        ip.run(&format!("neigh replace {NET}.{to} lladdr {NOBODY} dev {device} nud permanent"))
    }

    /// It arrives again.
    pub fn unsilence(&self, from: usize, to: usize) -> Result<(), NamespaceError> {
        let (ip, device) = self.of(from);
        ip.run(&format!("neigh del {NET}.{to} dev {device}"))
    }

    fn of(&self, id: usize) -> (&Ip, String) {
        if id == HUB {
            (&self.hub, "hub".to_owned())
        } else {
            (&self.members[id - 1].ip, format!("cable{id}"))
        }
    }

    fn add(&mut self, id: usize) -> Result<(), NamespaceError> {
        let opened = thread::spawn(|| {
            leave_network()?;
            Ok(OwnedFd::from(File::open("/proc/thread-self/ns/net")?))
        });
        let opened = opened.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked")));
        let network = opened.map_err(NamespaceError::Kernel)?;
        let (process, number) = (std::process::id(), network.as_raw_fd());
        let ip = Ip::start(Some(number))?;
        self.hub.run(&format!("link add port{id} type veth peer name cable{id}"))?;
        self.hub.run(&format!("link set port{id} master hub"))?;
        self.hub.run(&format!("link set port{id} up"))?;
        self.hub.run(&format!("link set cable{id} netns /proc/{process}/fd/{number}"))?;
        ip.run("link set lo up")?;
        ip.run(&format!("addr add {NET}.{id}/24 dev cable{id}"))?;
        ip.run(&format!("link set cable{id} up"))?;
        self.members.push(Member { network, ip });
        Ok(())
    }
}

/// Runs `ip` in a namespace: a program that is there from the beginning. What a process has open is closed when it starts another one, and a file of a
/// mount that is cut off would not be closed before the cable is back.
struct Ip(Mutex<Told>);

struct Told {
    process: Child,
    answers: BufReader<ChildStdout>,
}

impl Ip {
    fn start(namespace: Option<RawFd>) -> Result<Self, NamespaceError> {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(namespace) = namespace {
            enter(&mut command, namespace);
        }
        let mut process = command.spawn().map_err(NamespaceError::NoIp)?;
        let answers =
            process.stdout.take().ok_or_else(|| NamespaceError::NoIp(io::ErrorKind::BrokenPipe.into()))?;
        Ok(Self(Mutex::new(Told { process, answers: BufReader::new(answers) })))
    }

    fn run(&self, arguments: &str) -> Result<(), NamespaceError> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match told.ask(arguments).map_err(NamespaceError::NoIp)?.trim_end() {
            "ok" => Ok(()),
            said => Err(NamespaceError::Refused(said.to_owned())),
        }
    }
}

impl Told {
    fn ask(&mut self, arguments: &str) -> io::Result<String> {
        let questions = self.process.stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        questions.write_all(format!("{arguments}\n").as_bytes())?;
        let mut answer = String::new();
        self.answers.read_line(&mut answer)?;
        Ok(answer)
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        // It ends when nobody can ask any more.
        let _ = self.process.wait();
    }
}

fn leave_network() -> io::Result<()> {
    // SAFETY: what may not be unshared alone are file descriptors, and this unshares the network and nothing else.
    Ok(unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?)
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
