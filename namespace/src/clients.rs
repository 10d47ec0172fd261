//! Clients on record, and their end.

use std::ops::Bound;

use base::ClientId;

use crate::draft::Draft;
use crate::limits::{CLIENTS_MAX, EXPIRE_MAX};
use crate::{ClientState, Done, Fate, Granted, InodeId, Key, NameError, Part, Table};

impl<T: Table> Draft<'_, T> {
    fn client(&self, client: ClientId) -> Option<ClientState> {
        match self.get(&Key::Client(client)) {
            Some(Part::Client(state)) => Some(state),
            _ => None,
        }
    }

    /// Refuses a client that has ended.
    pub(crate) fn check_client(&self, client: ClientId) -> Result<(), NameError> {
        match self.client(client) {
            None | Some(ClientState::Alive | ClientState::Caching) => Ok(()),
            Some(ClientState::Ending | ClientState::Ended) => Err(NameError::Expired { client }),
        }
    }

    /// Puts a client on record that may hold something. Says whether it is there, and has not ended.
    pub(crate) fn record(&mut self, client: ClientId) -> Result<bool, NameError> {
        match self.client(client) {
            Some(ClientState::Caching) => {
                self.put(Key::Client(client), Part::Client(ClientState::Alive));
                Ok(true)
            }
            Some(state) => Ok(state == ClientState::Alive),
            None => self.add_client(client, ClientState::Alive).map(|()| true),
        }
    }

    fn add_client(&mut self, client: ClientId, state: ClientState) -> Result<(), NameError> {
        let mut volume = self.volume();
        if volume.clients >= CLIENTS_MAX {
            return Err(NameError::TooManyClients);
        }
        volume.clients += 1;
        self.put_volume(volume);
        self.put(Key::Client(client), Part::Client(state));
        Ok(())
    }

    /// A client is there.
    pub(crate) fn welcome(&mut self, client: ClientId, opens: bool) -> Result<Done, NameError> {
        let is_there = match self.client(client) {
            None if !opens => self.add_client(client, ClientState::Caching).map(|()| true)?,
            Some(ClientState::Caching) if !opens => true,
            _ => self.record(client)?,
        };
        if is_there { Ok(Done::Welcomed) } else { Err(NameError::Expired { client }) }
    }

    /// A client has ended: takes a bounded part of what it has away.
    pub(crate) fn expire(&mut self, client: ClientId) -> Result<Done, NameError> {
        let (mut granted, mut dooms) = (Granted::NONE, false);
        match self.client(client) {
            Some(ClientState::Ended) => {
                return Ok(Done::Expired { more: false, dooms, lends: false, granted });
            }
            Some(_) => {}
            None => self.add_client(client, ClientState::Ending)?,
        }
        let (held, locked) = (self.held_by(client), self.locked_by(client));
        let more = held.len() + locked.len() > EXPIRE_MAX;
        let holds = held.len().min(EXPIRE_MAX);
        for inode in &held[..holds] {
            dooms |= self.release(*inode, client)? == Fate::Doomed;
        }
        for inode in locked.iter().take(EXPIRE_MAX - holds) {
            // Whatever had its last hold just now is gone with all of its locks.
            if self.has(&Key::Locker(client, *inode)) {
                self.unlock_client(*inode, client, &mut granted)?;
            }
        }
        let lends = !self.lent_to(client, 1).is_empty();
        let state = if more || lends { ClientState::Ending } else { ClientState::Ended };
        self.put(Key::Client(client), Part::Client(state));
        Ok(Done::Expired { more, dooms, lends, granted })
    }

    /// Some of the files that are lent to a client.
    pub(crate) fn lent_to(&self, client: ClientId, inodes_max: usize) -> Vec<InodeId> {
        let page = self.page(Bound::Included(&Key::Lender(client, InodeId::FIRST)), inodes_max);
        let own = page.into_iter().map_while(|(key, _)| match key {
            Key::Lender(of, inode) if of == client => Some(inode),
            _ => None,
        });
        own.collect()
    }

    /// A few orphans that a client holds, and perhaps one more than an entry takes.
    fn held_by(&self, client: ClientId) -> Vec<InodeId> {
        let page = self.page(Bound::Included(&Key::Held(client, InodeId::FIRST)), EXPIRE_MAX + 1);
        let own = page.into_iter().map_while(|(key, _)| match key {
            Key::Held(of, inode) if of == client => Some(inode),
            _ => None,
        });
        own.collect()
    }

    /// A few files that a client has locks of, or waits for.
    fn locked_by(&self, client: ClientId) -> Vec<InodeId> {
        let page = self.page(Bound::Included(&Key::Locker(client, InodeId::FIRST)), EXPIRE_MAX + 1);
        let own = page.into_iter().map_while(|(key, _)| match key {
            Key::Locker(of, inode) if of == client => Some(inode),
            _ => None,
        });
        own.collect()
    }

    /// Nothing is left of a client but its record, and that goes, too.
    pub(crate) fn forget(&mut self, client: ClientId) -> Result<Done, NameError> {
        match self.client(client) {
            None => return Err(NameError::NoClient { client }),
            Some(ClientState::Alive | ClientState::Ending) => return Err(NameError::NotExpired { client }),
            Some(ClientState::Caching | ClientState::Ended) => {}
        }
        self.remove(Key::Client(client));
        let mut volume = self.volume();
        volume.clients = volume.clients.saturating_sub(1);
        self.put_volume(volume);
        Ok(Done::Forgotten)
    }
}
