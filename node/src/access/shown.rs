//! What a client has to show for the content of a volume's file.

use base::{ObjectId, WallTime};
use lease::Algorithm;

use super::AccessError;
use crate::file::{FileBody, FileError};
use crate::message::is_file_of_volume;
use crate::{Capability, Open, SessionId, Shard};

impl<A: Algorithm> Shard<A> {
    /// Refuses a request about the content of a volume's file, unless its client shows what the request takes. A change for which that was
    /// good once may have taken effect while it was: so it is for whoever knows to say, and why it is refused otherwise is told here.
    pub(crate) fn check_shown(
        &self,
        now: WallTime,
        (session, object): (SessionId, ObjectId),
        shown: Option<&Capability>,
        body: &FileBody,
    ) -> Result<Option<FileError>, FileError> {
        let (content, mode) = match body.locks(object) {
            Some(locked) => locked,
            None if !is_file_of_volume(object) => return Ok(None),
            None => (object, body.takes().ok_or(AccessError::FileOfVolume)?),
        };
        let capability = shown.ok_or(AccessError::NotOpen)?;
        let keys = self.config.capability_keys.as_ref().ok_or(AccessError::NoKeys)?;
        let Some(session) = self.sessions.get(session) else { return Err(AccessError::NotExported.into()) };
        let wanted = Open { file: content, mode, certificate: session.certificate.id };
        match body {
            // What was written while it was good is made durable whenever that is asked.
            FileBody::Sync { .. } => keys.check_given(capability, &wanted)?,
            FileBody::Change { .. } => {
                keys.check_given(capability, &wanted)?;
                return Ok(keys.check(capability, &wanted, now).err().map(FileError::from));
            }
            _ => keys.check(capability, &wanted, now)?,
        }
        Ok(None)
    }
}
