//! What comes with the results of requests about volumes, for whoever keeps it.

use base::NodeId;
use node::CacheGrant;
use node::file::FileReplyBody;

use super::super::grants::{Connection, Told};
use super::{FileOutput, FileTicket, Files};

impl Files {
    /// The same, for whoever keeps what it is told of volumes and answers revocations.
    #[must_use]
    pub const fn caching(mut self) -> Self {
        self.caches = true;
        self
    }

    /// Nothing is kept from now on.
    pub const fn stop_caching(&mut self) {
        self.caches = false;
    }

    /// The connection with a daemon, if it is there.
    pub fn connection(&self, node: NodeId) -> Option<Connection> {
        self.links.number(node).map(|number| Connection { node, number })
    }

    /// Says what came with a result, if that is kept.
    pub(super) fn tell(
        &mut self,
        ticket: FileTicket,
        from: NodeId,
        (body, grant): (&FileReplyBody, Option<Box<CacheGrant>>),
    ) {
        let at = match body {
            FileReplyBody::Changed { mark, .. } => Some(mark.at.seq),
            FileReplyBody::Answer(_) => None,
            _ => return,
        };
        let is_kept = self.caches && self.jobs.get(&ticket).is_some_and(|job| job.task.is_of_tree());
        if let Some(by) = self.connection(from).filter(|_| is_kept) {
            self.outputs.push_back(FileOutput::Told { ticket, told: Told { by, grant, at } });
        }
    }

    /// What was sent once and refused has changed nothing, and never will.
    pub(super) fn tell_unchanged(&mut self, ticket: FileTicket, from: NodeId) {
        let is_certain =
            self.jobs.get(&ticket).is_some_and(|job| job.task.is_of_tree() && job.was_sent_once());
        if let Some(by) = self.connection(from).filter(|_| self.caches && is_certain) {
            let told = Told { by, grant: None, at: None };
            self.outputs.push_back(FileOutput::Told { ticket, told });
        }
    }
}
