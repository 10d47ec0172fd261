//! What a client is told of a volume: numbers of users as it knows them, and what it shows for an open file.

use std::convert::Infallible;

use base::{ObjectId, WallTime};
use bytes::Bytes;
use lease::Algorithm;
use namespace::{
    AclId, Answer as TreeAnswer, Attributes, Done as TreeDone, InodeId, Key, Kind, NameError, Part, map_acl,
};

use super::AccessError;
use super::admit::{About, Access};
use crate::file::{Answer, Done, FileError, FileReplyBody};
use crate::files::{Asker, Caller};
use crate::{CAPABILITY_LASTS, Capability, OpenMode, Proof, Shard, Source};

impl<A: Algorithm> Shard<A> {
    /// A reply about what is led here, as it is told to a session, and the proofs that go with it.
    ///
    /// If the volume was taken away since, it is told so: nothing was left in it, whatever became of the request.
    pub(crate) fn show(
        &self,
        now: WallTime,
        object: ObjectId,
        (asker, about): (Asker, About),
        body: FileReplyBody,
    ) -> (FileReplyBody, Vec<Proof>) {
        let to = asker.from;
        let body = match body {
            FileReplyBody::Changed { outcome: Ok(Done::Tree(_)), .. }
            | FileReplyBody::Answer(Ok(Answer::Tree(_))) => body,
            FileReplyBody::Answer(Err(error)) => {
                return (refused(about, self.show_refusal(object, to, error)), Vec::new());
            }
            FileReplyBody::Changed { outcome: Err(error), mark, level, opened } => {
                let outcome = Err(self.show_refusal(object, to, error));
                return (FileReplyBody::Changed { outcome, mark, level, opened }, Vec::new());
            }
            body => return (body, Vec::new()),
        };
        let Caller::Session(session) = to else { return (body, Vec::new()) };
        match (self.access(object, session), body) {
            (Ok(access), body) => {
                let body = self.show_in(now, &access, (asker.is_shown, about), body);
                let proofs = if asker.is_shown { access.prove(now, &body) } else { Vec::new() };
                (body, proofs)
            }
            // Without rules there is nothing to be made of it, and it may be the last that is said of a volume.
            (Err(_), body) if self.config.map.exports().rules().is_empty() => (body, Vec::new()),
            (Err(error), FileReplyBody::Changed { mark, level, .. }) => {
                (FileReplyBody::Changed { outcome: Err(error), mark, level, opened: None }, Vec::new())
            }
            (Err(error), _) => (refused(about, error), Vec::new()),
        }
    }

    /// Directories as they are told to a session, if it may see all of the volume.
    pub(crate) fn show_directories(
        &self,
        object: ObjectId,
        to: Caller,
        mut directories: Vec<Attributes>,
    ) -> Vec<Attributes> {
        let Caller::Session(session) = to else { return Vec::new() };
        let Ok(access) = self.access(object, session) else { return Vec::new() };
        if !access.is_free() {
            return Vec::new();
        }
        directories.iter_mut().for_each(|directory| access.show_attributes(directory));
        directories
    }

    /// Why something cannot be done, as it is told.
    fn show_refusal(&self, object: ObjectId, to: Caller, error: FileError) -> FileError {
        match to {
            Caller::Session(session) if matches!(error, FileError::Tree(_)) => {
                self.access(object, session).map_or(error, |access| access.show_error(error))
            }
            _ => error,
        }
    }

    fn show_in(
        &self,
        now: WallTime,
        access: &Access<'_>,
        (is_shown, about): (bool, About),
        body: FileReplyBody,
    ) -> FileReplyBody {
        match body {
            FileReplyBody::Changed { outcome: Ok(Done::Tree(mut done)), mark, level, .. } => {
                let created = self.created(access.volume, &done);
                let mode = OpenMode::ReadWrite;
                let created = created.filter(|_| is_shown && access.check_opening(mode).is_ok());
                let opened = created.and_then(|file| access.open(now, &file, mode).ok());
                access.show_done(&mut done);
                let (outcome, opened) = (Ok(Done::Tree(done)), opened.map(Box::new));
                FileReplyBody::Changed { outcome, mark, level, opened }
            }
            FileReplyBody::Answer(Ok(Answer::Tree(answer))) => {
                let shown = access.show_answer(now, *answer, about);
                shown.unwrap_or_else(|error| refused(about, access.show_error(error)))
            }
            body => body,
        }
    }

    /// The file that a change has created, as it is by now, if it is still there.
    fn created(&self, object: ObjectId, done: &TreeDone) -> Option<Attributes> {
        let TreeDone::Created { attributes: Attributes { inode, kind: Kind::File, .. }, is_new: true } = done
        else {
            return None;
        };
        let tree = self.files.hosted.get(&object)?.replica.machine().tree();
        match tree.part(&Key::Inode(*inode))? {
            Part::Inode(found) => Some(found.attributes(*inode)),
            _ => None,
        }
    }
}

impl Access<'_> {
    /// An answer as it is told, or why there is none.
    fn show_answer(
        &self,
        now: WallTime,
        mut answer: TreeAnswer,
        about: About,
    ) -> Result<FileReplyBody, FileError> {
        if let (About::Open(mode), TreeAnswer::Attributes(attributes)) = (about, &mut answer) {
            let capability = Box::new(self.open(now, attributes, mode)?);
            self.show_attributes(attributes);
            return Ok(FileReplyBody::Opened { attributes: Box::new(attributes.clone()), capability });
        }
        match &mut answer {
            TreeAnswer::Attributes(attributes) => self.show_attributes(attributes),
            TreeAnswer::Page(page) => {
                let listed = page.entries.iter_mut().filter_map(|listed| listed.attributes.as_mut());
                listed.for_each(|attributes| self.show_attributes(attributes));
            }
            TreeAnswer::Value(value) if about == About::Acl => *value = self.show_acl(value),
            _ => {}
        }
        Ok(FileReplyBody::Answer(Ok(Answer::Tree(Box::new(answer)))))
    }

    fn show_done(&self, done: &mut TreeDone) {
        if let TreeDone::Created { attributes, .. } | TreeDone::Changed { attributes } = done {
            self.show_attributes(attributes);
        }
    }

    /// The inode in it as the client names it.
    fn show_error(&self, mut error: FileError) -> FileError {
        if let FileError::Tree(error) = &mut error
            && let Some(inode) = error.inode_mut()
        {
            self.show_root(inode);
        }
        error
    }

    fn show_attributes(&self, attributes: &mut Attributes) {
        self.show_root(&mut attributes.inode);
        attributes.uid = self.export.shown_uid(attributes.uid);
        attributes.gid = self.export.shown_gid(attributes.gid);
    }

    /// Whom the client cannot name, it is shown as the anonymous one, and so perhaps several times.
    fn show_acl(&self, value: &Bytes) -> Bytes {
        let shown = map_acl(value, |id| {
            Ok::<_, Infallible>(match id {
                AclId::User(uid) => self.export.shown_uid(uid),
                AclId::Group(gid) => self.export.shown_gid(gid),
            })
        });
        let Ok(shown) = shown;
        shown
    }

    /// What the client shows for a file from now on.
    fn open(&self, now: WallTime, attributes: &Attributes, mode: OpenMode) -> Result<Capability, FileError> {
        let Attributes { inode, kind, lent, .. } = *attributes;
        check_kind(inode, kind)?;
        let keys = self.config.capability_keys.as_ref().ok_or(AccessError::NoKeys)?;
        let lend = lent.map(|lent| lent.generation);
        let source = Source { volume: self.volume, inode, lend };
        Ok(keys.issue(source, (self.certificate.id, mode), now + CAPABILITY_LASTS, now))
    }
}

/// Only files are opened here.
const fn check_kind(inode: InodeId, kind: Kind) -> Result<(), NameError> {
    match kind {
        Kind::File => Ok(()),
        Kind::Directory => Err(NameError::IsDirectory { inode }),
        _ => Err(NameError::WrongKind { inode }),
    }
}

/// There is no answer.
pub(crate) const fn refused(about: About, error: FileError) -> FileReplyBody {
    match about {
        About::Open(_) => FileReplyBody::Refused(error),
        About::Itself | About::Acl | About::Lend => FileReplyBody::Answer(Err(error)),
    }
}
