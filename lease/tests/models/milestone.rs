//! What must have happened somewhere in a model for its result to mean anything.

use lease::{Denial, Ended, Event, Reject};

/// Something that happened on the way to a state. A model in which its milestones are missing proves nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Milestone {
    Acquired0,
    Acquired1,
    Acquired2,
    Acquired3,
    Renewed,
    LostByExpiry,
    TakenAfterExpiry,
    TakenAfterRelease,
    TakenAfterHandOver,
    TakenAfterDeath,
    DeniedBecauseHeld,
    DeniedByRefusals,
    DeniedForSilence,
    GivenUpConfirmed,
    GivenUpUnconfirmed,
    RefusedByFloor,
    RefusedByRegister,
    Dropped,
    RejectedTooOld,
    RejectedInQuarantine,
    RejectedAsNewcomer,
    RejectedAsStale,
    RejectedForView,
    RejectedFromTheDead,
    AnsweredWrongView,
}

impl Milestone {
    /// Its place in a set of milestones.
    pub(crate) const fn bit(self) -> u64 {
        1 << self as u8
    }

    pub(crate) fn acquired_by(node: usize) -> Self {
        [Self::Acquired0, Self::Acquired1, Self::Acquired2, Self::Acquired3][node]
    }

    /// The milestones that an event of `node` marks.
    pub(crate) fn of_event(node: usize, event: &Event) -> u64 {
        match event {
            Event::Acquired { ended, .. } => Self::acquired_by(node).bit() | Self::of_end(*ended),
            Event::Renewed { .. } => Self::Renewed.bit(),
            Event::Lost { why: lease::Loss::Expired, .. } => Self::LostByExpiry.bit(),
            Event::Denied { why, .. } => match why {
                Denial::Held { .. } => Self::DeniedBecauseHeld.bit(),
                Denial::Contended => Self::DeniedByRefusals.bit(),
                Denial::NoMajority => Self::DeniedForSilence.bit(),
                _ => 0,
            },
            Event::GivenUp { confirmed: true, .. } => Self::GivenUpConfirmed.bit(),
            Event::GivenUp { confirmed: false, .. } => Self::GivenUpUnconfirmed.bit(),
            _ => 0,
        }
    }

    const fn of_end(ended: Ended) -> u64 {
        match ended {
            Ended::Unknown => 0,
            Ended::Released => Self::TakenAfterRelease.bit(),
            Ended::Expired => Self::TakenAfterExpiry.bit(),
            Ended::Died => Self::TakenAfterDeath.bit(),
            Ended::HandedOver => Self::TakenAfterHandOver.bit(),
        }
    }

    /// The milestone that a rejected message marks.
    pub(crate) const fn of_reject(why: Reject) -> u64 {
        match why {
            Reject::TooOld => Self::RejectedTooOld.bit(),
            Reject::Quarantined => Self::RejectedInQuarantine.bit(),
            Reject::Newcomer => Self::RejectedAsNewcomer.bit(),
            Reject::Stale => Self::RejectedAsStale.bit(),
            Reject::SenderNotMember | Reject::ViewBehind => Self::RejectedForView.bit(),
            Reject::DeadSender => Self::RejectedFromTheDead.bit(),
            _ => 0,
        }
    }
}
