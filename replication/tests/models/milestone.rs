//! What must have happened somewhere in a model for its result to mean anything.

use replication::{Event, Message, Output};

use crate::tiny::Tiny;

/// Something that happened on the way to a state. A model in which its milestones are missing proves nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Milestone {
    Done,
    Durable,
    Served1,
    Served2,
    Served3,
    Served4,
    Outbid,
    Refused,
    WasMissing,
    Fetched,
    Lost,
    Offered,
    Pulled,
    Taken,
    Behind,
    Adopted,
    ViewEntered,
    WrongView,
    Forgotten,
    DroppedTail,
    LostUnwritten,
    LostUnsynced,
    Damaged,
    Mended,
}

impl Milestone {
    /// Its place in a set of milestones.
    pub(crate) const fn bit(self) -> u64 {
        1 << self as u8
    }

    /// The milestone of the `number`th tenure that serves.
    pub(crate) const fn served(number: u64) -> u64 {
        match number {
            1 => Self::Served1.bit(),
            2 => Self::Served2.bit(),
            3 => Self::Served3.bit(),
            _ => Self::Served4.bit(),
        }
    }

    /// The milestones that an output marks.
    pub(crate) const fn of_output(output: &Output<Tiny>) -> u64 {
        match output {
            Output::Done { .. } => Self::Done.bit(),
            Output::Durable { .. } => Self::Durable.bit(),
            Output::Event(event) => Self::of_event(event),
            Output::Send { message, .. } => Self::of_message(message),
            _ => 0,
        }
    }

    const fn of_event(event: &Event) -> u64 {
        match event {
            Event::Serving { epoch } => Self::served(epoch.number),
            Event::Outbid { .. } => Self::Outbid.bit(),
            Event::Lost { .. } => Self::Lost.bit(),
            Event::Behind { .. } => Self::Behind.bit(),
            Event::View(_) => Self::ViewEntered.bit(),
            Event::WrongView => Self::WrongView.bit(),
            Event::Forgotten => Self::Forgotten.bit(),
            Event::Damaged { .. } => Self::Damaged.bit(),
            Event::Mended => Self::Mended.bit(),
            _ => 0,
        }
    }

    const fn of_message(message: &Message<Tiny>) -> u64 {
        match message {
            Message::Refused { .. } => Self::Refused.bit(),
            Message::Missing { .. } => Self::WasMissing.bit(),
            Message::Fetch { .. } => Self::Fetched.bit(),
            Message::Offer { .. } => Self::Offered.bit(),
            Message::Pull { .. } => Self::Pulled.bit(),
            Message::Adopted { .. } => Self::Adopted.bit(),
            _ => 0,
        }
    }
}
