//! What becomes of a request before a primary takes it in.

use std::sync::Arc;

use base::{ClientId, ObjectId, WallTime};
use lease::Algorithm;
use namespace::{
    AclId, Ask, Change as TreeChange, Generation, Lock, Op as TreeOp, Query as TreeQuery, Rights, Space, Who,
    XattrName, map_acl,
};
use replication::Request;

use super::{AccessError, manages};
use crate::file::{Change, FileBody, FileError, FileReplyBody, Level, Mark, Names, Query};
use crate::files::{Asker, Caller};
use crate::{
    Attendance, Capability, CapabilityError, Certificate, Export, Exports, OpenMode, Proof, SessionId, Shard,
    ShardConfig, Unavailable, list_of_volumes,
};

/// A request that its client may make, as the replica takes it.
#[derive(Clone, Debug)]
pub(crate) enum Admitted {
    Create,
    /// A change, and whether its client may still do what it asks for, if it has done it.
    Change {
        number: u64,
        settled: u64,
        level: Level,
        under: Option<Generation>,
        change: Change,
        is_allowed: bool,
    },
    Ask(Query, About),
    Attend(Attendance),
    Sync {
        oldest: Mark,
        newest: Mark,
    },
}

impl Admitted {
    /// What daemons ask of each other no rule is about.
    fn of_service(body: FileBody) -> Result<Self, FileError> {
        match body {
            FileBody::Change { number, settled, level, under, change } => {
                Ok(Self::Change { number, settled, level, under, change, is_allowed: true })
            }
            FileBody::Ask(query @ Query::Tree(_)) => Ok(Self::Ask(query, About::Lend)),
            _ => Err(FileError::NotForClients),
        }
    }

    /// What a capability comes to that is renewed.
    fn renewal(capability: &Capability) -> Self {
        let query = TreeQuery { who: Who::root(), ask: Ask::Attributes { inode: capability.source.inode } };
        Self::Ask(Query::Tree(query.into()), About::Open(capability.open.mode))
    }
}

/// What an answer is made into for whoever asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum About {
    /// What it is.
    Itself,
    /// An ACL that names whom the client knows.
    Acl,
    /// What the client shows for an open file.
    Open(OpenMode),
    /// A lend, as a daemon wants to know it.
    Lend,
}

/// What a session may do with a volume.
pub(super) struct Access<'a> {
    pub(super) config: &'a ShardConfig,
    pub(super) export: &'a Export,
    pub(super) certificate: &'a Certificate,
    pub(super) volume: ObjectId,
    pub(super) tree: &'a Names,
}

impl<A: Algorithm> Shard<A> {
    /// What this node, which leads the object, makes of a request.
    pub(crate) fn admit(
        &self,
        now: WallTime,
        object: ObjectId,
        asker: Asker,
        body: FileBody,
    ) -> Result<Admitted, FileReplyBody> {
        if let FileBody::Change { number, settled, level, under, change: change @ Change::Tree(_) } = &body
            && self.has_no_tree(object)
        {
            // What there is none of refuses it, in its own order. But it might be planted by what is under way.
            let hosted = self.files.hosted.get(&object);
            let is_settled = hosted.is_some_and(|hosted| hosted.replica.tail() == hosted.replica.committed());
            let (number, settled, level, under) = (*number, *settled, *level, *under);
            let change = change.clone();
            return if is_settled {
                Ok(Admitted::Change { number, settled, level, under, change, is_allowed: true })
            } else {
                Err(FileReplyBody::Unavailable(Unavailable::Overloaded))
            };
        }
        let is_question = matches!(body, FileBody::Ask(_));
        let refused = |error| {
            if is_question { FileReplyBody::Answer(Err(error)) } else { FileReplyBody::Refused(error) }
        };
        self.try_admit(now, object, asker, body).map_err(refused)
    }

    fn try_admit(
        &self,
        now: WallTime,
        object: ObjectId,
        asker: Asker,
        body: FileBody,
    ) -> Result<Admitted, FileError> {
        let session = match asker.from {
            Caller::Session(session) => session,
            Caller::Node(_) => return Admitted::of_service(body),
        };
        let access = || self.access(object, session);
        Ok(match body {
            FileBody::Create => Admitted::Create,
            FileBody::Sync { oldest, newest } => Admitted::Sync { oldest, newest },
            FileBody::Change { number, settled, level, under, change } => {
                let request = Request { client: asker.client, number, settled };
                let is_known =
                    self.files.hosted.get(&object).is_some_and(|hosted| hosted.replica.knows(request));
                let mut is_allowed = true;
                let change = match change {
                    Change::Tree(op) if is_known => {
                        is_allowed =
                            access().and_then(|access| access.admit_op(Arc::clone(&op), asker.proof)).is_ok();
                        Change::Tree(op)
                    }
                    change if is_known => change,
                    Change::Tree(op) => Change::Tree(access()?.admit_op(op, asker.proof)?),
                    Change::Remove if self.is_kept_from(object, session) => {
                        return Err(AccessError::OperatorsOnly.into());
                    }
                    change => change,
                };
                Admitted::Change { number, settled, level, under, change, is_allowed }
            }
            FileBody::Ask(Query::Tree(query)) => {
                let (mut query, about) = access()?.admit_query(query, asker.proof)?;
                if let Ask::TestLock { lock: Lock { owner, .. }, .. }
                | Ask::Wish { lock: Lock { owner, .. }, .. } = &mut Arc::make_mut(&mut query).ask
                {
                    owner.client = asker.client;
                }
                Admitted::Ask(Query::Tree(query), about)
            }
            FileBody::Ask(query) => Admitted::Ask(query, About::Itself),
            FileBody::Open { who, inode, mode } => {
                let ask = match mode {
                    OpenMode::Look => Ask::Attributes { inode },
                    OpenMode::Read => Ask::Access { inode, rights: Rights::READ },
                    OpenMode::ReadWrite => {
                        Ask::Access { inode, rights: Rights { read: true, write: true, execute: false } }
                    }
                };
                let access = access()?;
                access.check_opening(mode)?;
                let query = Arc::new(TreeQuery { who, ask });
                let (query, _) = access.admit_query(query, asker.proof)?;
                Admitted::Ask(Query::Tree(query), About::Open(mode))
            }
            FileBody::Attend(said) => {
                access()?;
                Admitted::Attend(said)
            }
            FileBody::Renew { capability } => {
                let checked = access()?.check_renewal(now, &capability);
                self.admit_renewal(object, asker.client, &capability, checked)?
            }
        })
    }

    /// Nobody may have been there to renew a capability in time: who has the file open has it open.
    fn admit_renewal(
        &self,
        object: ObjectId,
        client: ClientId,
        capability: &Capability,
        checked: Result<(), FileError>,
    ) -> Result<Admitted, FileError> {
        match checked {
            Err(FileError::Capability(CapabilityError::Expired { ago })) => {
                self.keeps_open(object, (client, capability.source.inode), ago)?;
            }
            checked => checked?,
        }
        Ok(Admitted::renewal(capability))
    }

    /// What a session may do with what is here, if that is a volume. Whose session is over is told nothing.
    pub(super) fn access(&self, object: ObjectId, session: SessionId) -> Result<Access<'_>, FileError> {
        let (Some(hosted), Some(session)) = (self.files.hosted.get(&object), self.sessions.get(session))
        else {
            return Err(AccessError::NotExported.into());
        };
        let (config, certificate) = (&self.config, &*session.certificate);
        let name = hosted.replica.machine().volume_name()?;
        let export = if object == list_of_volumes() {
            Exports::everything()
        } else {
            config.map.exports().find(&certificate.role, &name).map_err(AccessError::from)?
        };
        let tree = hosted.replica.machine().tree();
        Ok(Access { config, export, certificate, volume: object, tree })
    }

    /// Whether all of a volume is exported to a session.
    pub(crate) fn is_free(&self, object: ObjectId, session: SessionId) -> bool {
        self.access(object, session).is_ok_and(|access| access.is_free())
    }

    /// Whether the users of a session's client have the same numbers in a volume.
    pub(crate) fn has_same_ids(&self, object: ObjectId, session: SessionId) -> bool {
        self.access(object, session).is_ok_and(|access| access.has_same_ids())
    }

    fn has_no_tree(&self, object: ObjectId) -> bool {
        let hosted = self.files.hosted.get(&object);
        hosted.is_none_or(|hosted| hosted.replica.machine().volume_name().is_err())
    }

    /// Whether this is a volume, and not the client's to take away.
    fn is_kept_from(&self, object: ObjectId, session: SessionId) -> bool {
        let is_volume = self
            .files
            .hosted
            .get(&object)
            .is_some_and(|hosted| hosted.replica.machine().volume_name().is_ok());
        let role = self.sessions.get(session).map(|session| &session.certificate.role);
        is_volume && role.is_none_or(|role| !manages(self.config.map.exports(), role))
    }
}

impl Access<'_> {
    /// What a client's user asks to have changed, as the volume's.
    fn admit_op(&self, mut op: Arc<TreeOp>, proof: Option<Proof>) -> Result<Arc<TreeOp>, FileError> {
        // What the volume has room for was asked about before.
        if !matches!(op.change, TreeChange::Limit { .. }) {
            self.export.allow_change(&op.change)?;
        }
        let changed = Arc::make_mut(&mut op);
        changed.who = self.who(&changed.who);
        self.confine_change(&mut changed.change, proof)?;
        match &mut changed.change {
            TreeChange::SetAttributes { set, .. } => {
                set.uid = set.uid.map(|uid| self.stored(AclId::User(uid))).transpose()?;
                set.gid = set.gid.map(|gid| self.stored(AclId::Group(gid))).transpose()?;
            }
            TreeChange::SetXattr { name, value, .. } if is_acl(name) => {
                *value = map_acl(value, |id| self.stored(id))?;
            }
            _ => {}
        }
        Ok(op)
    }

    /// What a client's user asks, as the volume's.
    fn admit_query(
        &self,
        mut query: Arc<TreeQuery>,
        proof: Option<Proof>,
    ) -> Result<(Arc<TreeQuery>, About), FileError> {
        self.export.allow_ask(&query.ask)?;
        let about = match &query.ask {
            Ask::GetXattr { name, .. } if is_acl(name) => About::Acl,
            _ => About::Itself,
        };
        let asked = Arc::make_mut(&mut query);
        asked.who = self.who(&asked.who);
        self.confine_ask(&mut asked.ask, proof)?;
        Ok((query, about))
    }

    /// What has to be true for a capability to be renewed. Who may do what to the file is asked when it is opened, and not again; the
    /// rules of the cluster are asked again. That it expired long ago is the last reason to refuse it.
    fn check_renewal(&self, now: WallTime, capability: &Capability) -> Result<(), FileError> {
        let keys = self.config.capability_keys.as_ref().ok_or(AccessError::NoKeys)?;
        self.check_opening(capability.open.mode)?;
        Ok(keys.check_renewable(capability, (self.volume, self.certificate.id), now)?)
    }

    /// Refuses what no file can be opened for.
    pub(super) fn check_opening(&self, mode: OpenMode) -> Result<(), FileError> {
        if self.config.capability_keys.is_none() {
            return Err(AccessError::NoKeys.into());
        }
        match mode {
            OpenMode::Look | OpenMode::Read => Ok(()),
            OpenMode::ReadWrite => Ok(self.export.allow_writing()?),
        }
    }

    fn who(&self, said: &Who) -> Who {
        let who = self.export.who(said.uid(), said.gid(), said.groups());
        who.expect("who came has no more groups than anybody may have")
    }

    fn stored(&self, id: AclId) -> Result<u32, AccessError> {
        let (said, stored) = match id {
            AclId::User(uid) => (uid, self.export.stored_uid(uid)),
            AclId::Group(gid) => (gid, self.export.stored_gid(gid)),
        };
        stored.ok_or(AccessError::Nobody { id: said })
    }
}

fn is_acl(name: &XattrName) -> bool {
    matches!(name.space(), Space::AclAccess | Space::AclDefault)
}
