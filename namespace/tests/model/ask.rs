//! Operations and questions, each to where it belongs; clients.

use std::sync::Arc;

use base::ClientId;
use namespace::{
    Answer, Ask, Born, Change, ClientState, Done, Fate, InodeId, Listed, Name, NameError, Op, Page, Query,
    Rights, SetAttributes, Wish, limits,
};

use crate::locks::{is_in_the_way, whole};
use crate::state::{Model, Node};

impl Model {
    /// Takes in an operation. What is refused changes nothing.
    pub(crate) fn apply(&mut self, at: Born, op: &Op) -> Result<Done, NameError> {
        let before = self.clone();
        let done = self.try_apply(at, op);
        if done.is_err() {
            *self = before;
        }
        done
    }

    fn try_apply(&mut self, at: Born, op: &Op) -> Result<Done, NameError> {
        match &op.change {
            Change::GiveBack { .. } => self.give_back(op),
            &Change::Hold { inode, client } => self.hold(inode, client),
            &Change::Release { inode, client } => self.release(inode, client),
            &Change::Deleted { inode } => {
                self.doomed.remove(&inode).map(|_| Done::Deleted).ok_or(NameError::NotDoomed { inode })
            }
            Change::Settle => Ok(self.settle_all()),
            &Change::Welcome { client, opens } => self.welcome(client, opens),
            &Change::Expire { client } => self.expire(client),
            &Change::Forget { client } => self.forget(client),
            &Change::Limit { inodes_max, bytes_max } => {
                (self.inodes_max, self.bytes_max) = (inodes_max, bytes_max);
                Ok(Done::Limited)
            }
            _ => self.apply_of_client(at, op),
        }
    }

    /// What a client asks for on its own behalf, unless it has ended.
    fn apply_of_client(&mut self, at: Born, op: &Op) -> Result<Done, NameError> {
        let client = op.client;
        if self.has_ended(client) {
            return Err(NameError::Expired { client });
        }
        self.knows_dirs(op)?;
        match op.change {
            Change::SetAttributes { inode, set: SetAttributes { mode, uid, gid, .. } }
                if mode.is_some() || uid.is_some() || gid.is_some() =>
            {
                self.knows_mode(inode, op)?;
            }
            Change::SetXattr { inode, .. } | Change::RemoveXattr { inode, .. } => {
                self.knows_mode(inode, op)?
            }
            _ => {}
        }
        match &op.change {
            Change::Create { .. } => self.create(at, op),
            Change::Enter { .. } => self.enter(op),
            Change::Link { .. } => self.link(op),
            Change::Unlink { site, holders, removed } => self.unlink(op, site, holders, *removed),
            Change::RemoveDirectory { site, holders } => self.remove(op, site, holders, true),
            Change::Rename { .. } => self.rename(op),
            Change::SetAttributes { .. } => self.set_attributes(op),
            Change::SetXattr { .. } => self.set_xattr(op),
            Change::RemoveXattr { .. } => self.remove_xattr(op),
            &Change::Lend { inode, to } => self.lend(at, op, (inode, to)),
            Change::Return { .. } => self.return_lend(op),
            Change::Lock { .. } => self.lock(at, op),
            Change::Unlock { .. } => self.unlock(op),
            &Change::Cancel { inode, ticket } => self.cancel(op, inode, ticket),
            _ => unreachable!("the service asks for this"),
        }
    }

    fn hold(&mut self, inode: InodeId, client: ClientId) -> Result<Done, NameError> {
        self.node(inode)?;
        if self.links(inode) > 0 {
            return Err(NameError::NotOrphan { inode });
        }
        self.record(client)?;
        self.node_mut(inode).holders.insert(client);
        Ok(Done::Held)
    }

    fn release(&mut self, inode: InodeId, client: ClientId) -> Result<Done, NameError> {
        self.node(inode)?;
        if !self.node_mut(inode).holders.remove(&client) {
            return Err(NameError::NotHeld { inode, client });
        }
        Ok(Done::Released { fate: self.fate(inode) })
    }

    /// Takes what a client holds away, and then its locks, but only so much at a time.
    fn expire(&mut self, client: ClientId) -> Result<Done, NameError> {
        let has_locks = |node: &Node| node.all_locks().is_some_and(|locks| locks.concern(client));
        let held = self.held_by(client);
        let locked = self.nodes.iter().filter(|(_, node)| has_locks(node)).map(|(inode, _)| *inode);
        let mut left: Vec<(InodeId, bool)> = held.into_iter().map(|inode| (inode, true)).collect();
        left.extend(locked.map(|inode| (inode, false)));
        let more = left.len() > limits::EXPIRE_MAX;
        left.truncate(limits::EXPIRE_MAX);
        let (mut dooms, mut freed) = (false, Vec::new());
        for (inode, is_held) in left.into_iter() {
            // With its last holder an inode goes, and its locks.
            let Some(node) = self.nodes.get_mut(&inode) else { continue };
            if is_held {
                node.holders.remove(&client);
                dooms |= self.fate(inode) == Fate::Doomed;
            } else {
                node.drop_locks(client);
                freed.push(inode);
            }
        }
        let lends = self.nodes.values().any(|node| node.is_lent_to(client));
        let state = if more || lends { ClientState::Ending } else { ClientState::Ended };
        self.clients.insert(client, state);
        Ok(Done::Expired { more, dooms, lends, granted: self.settle(&freed) })
    }

    fn forget(&mut self, client: ClientId) -> Result<Done, NameError> {
        match self.clients.get(&client) {
            None => Err(NameError::NoClient { client }),
            Some(ClientState::Alive | ClientState::Ending) => Err(NameError::NotExpired { client }),
            Some(ClientState::Caching | ClientState::Ended) => {
                self.clients.remove(&client);
                Ok(Done::Forgotten)
            }
        }
    }

    fn welcome(&mut self, client: ClientId, opens: bool) -> Result<Done, NameError> {
        match self.clients.get(&client) {
            None | Some(ClientState::Caching) if !opens => {
                self.clients.insert(client, ClientState::Caching);
            }
            _ => self.record(client)?,
        }
        Ok(Done::Welcomed)
    }

    pub(crate) fn has_ended(&self, client: ClientId) -> bool {
        matches!(self.clients.get(&client), Some(ClientState::Ending | ClientState::Ended))
    }

    fn held_by(&self, client: ClientId) -> Vec<InodeId> {
        let held = self.nodes.iter().filter(|(_, node)| node.holders.contains(&client));
        held.map(|(inode, _)| *inode).collect()
    }

    /// Answers a question. To which lock is in the way there may be other right answers.
    pub(crate) fn answer(&self, Query { who, ask }: &Query) -> Result<Answer, NameError> {
        match ask {
            Ask::Lookup { dir, name } => {
                let directory = self.directory(*dir)?;
                directory.need(who, Rights::EXECUTE, *dir)?;
                let found = directory.children.get(name).ok_or(NameError::NoEntry { dir: *dir })?;
                self.attributes(*found).map(Answer::Attributes)
            }
            Ask::Attributes { inode } => self.attributes(*inode).map(Answer::Attributes),
            Ask::List { dir, after, entries_max, with_attributes } => {
                self.list(*dir, after.as_ref(), *entries_max, *with_attributes)
            }
            Ask::Readlink { inode } => {
                let target = self.node(*inode)?.target.clone();
                target.map(Answer::Target).ok_or(NameError::WrongKind { inode: *inode })
            }
            Ask::GetXattr { inode, name } => self.get_xattr(*inode, name, who).map(Answer::Value),
            Ask::ListXattrs { inode } => self.list_xattrs(*inode, who).map(Answer::Names),
            Ask::Access { inode, rights } => {
                self.node(*inode)?.need(who, *rights, *inode)?;
                self.attributes(*inode).map(Answer::Attributes)
            }
            Ask::Statfs => Ok(Answer::Volume(self.volume())),
            Ask::TestLock { inode, lock } => {
                let lock = whole(*lock)?;
                let node = self.node(*inode)?;
                let found = node.held().into_iter().find(|held| is_in_the_way(held, &lock));
                Ok(Answer::InTheWay(found))
            }
            Ask::Wish { inode, lock, ticket } => {
                let (lock, node) = (whole(*lock)?, self.node(*inode)?);
                if self.has_ended(lock.owner.client) {
                    return Err(NameError::Expired { client: lock.owner.client });
                }
                let waits =
                    node.queue.iter().any(|wish| wish.ticket == *ticket && wish.lock.owner == lock.owner);
                let wish = if waits {
                    Wish::Waits
                } else if node.has(&lock) {
                    Wish::Had
                } else {
                    Wish::Gone
                };
                Ok(Answer::Wish(wish))
            }
            Ask::Locks { inode } => Ok(Answer::Locks(self.node(*inode)?.all_locks().map(Arc::new))),
            Ask::Orphans { after } => Ok(Answer::Inodes(behind(self.orphans(), *after))),
            Ask::Doomed { after } => {
                let all = self.doomed.iter().filter(|(inode, _)| after.is_none_or(|after| **inode > after));
                Ok(Answer::Doomed(all.map(|(inode, (replicas, _))| (*inode, replicas.clone())).collect()))
            }
            Ask::Clients { after } => {
                let all =
                    self.clients.iter().filter(|(client, _)| after.is_none_or(|after| **client > after));
                Ok(Answer::Clients(all.map(|(client, state)| (*client, *state)).collect()))
            }
            Ask::Holds { client, after } => Ok(Answer::Inodes(behind(self.held_by(*client), *after))),
        }
    }

    fn list(
        &self,
        dir: InodeId,
        after: Option<&Name>,
        entries_max: u32,
        with_attributes: bool,
    ) -> Result<Answer, NameError> {
        let listed = |(name, inode): (&Name, &InodeId)| -> Result<Listed, NameError> {
            let attributes = with_attributes.then(|| self.attributes(*inode)).transpose()?;
            Ok(Listed { name: name.clone(), inode: *inode, kind: self.nodes[inode].kind, attributes })
        };
        let all = self.directory(dir)?.children.iter();
        let all = all.filter(|(name, _)| after.is_none_or(|after| *name > after));
        let mut entries: Vec<Listed> = all.map(listed).collect::<Result<_, _>>()?;
        let is_last = entries.len() <= entries_max as usize;
        entries.truncate(entries_max as usize);
        Ok(Answer::Page(Page { entries, is_last }))
    }
}

fn behind(all: Vec<InodeId>, after: Option<InodeId>) -> Vec<InodeId> {
    all.into_iter().filter(|&inode| after.is_none_or(|after| inode > after)).collect()
}
