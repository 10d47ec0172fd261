//! One session over one connection, with any number of requests under way.
//!
//! ZooKeeper answers a session's requests in their order, so the answers need no index: the oldest waiting request is
//! the one that is answered next. Requests made while the socket is busy leave together in one write.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;

use super::jute::{self, Lifetime, Reply};
use crate::drive::RequestError;

/// What is asked for; the server may grant less.
const TIMEOUT_MS: i32 = 30_000;

/// Often enough for the shortest timeout that the configuration allows.
const PING_EVERY: Duration = Duration::from_secs(1);

/// An open session. Dropping it closes the connection.
pub(crate) struct Session {
    shared: Rc<Shared>,
    tasks: [AbortHandle; 3],
}

#[derive(Default)]
struct Shared {
    state: RefCell<State>,
    /// There are bytes to write.
    filled: Notify,
}

#[derive(Default)]
struct State {
    unwritten: Vec<u8>,
    /// The last number given to a request.
    xid: i32,
    /// Whose answers are still to come, oldest first.
    waiting: VecDeque<(i32, oneshot::Sender<Vec<u8>>)>,
    /// Why nothing can be asked any more.
    failure: Option<String>,
}

impl Session {
    /// Opens a session with the server on this port. Needs a `LocalSet` around it.
    pub(crate) async fn open(port: u16) -> Result<Self, RequestError> {
        let (reader, writer) = handshake(port)
            .await
            .map_err(|error| RequestError(format!("no session with ZooKeeper: {error}")))?;
        let shared = Rc::new(Shared::default());
        let tasks = [
            tokio::task::spawn_local(watched(Rc::clone(&shared), read(Rc::clone(&shared), reader))),
            tokio::task::spawn_local(watched(Rc::clone(&shared), write(Rc::clone(&shared), writer))),
            tokio::task::spawn_local(keep_alive(Rc::clone(&shared))),
        ]
        .map(|task| task.abort_handle());
        Ok(Self { shared, tasks })
    }

    /// Creates all of these nodes or none.
    pub(crate) async fn create(&self, paths: &[String], lifetime: Lifetime) -> Result<(), RequestError> {
        let packet = self.ask(|xid| jute::create(xid, paths, lifetime)).await?;
        let error = reply(&packet).and_then(|reply| reply.creation_error(paths.len())).map_err(malformed)?;
        if error == 0 { Ok(()) } else { Err(RequestError(format!("ZooKeeper's error {error}"))) }
    }

    /// How many children a node has; none if there is no such node.
    pub(crate) async fn children(&self, path: &str) -> Result<Option<u64>, RequestError> {
        let packet = self.ask(|xid| jute::exists(xid, path)).await?;
        let children = reply(&packet).and_then(Reply::children).map_err(malformed)?;
        children.map_err(|error| RequestError(format!("ZooKeeper's error {error}")))
    }

    /// Sends a request and waits for its answer.
    async fn ask(&self, request: impl FnOnce(i32) -> Vec<u8>) -> Result<Vec<u8>, RequestError> {
        let answer = {
            let mut state = self.shared.state.borrow_mut();
            if let Some(failure) = &state.failure {
                return Err(RequestError(failure.clone()));
            }
            // Numbers below zero have meanings of their own.
            state.xid = state.xid.checked_add(1).unwrap_or(1);
            let xid = state.xid;
            state.unwritten.extend(request(xid));
            let (answered, answer) = oneshot::channel();
            state.waiting.push_back((xid, answered));
            answer
        };
        self.shared.filled.notify_one();
        answer.await.map_err(|_| {
            let failure = self.shared.state.borrow().failure.clone();
            RequestError(failure.unwrap_or_else(|| "the session is closed".to_owned()))
        })
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

async fn handshake(port: u16) -> io::Result<(BufReader<OwnedReadHalf>, OwnedWriteHalf)> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::with_capacity(1 << 16, reader);
    writer.write_all(&jute::connect(TIMEOUT_MS)).await?;
    match jute::granted_timeout_ms(&read_packet(&mut reader).await?) {
        Ok(timeout_ms) if timeout_ms > 0 => Ok((reader, writer)),
        Ok(_) => Err(io::Error::other("refused")),
        Err(error) => Err(io::Error::other(error)),
    }
}

/// Runs one direction of a connection; when it ends, every waiting request fails with the reason.
async fn watched(shared: Rc<Shared>, direction: impl Future<Output = io::Error>) {
    let error = direction.await;
    let mut state = shared.state.borrow_mut();
    state.failure.get_or_insert_with(|| format!("the connection to ZooKeeper failed: {error}"));
    state.waiting.clear();
}

async fn read(shared: Rc<Shared>, mut reader: BufReader<OwnedReadHalf>) -> io::Error {
    loop {
        let packet = match read_packet(&mut reader).await {
            Ok(packet) => packet,
            Err(error) => return error,
        };
        let xid = match jute::take_reply(&mut packet.as_slice()) {
            Ok((xid, _)) => xid,
            Err(error) => return io::Error::other(error),
        };
        if xid == jute::PING {
            continue;
        }
        let oldest = shared.state.borrow_mut().waiting.pop_front();
        match oldest {
            // Who asked may have stopped waiting.
            Some((asked, answered)) if asked == xid => drop(answered.send(packet)),
            _ => return io::Error::other("an answer out of order"),
        }
    }
}

async fn write(shared: Rc<Shared>, mut writer: OwnedWriteHalf) -> io::Error {
    loop {
        shared.filled.notified().await;
        let bytes = std::mem::take(&mut shared.state.borrow_mut().unwritten);
        if let Err(error) = writer.write_all(&bytes).await {
            return error;
        }
    }
}

async fn keep_alive(shared: Rc<Shared>) {
    loop {
        tokio::time::sleep(PING_EVERY).await;
        shared.state.borrow_mut().unwritten.extend(jute::ping());
        shared.filled.notify_one();
    }
}

async fn read_packet(reader: &mut BufReader<OwnedReadHalf>) -> io::Result<Vec<u8>> {
    let length = usize::try_from(reader.read_i32().await?).unwrap_or(usize::MAX);
    if length > jute::PACKET_BYTES_MAX {
        return Err(io::Error::other(jute::Malformed));
    }
    let mut packet = vec![0; length];
    reader.read_exact(&mut packet).await?;
    Ok(packet)
}

fn reply(packet: &[u8]) -> Result<Reply<'_>, jute::Malformed> {
    let mut rest = packet;
    jute::take_reply(&mut rest).map(|(_, reply)| reply)
}

fn malformed(error: jute::Malformed) -> RequestError {
    RequestError(error.to_string())
}
