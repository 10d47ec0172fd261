//! One session with one daemon: what was said, when, and how much of it the daemon has confirmed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use base::{Incarnation, MonoTime, ObjectId, Span};
use node::{CLIENT_BATCH_MAX, ClientFrame, Request, RequestBody, RequestId, Token};

use super::{KEEP_ALIVES, RISK_PARTS, SILENCE, Ticket};

/// Frames remembered without a confirmation; long before that many the session is over.
const UNCONFIRMED_MAX: usize = 4_096;
/// Requests for locks that are remembered until they are answered.
const ASKED_MAX: usize = 1 << 17;

/// One session.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) incarnation: Incarnation,
    /// Until when the session lasts unless it is confirmed again.
    pub(super) valid_until: MonoTime,
    /// Claims that are attached to the session, or wait for an answer over it.
    pub(super) tickets: BTreeSet<Ticket>,
    /// Frames that are not confirmed, and when they were sent.
    sent: VecDeque<(u64, MonoTime)>,
    numbers: u64,
    /// When silence has lasted long enough to say something.
    speak_at: MonoTime,
    outbox: VecDeque<Request>,
    /// Which locks were asked for or were to be kept by which token, in case the answer comes after the ticket is void.
    asked: BTreeMap<RequestId, (ObjectId, Option<Token>)>,
    at_risk: bool,
    was_silent: bool,
    /// Whether what the session kept was looked through since it ended.
    is_over: bool,
}

impl Link {
    pub(super) const fn new(incarnation: Incarnation, now: MonoTime) -> Self {
        Self {
            incarnation,
            valid_until: now,
            tickets: BTreeSet::new(),
            sent: VecDeque::new(),
            numbers: 0,
            speak_at: now,
            outbox: VecDeque::new(),
            asked: BTreeMap::new(),
            at_risk: true,
            was_silent: false,
            is_over: false,
        }
    }

    pub(super) fn queue(&mut self, request: Request) {
        let asked = match request.body {
            RequestBody::Acquire { cell, .. } => Some((cell, None)),
            RequestBody::Reattach { cell, token } => Some((cell, Some(token))),
            _ => None,
        };
        if let Some(asked) = asked {
            if self.asked.len() == ASKED_MAX {
                self.asked.pop_first();
            }
            self.asked.insert(request.id, asked);
        }
        self.outbox.push_back(request);
    }

    /// Forgets a request that was answered; returns the lock that it was about, and by which token it was to be kept.
    pub(super) fn answered(&mut self, id: RequestId) -> Option<(ObjectId, Option<Token>)> {
        self.asked.remove(&id)
    }

    /// The daemon has heard everything up to this frame: the session lasts from when it was sent.
    pub(super) fn confirm(&mut self, acked: u64, session: Span) {
        self.is_over = false;
        while let Some(&(number, sent_at)) = self.sent.front() {
            if number > acked {
                return;
            }
            self.sent.pop_front();
            self.was_silent = false;
            self.valid_until = self.valid_until.max(sent_at + session);
        }
    }

    /// Whether something was said long ago and nothing was confirmed since.
    pub(super) fn is_silent(&self, now: MonoTime, silence: Span) -> bool {
        self.sent.front().is_some_and(|&(_, sent_at)| now >= sent_at + silence)
    }

    /// Whether it is silent and was not when last asked.
    pub(super) fn falls_silent(&mut self, now: MonoTime, silence: Span) -> bool {
        self.is_silent(now, silence) && !std::mem::replace(&mut self.was_silent, true)
    }

    /// Whether what the session kept is to be looked through, because it has ended.
    pub(super) fn ends(&mut self, now: MonoTime) -> bool {
        now >= self.valid_until && !std::mem::replace(&mut self.is_over, true)
    }

    /// There may be somebody else to ask now, if it is silent.
    pub(super) const fn look_again(&mut self) {
        self.was_silent = false;
    }

    /// Whether the session was close to its end when that was last looked at.
    pub(super) const fn is_at_risk(&self) -> bool {
        self.at_risk
    }

    /// Whether the session has come close to its end or away from it.
    pub(super) fn risk_changed(&mut self, now: MonoTime, session: Span) -> Option<bool> {
        let at_risk = now >= self.risky_at(session);
        (std::mem::replace(&mut self.at_risk, at_risk) != at_risk).then_some(at_risk)
    }

    /// When something is to be done about the link.
    pub(super) fn next_due(&self, session: Span) -> MonoTime {
        let held_to = if self.at_risk { self.valid_until } else { self.risky_at(session) };
        let silent_at = self.sent.front().filter(|_| !self.was_silent).map(|&(_, at)| at + SILENCE);
        let held_to = Some(held_to).filter(|_| !self.tickets.is_empty() && !self.is_over);
        let speak_at = if self.outbox.is_empty() { self.speak_at } else { MonoTime::default() };
        [held_to, silent_at].into_iter().flatten().fold(speak_at, MonoTime::min)
    }

    pub(super) fn has_to_speak(&self, now: MonoTime) -> bool {
        !self.outbox.is_empty() || now >= self.speak_at
    }

    /// The next frame; an empty one keeps the session alive.
    pub(super) fn speak(&mut self, now: MonoTime, session: Span) -> ClientFrame {
        let count = self.outbox.len().min(CLIENT_BATCH_MAX);
        let requests = self.outbox.drain(..count).collect();
        self.numbers += 1;
        if self.sent.len() == UNCONFIRMED_MAX {
            self.sent.pop_front();
        }
        self.sent.push_back((self.numbers, now));
        self.speak_at = now + session / KEEP_ALIVES;
        ClientFrame { number: self.numbers, requests }
    }

    fn risky_at(&self, session: Span) -> MonoTime {
        self.valid_until.saturating_sub(session / RISK_PARTS)
    }
}
