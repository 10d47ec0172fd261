//! What leaves with content that lies on a disk: it waits until the driver has fetched that.

use std::collections::BTreeMap;

use base::{NodeId, ObjectId, WallTime};
use bytes::Bytes;
use lease::Algorithm;
use replication::{Machine, Message, Page, Parts};

use crate::file::{Answer, Chunk, File, FileReply, FileReplyBody, Key, Part, Place, Stored};
use crate::files::Caller;
use crate::{FileMessage, Output, Shard, ShardEvent, Unavailable};

/// Names content to be fetched.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FetchId(pub u64);

/// Content that is not what it was when it was put on the disk, or cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreadable {
    /// Where it should be.
    pub place: Place,
}

/// What waits for content, in the order in which it was asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fetches {
    last: u64,
    waiting: BTreeMap<FetchId, Waiting>,
}

#[derive(Clone, Debug)]
enum Waiting {
    /// A reply that is true until then.
    Reply {
        object: ObjectId,
        to: Caller,
        reply: FileReply,
        until: Option<WallTime>,
    },
    Message {
        to: NodeId,
        message: FileMessage,
    },
}

impl Fetches {
    pub(crate) fn has_replies(&self) -> bool {
        self.waiting.values().any(Waiting::is_reply)
    }

    /// The lease of a file is given up: what waits for content of it is not said any more, whatever clocks will show.
    pub(crate) fn end(&mut self, left: ObjectId) {
        for waiting in self.waiting.values_mut() {
            match waiting {
                Waiting::Reply { object, until: Some(until), .. } if *object == left => {
                    *until = WallTime::ZERO;
                }
                _ => {}
            }
        }
    }

    fn add(&mut self, waiting: Waiting) -> FetchId {
        self.last += 1;
        self.waiting.insert(FetchId(self.last), waiting);
        FetchId(self.last)
    }
}

impl Waiting {
    const fn is_reply(&self) -> bool {
        matches!(self, Self::Reply { .. })
    }

    fn stored(&self) -> Vec<Stored> {
        match self {
            Self::Reply { reply, .. } => match &reply.body {
                FileReplyBody::Answer(Ok(Answer::Data(data))) => data.stored().cloned().collect(),
                _ => Vec::new(),
            },
            Self::Message { message, .. } => match &message.message {
                Message::Pulled { page, .. } => {
                    chunks(&page.parts).flat_map(|chunk| chunk.stored().cloned()).collect()
                }
                Message::Found { parts, .. } => {
                    chunks(parts).flat_map(|chunk| chunk.stored().cloned()).collect()
                }
                _ => Vec::new(),
            },
        }
    }

    fn fill(&mut self, mut fetched: impl Iterator<Item = Bytes>) {
        match self {
            Self::Reply { reply, .. } => {
                if let FileReplyBody::Answer(Ok(Answer::Data(data))) = &mut reply.body {
                    data.fetched(&mut fetched);
                }
            }
            Self::Message { message, .. } => {
                let (Message::Pulled { page: Page { parts, .. }, .. } | Message::Found { parts, .. }) =
                    &mut message.message
                else {
                    return;
                };
                for (_, part) in parts {
                    if let Some((_, Part::Chunk(chunk))) = part {
                        chunk.fetched(&mut fetched);
                    }
                }
            }
        }
    }

    const fn object(&self) -> ObjectId {
        match self {
            Self::Reply { object, .. } => *object,
            Self::Message { message, .. } => message.object,
        }
    }
}

fn chunks(parts: &Parts<File>) -> impl Iterator<Item = &Chunk> {
    parts.iter().filter_map(|(_, part)| match part {
        Some((_, Part::Chunk(chunk))) => Some(chunk),
        _ => None,
    })
}

impl<A: Algorithm> Shard<A> {
    /// What was to be fetched: the content in the order in which it was asked for, or what cannot be had.
    pub fn handle_fetched(&mut self, fetch: FetchId, fetched: Result<Vec<Bytes>, Unreadable>) {
        let Some(mut waiting) = self.files.fetches.waiting.remove(&fetch) else { return };
        match fetched {
            Ok(fetched) => {
                waiting.fill(fetched.into_iter());
                self.leave_fetched(waiting);
            }
            Err(Unreadable { place }) => {
                self.handle_unreadable(waiting.object(), Unreadable { place });
                if let Waiting::Reply { to, mut reply, .. } = waiting {
                    reply.body = FileReplyBody::Unavailable(Unavailable::NoMajority);
                    self.files.push_reply(to, reply, None);
                }
            }
        }
    }

    /// Content of a file cannot be read any more, as a checkpoint found.
    pub fn handle_unreadable(&mut self, object: ObjectId, Unreadable { place }: Unreadable) {
        self.note_unreadable(object, &place);
        self.tell(ShardEvent::FileUnreadable { object, place });
    }

    /// A part of a file cannot be read any more, unless it was changed meanwhile.
    fn note_unreadable(&mut self, object: ObjectId, place: &Place) {
        let Some(machine) = self.files.hosted.get(&object).map(|hosted| hosted.replica.machine()) else {
            return;
        };
        let is_there = |key: &Key| match key {
            // These are in memory always.
            Key::Attributes | Key::Tree(_) => false,
            Key::Chunk(number) => {
                let chunk = machine.chunk(*number).map(|(_, chunk)| chunk);
                chunk.is_some_and(|chunk| chunk.stored().any(|stored| stored.place == *place))
            }
        };
        let parts = machine.versions(None, usize::MAX).into_iter().filter(|(key, _)| is_there(key));
        self.files.unreadable.extend(parts.map(|(key, at)| (object, key, at)));
    }

    /// What was found to be unreadable is lacking from now on.
    pub(crate) fn lose_unreadable(&mut self, now: WallTime) {
        for (object, key, at) in std::mem::take(&mut self.files.unreadable) {
            self.handle_damaged(now, object, [(key, at)]);
        }
    }

    fn leave_fetched(&mut self, waiting: Waiting) {
        match waiting {
            Waiting::Reply { to, reply, until, .. } => self.files.push_reply(to, reply, until),
            Waiting::Message { to, message } => {
                if self.peers.contains_key(&to) {
                    self.hand_out(Output::File { to, message });
                }
            }
        }
    }

    fn fetch(&mut self, waiting: Waiting) {
        let stored = waiting.stored();
        if stored.is_empty() {
            return self.leave_fetched(waiting);
        }
        let fetch = self.files.fetches.add(waiting);
        self.hand_out(Output::Fetch { fetch, stored });
    }

    /// A message to a peer that is connected.
    pub(crate) fn send_file(&mut self, to: NodeId, message: FileMessage) {
        if self.peers.contains_key(&to) {
            self.fetch(Waiting::Message { to, message });
        }
    }

    /// The answer to a question about a file.
    pub(crate) fn answer_file(
        &mut self,
        object: ObjectId,
        (to, reply): (Caller, FileReply),
        until: Option<WallTime>,
    ) {
        self.fetch(Waiting::Reply { object, to, reply, until });
    }
}
