//! What a client has to show for the content of a volume's file.

use base::{ObjectId, WallTime};
use lease::Algorithm;

use super::AccessError;
use crate::file::{FileBody, FileError, FileReplyBody};
use crate::files::Asker;
use crate::message::is_file_of_volume;
use crate::{Bug, Capability, CapabilityError, Open, SessionId, Shard, Unavailable};

impl<A: Algorithm> Shard<A> {
    /// Refuses a request about the content of a volume's file, unless its client shows what the request takes. A change for which that was
    /// good once may have taken effect while it was: so it is for whoever knows to say, and until when it is good is told here.
    pub(crate) fn check_shown(
        &self,
        now: WallTime,
        (session, object): (SessionId, ObjectId),
        shown: Option<&Capability>,
        body: &FileBody,
    ) -> Result<Option<WallTime>, FileError> {
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
                let is_asked_later = capability.expires <= now || !self.config.breaks(Bug::ShownOnArrival);
                return Ok(is_asked_later.then_some(capability.expires));
            }
            _ => keys.check(capability, &wanted, now)?,
        }
        Ok(None)
    }

    /// Refuses a change if what was shown for it is not good any more, unless it is known here. Whether it did.
    ///
    /// A change that was sent again may still wait, here or where somebody will lead later, when another copy of it is refused; and whoever is refused does it
    /// anew. So it is looked at when it is made, and refused when it is too late by all clocks.
    pub(crate) fn comes_too_late(
        &mut self,
        now: WallTime,
        object: ObjectId,
        asker: Asker,
        body: &FileBody,
    ) -> bool {
        let Some(until) = asker.good_until.filter(|&until| until <= now) else { return false };
        let hosted = self.files.hosted.get(&object);
        let knows = |request| hosted.is_some_and(|hosted| hosted.replica.knows(request));
        if asker.request(body).is_some_and(knows) {
            return false;
        }
        let refusal = if until + self.config.lease.epsilon <= now {
            FileReplyBody::Refused(CapabilityError::Expired { ago: now.since(until) }.into())
        } else {
            FileReplyBody::Unavailable(Unavailable::Overloaded)
        };
        self.refuse_file(now, object, asker, refusal);
        true
    }
}
