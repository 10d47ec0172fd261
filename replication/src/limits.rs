//! How often each limit of a [`Config`](crate::Config) was reached, for whoever looks after a cluster or tests one. It decides
//! nothing, and is not kept.

/// A limit of [`Config`](crate::Config).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Limit {
    /// `uncommitted_max`: a change was refused.
    Uncommitted,
    /// `uncommitted_bytes_max`: a change was refused.
    UncommittedBytes,
    /// `uncommitted_max`: a backup is sent no more before it answers.
    Window,
    /// `uncommitted_bytes_max`: a backup is sent no more before it answers.
    WindowBytes,
    /// `clients_max`: the change of a new client was refused.
    Clients,
    /// `unsettled_max`: a change was refused.
    Unsettled,
    /// `outcomes_max`: a change was refused of a client that has its share.
    Outcomes,
    /// `expired_max`: a client was not declared over.
    Expired,
    /// `waiting_max`: a question, a sync or a change of members was refused.
    Waiting,
    /// `batch_max`: a message has some of the entries that are lacking.
    Batch,
    /// `batch_bytes_max`: the same.
    BatchBytes,
    /// `kept_max`: an entry was forgotten.
    Kept,
    /// `kept_bytes_max`: the same.
    KeptBytes,
    /// `kept_lending_max`: an entry was forgotten that somebody who takes over a state will need.
    Lending,
    /// `kept_lending_bytes_max`: the same.
    LendingBytes,
    /// `parts_max`: a message has some of the parts that are lacking.
    Parts,
    /// `versions_max`: the same.
    Versions,
    /// `page_bytes_max`: the same, or the end of a state goes alone.
    PageBytes,
    /// Not of `Config`: the driver had the log forgotten ([`forget_log`](crate::Replica::forget_log)).
    Logs,
}

/// How often each limit was reached.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Reached([u64; Limit::ALL.len()]);

impl Limit {
    /// All of them, in order.
    pub const ALL: [Self; 19] = [
        Self::Uncommitted,
        Self::UncommittedBytes,
        Self::Window,
        Self::WindowBytes,
        Self::Clients,
        Self::Unsettled,
        Self::Outcomes,
        Self::Expired,
        Self::Waiting,
        Self::Batch,
        Self::BatchBytes,
        Self::Kept,
        Self::KeptBytes,
        Self::Lending,
        Self::LendingBytes,
        Self::Parts,
        Self::Versions,
        Self::PageBytes,
        Self::Logs,
    ];

    /// For people.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Uncommitted => "entries that are not committed",
            Self::UncommittedBytes => "bytes that are not committed",
            Self::Window => "entries under way",
            Self::WindowBytes => "bytes under way",
            Self::Clients => "clients",
            Self::Unsettled => "changes that are not settled",
            Self::Outcomes => "outcomes",
            Self::Expired => "clients that are over",
            Self::Waiting => "questions that wait",
            Self::Batch => "entries of a message",
            Self::BatchBytes => "bytes of a message with entries",
            Self::Kept => "entries kept",
            Self::KeptBytes => "bytes kept",
            Self::Lending => "entries lent",
            Self::LendingBytes => "bytes lent",
            Self::Parts => "parts of a message",
            Self::Versions => "versions of a message",
            Self::PageBytes => "bytes of a message with parts",
            Self::Logs => "bytes of all logs",
        }
    }
}

impl Reached {
    /// How often this one was.
    pub const fn of(&self, limit: Limit) -> u64 {
        self.0[limit as usize]
    }

    /// All that were reached, and how often.
    pub fn iter(&self) -> impl Iterator<Item = (Limit, u64)> {
        Limit::ALL.into_iter().zip(self.0).filter(|&(_, times)| times > 0)
    }

    /// Together with others.
    pub fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(times, more)| *times += more);
    }

    pub(crate) const fn note(&mut self, limit: Limit) {
        self.0[limit as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_has_its_own_place() {
        assert!(Limit::ALL.iter().enumerate().all(|(place, &limit)| limit as usize == place));
        let mut reached = Reached::default();
        reached.note(Limit::Logs);
        reached.add(&reached.clone());
        assert_eq!(reached.iter().collect::<Vec<_>>(), [(Limit::Logs, 2)]);
        assert_eq!([reached.of(Limit::Logs), reached.of(Limit::Kept)], [2, 0]);
    }
}
