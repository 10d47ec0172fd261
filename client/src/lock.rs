//! Locks as programs see them.

use std::sync::Arc;
use std::time::Duration;

use base::NodeId;
use node::{Token, Unavailable, lock_cell};
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use crate::clock;
use crate::core::{Obstacle, Ticket};
use crate::driver::{Client, Outcome, Shared};

/// The longest name of a lock.
pub const NAME_BYTES_MAX: usize = 1_024;

/// A lock that this program holds. Dropping it releases it.
#[derive(Debug)]
pub struct Lock {
    shared: Arc<Shared>,
    ticket: Ticket,
    token: Token,
    standing: watch::Receiver<Standing>,
}

/// How a lock stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// Its session is confirmed.
    Safe,
    /// Its session was not confirmed for a while.
    AtRisk,
    /// It may be somebody else's.
    Lost,
    /// It was given back, and a daemon was told.
    GivenBack,
}

/// Why there is no lock.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LockError {
    /// Empty or too long.
    #[error("a lock's name has 1 to {NAME_BYTES_MAX} bytes, not {0}")]
    Name(usize),
    /// No member could answer for it.
    #[error("no daemon can answer for this lock: {0}; `fleasefs status` shows what is wrong")]
    Unavailable(&'static str),
    /// The client was closed.
    #[error("the client is closed")]
    Closed,
}

impl Client {
    /// Waits until the lock `name` is ours.
    pub async fn lock(&self, name: &str) -> Result<Lock, LockError> {
        match self.acquire(name, true).await? {
            Some(lock) => Ok(lock),
            None => Err(LockError::Closed),
        }
    }

    /// The lock `name`, unless somebody else has it.
    pub async fn try_lock(&self, name: &str) -> Result<Option<Lock>, LockError> {
        self.acquire(name, false).await
    }

    /// The lock `name`, unless somebody else still has it after `wait`.
    pub async fn lock_within(&self, name: &str, wait: Duration) -> Result<Option<Lock>, LockError> {
        let (asked, outcome) = self.ask(name, true)?;
        match timeout(wait, outcome).await {
            Ok(outcome) => settle(asked, outcome.unwrap_or(Outcome::Closed)),
            Err(_) => match self.shared.obstacle(asked.ticket) {
                Obstacle::Holder => Ok(None),
                Obstacle::Unavailable(why) => Err(LockError::Unavailable(said(Some(why)))),
                Obstacle::Unknown => Err(LockError::Unavailable(said(None))),
            },
        }
    }

    async fn acquire(&self, name: &str, waits: bool) -> Result<Option<Lock>, LockError> {
        let (asked, outcome) = self.ask(name, waits)?;
        settle(asked, outcome.await.unwrap_or(Outcome::Closed))
    }

    fn ask(&self, name: &str, waits: bool) -> Result<(Asked, oneshot::Receiver<Outcome>), LockError> {
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) {
            return Err(LockError::Name(name.len()));
        }
        Ok(self.shared.acquire(lock_cell(name), waits))
    }
}

fn settle(mut asked: Asked, outcome: Outcome) -> Result<Option<Lock>, LockError> {
    match outcome {
        Outcome::Granted { token, standing } => {
            let (shared, ticket) = (asked.shared.clone(), asked.ticket);
            asked.is_settled = true;
            Ok(Some(Lock { shared, ticket, token, standing }))
        }
        Outcome::Busy => Ok(None),
        Outcome::Unavailable(why) => Err(LockError::Unavailable(said(why))),
        Outcome::Closed => Err(LockError::Closed),
    }
}

impl Lock {
    /// The fencing token: higher than that of every grant of this lock before.
    pub const fn token(&self) -> Token {
        self.token
    }

    /// Whether the lock is ours at this instant.
    pub fn is_held(&self) -> bool {
        self.shared.token(clock::now(), self.ticket).is_some()
    }

    /// The daemon that keeps the lock for us; none while it is attached to another.
    pub fn kept_by(&self) -> Option<NodeId> {
        self.shared.answering(self.ticket)
    }

    /// Returns once the lock is at risk: unless its session is confirmed soon, it is lost.
    pub async fn at_risk(&self) {
        let mut standing = self.standing.clone();
        // Without a driver nothing is confirmed any longer.
        let _ = standing.wait_for(|standing| *standing != Standing::Safe).await;
    }

    /// Returns once the lock is no longer ours, although we did not release it.
    pub async fn lost(&self) {
        let mut standing = self.standing.clone();
        let _ = standing.wait_for(|standing| !matches!(standing, Standing::Safe | Standing::AtRisk)).await;
    }

    /// Gives the lock back, and waits until that was sent.
    pub async fn release(self) {
        let mut standing = self.standing.clone();
        drop(self);
        let _ = standing.wait_for(|standing| matches!(standing, Standing::Lost | Standing::GivenBack)).await;
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        self.shared.give_back(self.ticket);
    }
}

/// A ticket that somebody waits for: given back if that ends.
pub(crate) struct Asked {
    pub(crate) shared: Arc<Shared>,
    pub(crate) ticket: Ticket,
    pub(crate) is_settled: bool,
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.is_settled {
            self.shared.give_back(self.ticket);
        }
    }
}

pub(crate) const fn said(why: Option<Unavailable>) -> &'static str {
    match why {
        None => "none of its members answered for it",
        Some(Unavailable::NotMember) => "the daemons asked do not keep it",
        Some(Unavailable::Quarantined) => "its members started recently and may not vote yet",
        Some(Unavailable::Clock) => "its members do not trust their clocks",
        Some(Unavailable::NoMajority) => "a majority of its members cannot be reached",
        Some(Unavailable::Contended) => "too many want it at once",
        Some(Unavailable::Stopping) => "its members are stopping",
        Some(Unavailable::Drained) => "its members are drained; `fleasefs undrain` has them lead again",
        Some(Unavailable::Full) => "its members keep as many locks as their limits allow",
        Some(Unavailable::Overloaded) => "its members have too much to do",
        Some(Unavailable::WrongCell) => "its members take the request for a mistake",
    }
}
