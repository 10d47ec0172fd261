//! What a client has to show for the content of a volume's file.

use base::{ObjectId, WallTime};
use lease::Algorithm;

use super::AccessError;
use crate::file::{FileBody, FileError, Query, Shown};
use crate::message::is_file_of_volume;
use crate::{Open, OpenMode, SessionId, Shard, file_object};

impl<A: Algorithm> Shard<A> {
    /// Refuses a request about the content of a volume's file, unless its client shows what the request takes.
    pub(crate) fn check_shown(
        &self,
        now: WallTime,
        (session, object): (SessionId, ObjectId),
        shown: Option<&Shown>,
        body: &FileBody,
    ) -> Result<(), FileError> {
        let is_content = is_file_of_volume(object);
        let Some(shown) = shown.filter(|_| is_content) else {
            return if is_content { Err(AccessError::FileOfVolume.into()) } else { Ok(()) };
        };
        let of = shown.of();
        if file_object(of.volume, of.inode) != object {
            return Err(AccessError::FileOfVolume.into());
        }
        let mode = match body {
            FileBody::Change { .. } => OpenMode::ReadWrite,
            FileBody::Ask(Query::Read { .. }) => OpenMode::Read,
            FileBody::Ask(Query::Stat) | FileBody::Sync { .. } => return Ok(()),
            FileBody::Create
            | FileBody::Ask(Query::Tree(_))
            | FileBody::Open { .. }
            | FileBody::Renew { .. } => return Err(AccessError::FileOfVolume.into()),
        };
        let Shown::Open(capability) = shown else { return Err(AccessError::NotOpen.into()) };
        let keys = self.config.capability_keys.as_ref().ok_or(AccessError::NoKeys)?;
        let Some(session) = self.sessions.get(session) else { return Err(AccessError::NotExported.into()) };
        let wanted = Open { file: object, mode, certificate: session.certificate.id };
        Ok(keys.check(capability, &wanted, now)?)
    }
}
