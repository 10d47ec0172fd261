//! Changes, and those that are done under a lend to this client.

use base::{MonoTime, ObjectId};
use namespace::Generation;
use node::file::{Change, Level};

use super::job::Wish;
use super::{FileEvent, FileOutput, FileTicket, Files};

impl Files {
    /// Changes a file, once. Whoever wants it durable is told when it is; or that it is written, and syncs.
    pub fn change(&mut self, now: MonoTime, object: ObjectId, change: Change, level: Level) -> FileTicket {
        self.begin_change(now, object, Wish::Change(change, level))
    }

    /// The same to what is lent to this client, as long as that is so. It will be written.
    pub fn flush(
        &mut self,
        now: MonoTime,
        object: ObjectId,
        change: Change,
        (under, level): (Generation, Level),
    ) -> FileTicket {
        self.begin_change(now, object, Wish::Flush(change, under, level))
    }

    fn begin_change(&mut self, now: MonoTime, object: ObjectId, wish: Wish) -> FileTicket {
        let (Wish::Change(change, _) | Wish::Flush(change, ..)) = &wish else {
            unreachable!("it is one of the two")
        };
        if let Err(error) = change.check() {
            let ticket = self.ticket();
            self.outputs.push_back(FileOutput::Event(FileEvent::Refused { ticket, error }));
            return ticket;
        }
        self.begin(now, object, wish)
    }
}
