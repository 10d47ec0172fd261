//! What a shard does for files: it leases a file when a client wants it, recovers what was before, and serves.
//!
//! Any member of a file's cell may be asked. Who has the lease is the file's primary; others name it. A file begins
//! when a member with the lease was told to create it and nobody has anything of it.

use std::collections::VecDeque;
use std::sync::Arc;

use base::{ClientId, Epoch, NodeId, ObjectId, Process, Span, WallTime};
use lease::{Algorithm, Ended, Watermark};
use namespace::Generation;
use replication::{
    AskError, Checkpoint, Event, LeadError, Memory, Message, Output as ReplicaOutput, ProposeError, Replica,
    Request, Standing, Tenure, When,
};

use crate::access::{About, Admitted, check_purpose};
use crate::checkpoints::first_checkpoint;
use crate::errands::own_client;
use crate::file::{Change, File, FileBody, FileReplyBody, FileRequest, Level, Op, Position};
use crate::files::{Asker, Asking, Caller, FileMessage, Hosted, SMALL_BYTES_MAX, Stage};
use crate::message::is_lock;
use crate::refused::{refused_change, refused_question, refused_sync};
use crate::replies::looked_up;
use crate::session::Session;
use crate::steps::Step;
use crate::volumes::{Asked, OF_DAEMONS, Place, operation, refusal};
use crate::writes::{Held, Until};
use crate::{Bug, Output, ReplyBody, SessionId, Shard, ShardEvent, Token, Unavailable};

/// How often a change may be asked for that has not taken effect. Whoever asks again has given the first reply up.
const ASKERS_MAX: usize = 16;

impl<A: Algorithm> Shard<A> {
    /// A client's request about a file.
    pub fn handle_file_request(&mut self, now: WallTime, session: SessionId, request: FileRequest) {
        let FileRequest { id, object, shown, body, proof, holds, caches } = request;
        let Some(Session { client, certificate, .. }) = self.sessions.get(session) else { return };
        let is_shown = !matches!(body, FileBody::Renew { .. });
        let from = Caller::Session(session);
        let mut asker = Asker { from, client: *client, id, proof, holds, good_until: None, is_shown, caches };
        let asked = check_purpose((self.config.map.exports(), &certificate.role), object, &body);
        match asked.and_then(|()| self.check_shown(now, (session, object), shown.as_deref(), &body)) {
            Ok(until) => asker.good_until = until,
            Err(error) => return self.files.reply(asker, FileReplyBody::Refused(error), None),
        }
        if self.config.breaks(Bug::AnswersWhileReleasing) && self.is_leaving(object) {
            return self.ask_replica(now, object, asker, body);
        }
        match self.open_file(now, object) {
            Ok(()) => {
                if let Some(shown) = shown {
                    self.note_file(object, shown.of());
                }
                self.serve_file(now, object, asker, body);
            }
            Err(refusal) => self.files.reply(asker, refusal, None),
        }
        self.take_events(now);
    }

    /// A message of a connected peer, from its replica of a file.
    pub fn handle_file_message(&mut self, now: WallTime, from: Process, message: FileMessage) {
        if self.peers.get(&from.node) != Some(&from.incarnation) {
            return;
        }
        let epoch = message.message.epoch();
        if Token::new(epoch, 1).is_none() && epoch.number > 0 {
            // Nobody can have used that number.
            return self.tell(ShardEvent::Misbehaved { peer: from, what: "used an epoch that cannot be" });
        }
        if !self.keeper.numbers.take(epoch.number) && !self.config.breaks(Bug::AnsweredBeforeDurable) {
            self.files.defer(epoch.number, from, message);
            return self.raise_ceiling();
        }
        self.raise_ceiling();
        self.take_file_message(now, from.node, message);
        self.take_events(now);
    }

    /// The journal has all records up to this one.
    pub fn handle_written(&mut self, now: WallTime, upto: u64) {
        self.files.writes.handle_written(now, upto);
        self.check_disk(now);
        self.let_go(now);
    }

    /// All records up to this one would survive a power cut, and all that was there at the start.
    pub fn handle_durable(&mut self, now: WallTime, upto: u64) {
        self.files.writes.handle_durable(now, upto);
        self.check_disk(now);
        self.let_go(now);
    }

    /// All of a file that has to be kept. Once it is, the records before it are not needed any more: then say
    /// [what was mended](Replica::mended) when it was taken.
    pub fn file_checkpoint(&self, object: ObjectId) -> Option<Checkpoint<File>> {
        Some(self.files.hosted.get(&object)?.replica.checkpoint())
    }

    /// A checkpoint is durable that has all of a file.
    pub fn handle_kept(&mut self, object: ObjectId, mended: u32) {
        if let Some(hosted) = self.files.hosted.get_mut(&object) {
            hosted.replica.handle_kept(mended);
        }
    }

    /// This node's replica of a file, to look at.
    pub fn file(&self, object: ObjectId) -> Option<&Replica<File>> {
        Some(&self.files.hosted.get(&object)?.replica)
    }

    /// The files that this node has a replica of.
    pub fn files(&self) -> impl Iterator<Item = ObjectId> {
        self.files.hosted.keys().copied()
    }

    fn is_leaving(&self, object: ObjectId) -> bool {
        self.files.hosted.get(&object).is_some_and(|hosted| hosted.stage == Stage::Leaving)
    }

    /// Makes sure that there is a replica of the file.
    pub(crate) fn open_file(&mut self, now: WallTime, object: ObjectId) -> Result<(), FileReplyBody> {
        let unavailable = |why| Err(FileReplyBody::Unavailable(why));
        if let Some(why) = self.unavailable(now) {
            return unavailable(why);
        }
        if self.files.is_stalled {
            return unavailable(Unavailable::NoMajority);
        }
        if is_lock(object) || self.leased.contains_key(&object) {
            return unavailable(Unavailable::WrongCell);
        }
        if self.files.hosted.contains_key(&object) {
            return if self.is_member(object) { Ok(()) } else { Err(self.redirect(object)) };
        }
        if !self.is_home(object) {
            return unavailable(Unavailable::NotMember);
        }
        if !self.has_room() {
            return unavailable(Unavailable::Full);
        }
        self.host(now, object);
        Ok(())
    }

    /// A replica of a file that nothing is known of here.
    pub(crate) fn host(&mut self, now: WallTime, object: ObjectId) {
        // What it promised about files that it keeps nothing of, it may have forgotten.
        let checkpoint = first_checkpoint(&self.config, self.me().node, object);
        let checkpoint = checkpoint.promising(self.keeper.numbers.floor());
        let (config, forgot_at) = (self.files.config.clone(), self.files.forgot_at);
        let replica = Replica::new(self.me().node, config, checkpoint, [], forgot_at);
        let replica = replica.expect("without a record nothing can be wrong");
        if replica.memory() == Memory::Forgot {
            self.files.note_forgotten(now, object);
        }
        self.files.hosted.insert(object, Box::new(Hosted::new(replica, now)));
    }

    /// Serves a request, or keeps it until this node has the lease.
    pub(crate) fn serve_file(&mut self, now: WallTime, object: ObjectId, asker: Asker, body: FileBody) {
        let is_errand = matches!(asker.from, Caller::Node(_));
        let is_told = is_errand && self.files.has_changed(&asker);
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        // Clients sync what they have closed a while ago.
        if !matches!(body, FileBody::Sync { .. }) {
            hosted.used = now;
        }
        if let Some(refusal) = refusal(&body, hosted, self.files.answer_bytes) {
            return self.files.reply(asker, refusal, None);
        }
        if is_told || is_errand && hosted.is_doing(&asker) {
            return;
        }
        // Another daemon would ask again, with an entry more each time.
        let would_be_lost = is_errand
            && matches!(body, FileBody::Change { level: Level::Durable, .. })
            && hosted.serves()
            && !hosted.replica.has_room_to_wait();
        if would_be_lost {
            let busy = FileReplyBody::Unavailable(Unavailable::Overloaded);
            return self.files.reply(asker, busy, None);
        }
        let may_answer = matches!(body, FileBody::Ask(_)) && hosted.stage == Stage::Leading;
        if hosted.serves() || may_answer {
            return self.ask_replica(now, object, asker, body);
        }
        if !hosted.replica.is_sound() {
            // What is missing here comes from somebody who leads, and somebody has to be asked to.
            let busy = FileReplyBody::Unavailable(Unavailable::Overloaded);
            let has_some = matches!(hosted.replica.memory(), Memory::Mixed { .. } | Memory::Torn);
            let is_partial = has_some || hosted.replica.lacks();
            let other = is_partial.then(|| self.some_other_member(object)).flatten();
            return self.files.reply(asker, other.map_or(busy, FileReplyBody::Elsewhere), None);
        }
        if hosted.stage == Stage::Idle && now < hosted.avoided_until {
            let unknown = FileReplyBody::Unavailable(Unavailable::NoMajority);
            return self.files.reply(asker, unknown, None);
        }
        if !hosted.wait(asker, body) {
            let busy = FileReplyBody::Unavailable(Unavailable::Overloaded);
            return self.files.reply(asker, busy, None);
        }
        if hosted.stage == Stage::Idle {
            hosted.stage = Stage::Leasing;
            self.steps.add(object, Step::Acquire);
            self.note_wanted(now, object, false);
        }
    }

    /// Puts a request to a replica that leads.
    fn ask_replica(&mut self, now: WallTime, object: ObjectId, asker: Asker, body: FileBody) {
        let is_over = self.comes_too_late(now, object, asker, &body);
        if is_over
            || self.waits_for_lend(now, object, asker, &body)
            || self.keeps_waiting(now, object, asker, &body)
        {
            return;
        }
        self.put_to_replica(now, object, asker, body);
    }

    /// Puts a request to a replica that leads and may do what is asked.
    pub(crate) fn put_to_replica(&mut self, now: WallTime, object: ObjectId, asker: Asker, body: FileBody) {
        if self.comes_too_late(now, object, asker, &body) {
            return;
        }
        let is_of_tree = body.is_of_tree();
        if let Some(hosted) = self.files.hosted.get_mut(&object)
            && is_of_tree
            && hosted.replica.standing() != Standing::Serving
        {
            // What is asked is allowed or not by what is recovered.
            if !hosted.wait(asker, body) {
                self.files.reply(asker, FileReplyBody::Unavailable(Unavailable::Overloaded), None);
            }
            return;
        }
        let ticket = self.files.ticket();
        let is_of_volume =
            |change: &Change| matches!(change, Change::Tree(_) | Change::Plant(_) | Change::Remove);
        let is_change = matches!(&body, FileBody::Change { change, .. } if is_of_volume(change));
        let kept = (is_change || is_of_tree).then(|| body.clone());
        let admitted = match self.admit(now, object, asker, body) {
            Ok(admitted) => admitted,
            Err(refusal) => return self.refuse_file(now, object, asker, refusal),
        };
        let refusal = match admitted {
            Admitted::Create => Some(FileReplyBody::Exists),
            Admitted::Change { number, settled, level, under, ref change, is_allowed } => {
                if let Some(kept) = kept
                    && (self.waits_for_recall(now, object, (asker, &kept), change)
                        || self.waits_for_grants(now, object, (asker, kept), change))
                {
                    return;
                }
                let asker = Asker { is_shown: asker.is_shown && is_allowed, ..asker };
                let request = Request { client: asker.client, number, settled };
                self.propose_change(now, object, (asker, request, level), (under, change))
            }
            Admitted::Attend(said) => return self.attend(now, object, asker, &said),
            Admitted::Ask(query, about) => {
                if let Err(refusal) = self.opens(object, asker, (&query, about)) {
                    return self.refuse_file(now, object, asker, refusal);
                }
                let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
                let (on, again) = (looked_up(&query), kept);
                let asking = Asking { on, again, ..Asking::new(asker, about) };
                hosted.asking.insert(ticket, Box::new(asking));
                let asked = hosted.replica.ask(now, ticket, query.clone());
                if asked == Err(AskError::Recovering) && hosted.wait(asker, FileBody::Ask(query)) {
                    hosted.asking.remove(&ticket);
                    return;
                }
                asked.err().map(refused_question)
            }
            Admitted::Sync { oldest, newest } => {
                let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
                hosted.asking.insert(ticket, Box::new(Asking::new(asker, About::Itself)));
                hosted.replica.sync(now, ticket, (oldest, newest)).err().map(refused_sync)
            }
        };
        if let Some(refusal) = refusal {
            if let Some(hosted) = self.files.hosted.get_mut(&object) {
                hosted.asking.remove(&ticket);
            }
            self.refuse_file(now, object, asker, refusal);
        }
        self.drain_replica(now, object);
    }

    /// It says something about the state, too, which a later primary may know better.
    pub(crate) fn refuse_file(
        &mut self,
        now: WallTime,
        object: ObjectId,
        asker: Asker,
        refusal: FileReplyBody,
    ) {
        let until = self.lease.valid_until(now, object);
        let unknown = FileReplyBody::Unavailable(Unavailable::NoMajority);
        let refusal = if until.is_some() { refusal } else { unknown };
        self.files.reply(asker, refusal, until);
    }

    /// Makes an entry of a change that is asked for, or says why not.
    fn propose_change(
        &mut self,
        now: WallTime,
        object: ObjectId,
        (asker, mut request, level): (Asker, Request, Level),
        (under, change): (Option<Generation>, &Change),
    ) -> Option<FileReplyBody> {
        let (is_idle, me) = (self.files.writes.is_idle(), self.me().node);
        let may_lend = self.may_lend(now, object, asker, change);
        let hosted = self.files.hosted.get_mut(&object)?;
        let next = hosted.replica.next_position();
        if let (Caller::Node(_), Some(next)) = (asker.from, next) {
            // No other entry has this number.
            (request.number, request.settled) = (next.seq.0, next.seq.0);
        }
        let rules = self.config.rules();
        let (map, full, holders) = (&self.config.map, &self.files.full, &hosted.holders);
        let recalls = &hosted.recalls;
        let asked = Asked { now, object, client: asker.client };
        let place = Place { map, full, holders, recalls, may_lend, me, rules };
        let op = Op { under, ..operation(asked, change, &hosted.replica, place) };
        if op.change.check().is_err() {
            // Too many clients may have it open: most of them have still to say that they do not.
            return Some(FileReplyBody::Unavailable(Unavailable::Overloaded));
        }
        let wanted = op.change.clone();
        let askers = hosted.changing.entry((asker.client, request.number)).or_default();
        if askers.len() >= ASKERS_MAX {
            return Some(FileReplyBody::Unavailable(Unavailable::Overloaded));
        }
        askers.push((asker, level));
        let refusal = propose(&mut hosted.replica, now, request, op).err();
        let begins = next.filter(|_| refusal.is_none() && hosted.replica.next_position() != next);
        if refusal.is_some() {
            forget_asker(hosted, (asker.client, request.number), asker);
        } else {
            hosted.heard.insert(asker.client, now);
            begins.iter().for_each(|at| hosted.holders.note_removal(&wanted, *at));
            if let (Change::Return { .. }, Some(next)) = (change, next) {
                hosted.lending.turn(next, None);
            }
            if level == Level::Durable {
                hosted.replica.sync_with_last();
            } else if is_idle {
                hosted.replica.sync_ahead();
            }
        }
        if refusal == Some(ProposeError::Full) {
            self.end_silent_client(now, object);
        }
        if let Some(at) = begins {
            self.change_begins(object, asker, request.number, (at, change));
            self.count_entered(now, object, asker, change);
        }
        refusal.map(refused_change)
    }

    /// Makes an entry of a change that nobody has asked for, and says where it will stand.
    pub(crate) fn propose_own(
        &mut self,
        now: WallTime,
        object: ObjectId,
        change: Change,
    ) -> Option<Position> {
        let client = own_client(self.me().node);
        let hosted = self.files.hosted.get_mut(&object)?;
        let next = hosted.replica.next_position()?;
        // No other entry has this number.
        let request = Request { client, number: next.seq.0, settled: next.seq.0 };
        let op = match change {
            Change::Tree(mut op) => {
                let own = Arc::make_mut(&mut op);
                (own.time, own.client) = (now, client);
                Change::Tree(op)
            }
            change => change,
        };
        match propose(&mut hosted.replica, now, request, Op { time: now, under: None, change: op }) {
            Ok(()) => Some(next),
            Err(error) => {
                // If the object knows too many daemons to know this one, a client that was silent for long makes room first.
                if error == ProposeError::Full {
                    self.end_silent_client(now, object);
                }
                None
            }
        }
    }

    /// Makes room for a client that a file does not know.
    pub(crate) fn end_silent_client(&mut self, now: WallTime, object: ObjectId) {
        // Others may have led since, and heard of it.
        if self.lease.valid_until(now, object).is_none() {
            return;
        }
        let silent =
            if self.config.breaks(Bug::HeardClientOver) { Span::ZERO } else { self.config.client_silent };
        let is_kept = !self.config.breaks(Bug::PresentClientOver);
        let silent_since = now - silent;
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        let here = self.sessions.clients();
        let Some(client) = hosted.silent_client(silent_since, |client| is_kept && here.contains(&client))
        else {
            return;
        };
        // If there is no room to remember that it is over, it is not.
        if hosted.replica.expire(now, client).is_ok() {
            hosted.heard.remove(&client);
            self.tell(ShardEvent::FileClientOver { object, client });
        }
    }

    fn take_file_message(&mut self, now: WallTime, from: NodeId, mut message: FileMessage) {
        if from == self.me().node && !self.files.hosted.contains_key(&message.object) {
            // What its replica said was for one that is not kept any more.
            return;
        }
        let has_disk = self.has_disk_for(now, &mut message);
        let is_large = message.message.bytes() > SMALL_BYTES_MAX;
        let is_crowded = is_large && from != self.me().node && self.files.writes.is_crowded();
        if !has_disk || is_crowded || !self.make_room(now, from, &message) {
            return;
        }
        let FileMessage { object, view, message } = message;
        let retired = match message {
            Message::Adopted { epoch, view } if epoch.number == 0 => Some((from, view)),
            _ => None,
        };
        if let Some(hosted) = self.files.hosted.get_mut(&object) {
            // What it has promised it keeps as long as somebody asks: who leads would begin anew with each that promises again.
            if hosted.replica.is_blank() || hosted.replica.tail() == Position::START {
                hosted.used = now;
            }
            hosted.replica.handle_message(now, from, view, message);
        }
        if let Some(retired) = retired {
            self.hear_retired(now, object, retired);
        }
        self.drain_replica(now, object);
    }

    /// Does what a replica wants done.
    pub(crate) fn drain_replica(&mut self, now: WallTime, object: ObjectId) {
        self.keep_tree_to_rules(object);
        let mut has_ended = false;
        loop {
            let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
            let Some(output) = hosted.replica.poll_output() else {
                let serves = hosted.serves();
                if self.strike_gone(now, object) || serves && self.tend_led(now, object) {
                    continue;
                }
                break;
            };
            match output {
                ReplicaOutput::Journal { record, .. } => {
                    let number = self.files.writes.next(now, &record);
                    hosted.last_write = number;
                    self.hand_out(Output::Write { number, object, record });
                }
                ReplicaOutput::Send { to, view, message, when } => {
                    let number = hosted.last_write;
                    let until = match when {
                        When::Now => Until { number: 0, is_durable: false },
                        When::Written(_) => Until { number, is_durable: false },
                        When::Durable(_) => Until { number, is_durable: true },
                    };
                    let held = Held { to, message: FileMessage { object, view, message } };
                    if let Some(held) = self.files.writes.hold(until, self.lease.me().node, held) {
                        self.send_held(now, held);
                    }
                }
                ReplicaOutput::Done { request, outcome, mark, until } => {
                    let key = (request.client, request.number);
                    let placed = hosted.grants.end(key);
                    has_ended |= placed.is_some();
                    for asker in hosted.changing.remove(&key).unwrap_or_default() {
                        let placed = placed.as_ref();
                        self.tell_changed(now, object, (asker, placed), (outcome.clone(), mark, until));
                    }
                }
                ReplicaOutput::Answer { ticket, answer, until } => {
                    self.answer_ticket(now, object, ticket, (FileReplyBody::Answer(answer), until));
                }
                ReplicaOutput::Durable { ticket, until } => {
                    self.run_prepared(object, ticket);
                    self.answer_ticket(now, object, ticket, (FileReplyBody::Durable, until));
                }
                ReplicaOutput::Unknown(waiting) => self.answer_unknown(object, waiting),
                ReplicaOutput::Event(event) => self.take_file_event(now, object, event),
            }
        }
        if let Some(upto) = self.files.writes.poll_sync(now) {
            self.hand_out(Output::Sync { upto });
        }
        self.follow_view(now, object);
        self.files.note_due(object);
        self.files.bound_logs(object, self.config.logs_bytes_max);
        if has_ended {
            self.pass_held(now, object);
        }
    }

    fn take_file_event(&mut self, now: WallTime, object: ObjectId, event: Event) {
        match event {
            Event::Serving { epoch } => {
                self.files.blocked.remove(&object);
                self.tell_taken(now, object);
                self.begin_grants(now, object, epoch);
                if let Some(hosted) = self.files.hosted.get_mut(&object) {
                    hosted.begin(now);
                }
                self.begin_lends(now, object);
                self.begin_holders(now, object);
                self.serve_waiting(now, object);
                self.tell_retired(now, object);
            }
            Event::Outbid { promised } => {
                if let Some(hosted) = self.files.hosted.get_mut(&object) {
                    hosted.highest = hosted.highest.max(promised.number);
                }
                self.lead_file(now, object);
            }
            Event::Nothing => self.take_absence(now, object),
            Event::Behind { holder } => {
                // What is committed more than one member has, so another one can do without a holder that leads nothing.
                let members = self.members_of(object);
                let is_taker = self.drain.takers.contains(&holder);
                let successor = if is_taker { Some(holder) } else { self.next_member(members.as_slice()) };
                let Some(successor) = successor else { return self.leave_for_now(now, object, None) };
                self.send_waiting_away(object, &FileReplyBody::Elsewhere(successor));
                self.leave_file(now, object, Some(successor));
            }
            Event::Isolated => self.leave_for_now(now, object, None),
            Event::Fruitless { answered } => {
                let successor = self.next_member(&answered);
                self.leave_for_now(now, object, successor);
            }
            Event::WrongView => {
                self.send_waiting_away(object, &FileReplyBody::Unavailable(Unavailable::NoMajority));
                self.leave_file(now, object, None);
            }
            Event::Blocked { missing, forgot } => self.file_blocked(object, missing, forgot),
            Event::Lost { generation } => {
                if let Some(hosted) = self.files.hosted.get_mut(&object) {
                    hosted.is_lossy = true;
                }
                self.tell(ShardEvent::FileLost { object, generation });
            }
            Event::Unsound { from } => {
                self.tell(ShardEvent::FileUnsound { object, from });
                self.drop_what_began_again(now, object);
            }
            Event::Forgotten => self.forget_file(now, object),
            Event::Over => self.file_over(now, object),
            Event::Damaged { parts } => self.file_damaged(now, object, parts),
            Event::Mended => self.tell(ShardEvent::FileMended { object }),
            Event::Wanted => self.lead_for_damaged(now, object),
            // Views are followed whatever they come with.
            Event::View(_) => {}
        }
    }

    /// This node can do nothing for the file at present, and another one may.
    fn leave_for_now(&mut self, now: WallTime, object: ObjectId, successor: Option<NodeId>) {
        if let Some(hosted) = self.files.hosted.get_mut(&object) {
            hosted.avoid(now);
        }
        self.send_waiting_away(object, &FileReplyBody::Unavailable(Unavailable::NoMajority));
        self.leave_file(now, object, successor);
    }

    /// Of these nodes the one that takes leases and comes after this one: so each has its turn.
    pub(crate) fn next_member(&self, nodes: &[NodeId]) -> Option<NodeId> {
        let me = self.me().node;
        let takers = nodes.iter().copied().filter(|node| self.drain.takers.contains(node));
        takers.min_by_key(|&node| (node < me, node))
    }

    /// The requests that came before this node served.
    pub(crate) fn serve_waiting(&mut self, now: WallTime, object: ObjectId) {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        let waiting = std::mem::take(&mut hosted.waiting);
        for (asker, body) in waiting {
            self.ask_replica(now, object, asker, body);
        }
    }

    /// Nobody has anything of the file. Who came meanwhile to create it has it begun.
    fn take_absence(&mut self, now: WallTime, object: ObjectId) {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        let waiting = std::mem::take(&mut hosted.waiting).into_iter();
        let (creating, others): (VecDeque<_>, VecDeque<_>) =
            waiting.partition(|(_, body)| body.begins(object));
        hosted.waiting = creating;
        hosted.is_absent = true;
        let is_wanted = !hosted.waiting.is_empty();
        others.into_iter().for_each(|(asker, _)| self.files.reply(asker, FileReplyBody::NoSuchFile, None));
        if is_wanted { self.lead_file(now, object) } else { self.leave_file(now, object, None) }
    }

    /// Tells everybody who waits for this node to serve that it will not.
    pub(crate) fn send_waiting_away(&mut self, object: ObjectId, body: &FileReplyBody) {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        let recalls = std::mem::take(&mut hosted.recalls).take_waiting();
        let waits = hosted.waits.take().into_iter().map(|wait| (wait.asker, wait.body()));
        let waiting = std::mem::take(&mut hosted.waiting).into_iter().chain(recalls).chain(waits);
        let waiting: Vec<_> = waiting.collect();
        waiting.into_iter().for_each(|(asker, _)| self.files.reply(asker, body.clone(), None));
    }

    /// The lease of a file's cell is this node's.
    pub(crate) fn file_acquired(
        &mut self,
        now: WallTime,
        object: ObjectId,
        (until, ended): (WallTime, Ended),
    ) {
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        hosted.ended = ended;
        hosted.stage = Stage::Numbering(until);
        if self.is_draining() || self.files.is_stalled {
            self.send_waiting_away(object, &FileReplyBody::Unavailable(Unavailable::NoMajority));
            return self.leave_file(now, object, None);
        }
        self.lead_file(now, object);
    }

    /// Begins a tenure with an epoch of its own, once its number is covered by the ceiling on disk.
    pub(crate) fn lead_file(&mut self, now: WallTime, object: ObjectId) {
        let me = self.me().node;
        let Some(until) = self.lease.valid_until(now, object) else { return };
        let lease = self.lease.lease_of(object).map_or(0, |id| id.0);
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        // An earlier process of this node may have used a number and died before it was written that it did.
        let floor = if self.config.breaks(Bug::EpochReused) { 0 } else { self.keeper.numbers.floor() };
        // The entry that made a file is older than all of its content.
        let begun_after = hosted.lending.of.map_or(0, |of| of.inode.epoch.number);
        let before = if self.config.breaks(Bug::ContentBeforeFile) { 0 } else { begun_after };
        let used = hosted.replica.promised().number.max(hosted.highest).max(floor);
        let number = used.max(before).saturating_add(1);
        let begun_after = begun_after.min(number - 1);
        let epoch = Epoch { number, node: me };
        let creates = hosted.waiting.iter().any(|(_, body)| body.begins(object));
        if Token::new(epoch, 1).is_none() {
            self.send_waiting_away(object, &FileReplyBody::Unavailable(Unavailable::Full));
            return self.leave_file(now, object, None);
        }
        if !self.keeper.numbers.take(number) {
            hosted.stage = Stage::Numbering(until);
            return self.raise_ceiling();
        }
        hosted.stage = Stage::Leading;
        hosted.is_absent = false;
        self.files.watch(now + self.config.file_idle, object);
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        match hosted.replica.lead(now, Tenure { epoch, lease, until, creates, begun_after }) {
            Ok(()) => {}
            Err(error) => {
                let why = FileReplyBody::Unavailable(Unavailable::NoMajority);
                self.send_waiting_away(object, &why);
                // What is missing here comes from somebody who leads.
                let is_incomplete = error == LeadError::Incomplete;
                let successor = is_incomplete.then(|| self.some_other_member(object)).flatten();
                self.leave_file(now, object, successor);
            }
        }
        self.raise_ceiling();
        self.drain_replica(now, object);
    }

    /// A member that takes leases, another one each time.
    pub(crate) fn some_other_member(&mut self, object: ObjectId) -> Option<NodeId> {
        let members = self.members_of(object);
        let others = members.as_slice().iter().filter(|node| self.drain.takers.contains(node));
        let others: Vec<NodeId> = others.copied().collect();
        let turn = usize::try_from(self.files.ticket().0).unwrap_or(0);
        others.get(turn.checked_rem(others.len())?).copied()
    }

    /// Gives a file's lease up.
    pub(crate) fn leave_file(&mut self, now: WallTime, object: ObjectId, successor: Option<NodeId>) {
        let keeps_answering = self.config.breaks(Bug::AnswersWhileReleasing);
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        let was = std::mem::replace(&mut hosted.stage, Stage::Leaving);
        let at = hosted.replica.committed();
        self.end_grants(now, object, Some(&FileReplyBody::Unavailable(Unavailable::NoMajority)));
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        for (asker, _) in std::mem::take(&mut hosted.recalls).take_waiting() {
            self.files.reply(asker, FileReplyBody::Unavailable(Unavailable::NoMajority), None);
        }
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        self.errands.end(object);
        if !keeps_answering {
            hosted.replica.resign();
            self.files.fetches.end(object);
        }
        match was {
            Stage::Leading | Stage::Numbering(_) => {
                let watermark = Watermark { epoch: at.epoch, seq: at.seq };
                self.steps.add(object, Step::GiveUp { successor, watermark });
            }
            Stage::Idle | Stage::Leasing => hosted.stage = Stage::Idle,
            Stage::Leaving => {}
        }
        self.drain_replica(now, object);
    }

    /// The lease lasts longer.
    pub(crate) fn file_renewed(&mut self, object: ObjectId, until: WallTime) {
        if let Some(hosted) = self.files.hosted.get_mut(&object) {
            hosted.replica.renew(until);
        }
    }

    /// This node does not have the lease, and does not get it. False if the cell is no file of this node's.
    pub(crate) fn file_not_leased(&mut self, now: WallTime, object: ObjectId, body: &ReplyBody) -> bool {
        if !self.files.hosted.contains_key(&object) {
            return false;
        }
        let away = self.redirect(object);
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return false };
        hosted.stage = Stage::Idle;
        hosted.replica.resign();
        self.files.fetches.end(object);
        self.errands.end(object);
        let body = match body {
            ReplyBody::Elsewhere(node) => FileReplyBody::Elsewhere(*node),
            ReplyBody::Unavailable(Unavailable::NotMember) => away,
            ReplyBody::Unavailable(why) => FileReplyBody::Unavailable(*why),
            _ => FileReplyBody::Unavailable(Unavailable::Contended),
        };
        self.send_waiting_away(object, &body);
        self.end_grants(now, object, Some(&body));
        self.drain_replica(now, object);
        true
    }

    /// Whether the lease of a file is still wanted.
    pub(crate) fn wants_file(&self, object: ObjectId) -> bool {
        self.files.hosted.get(&object).is_some_and(|hosted| hosted.stage == Stage::Leasing)
    }

    /// The owner handed the lease to this node.
    pub(crate) fn file_offered(&mut self, now: WallTime, object: ObjectId) {
        if self.unavailable(now).is_some() || self.files.is_stalled {
            return;
        }
        let Some(hosted) = self.files.hosted.get_mut(&object) else { return };
        if hosted.stage == Stage::Idle && hosted.replica.is_sound() && now >= hosted.avoided_until {
            hosted.stage = Stage::Leasing;
            self.steps.add(object, Step::Acquire);
            self.note_wanted(now, object, true);
        }
    }

    /// Messages whose writes are done.
    fn let_go(&mut self, now: WallTime) {
        while let Some(held) = self.files.writes.pop_ready() {
            self.send_held(now, held);
        }
        self.take_events(now);
    }

    fn send_held(&mut self, now: WallTime, held: Held) {
        let Held { to, message, .. } = held;
        if to == self.me().node {
            return self.take_file_message(now, to, message);
        }
        self.send_file(to, message);
    }
}

/// Daemons have room for what they do of themselves when clients have none: that may be what makes room.
fn propose(replica: &mut Replica<File>, now: WallTime, request: Request, op: Op) -> Result<(), ProposeError> {
    if request.client.certificate == OF_DAEMONS {
        replica.propose_for_house(now, request, op)
    } else {
        replica.propose(now, request, op)
    }
}

fn forget_asker(hosted: &mut Hosted, key: (ClientId, u64), asker: Asker) {
    if let Some(askers) = hosted.changing.get_mut(&key) {
        askers.retain(|(other, _)| *other != asker);
        if askers.is_empty() {
            hosted.changing.remove(&key);
        }
    }
}
