//! Many runs at random against members that keep a table of outcomes.

use base::Random;

use super::*;

/// Members of one file that keep its table of outcomes together, as replication does.
#[derive(Default)]
struct Members {
    primary: usize,
    outcomes: BTreeMap<u64, Mark>,
    settled: u64,
    executed: Vec<Change>,
}

impl Members {
    fn take(
        &mut self,
        random: &mut Random,
        place: usize,
        members: &[NodeId],
        body: FileBody,
    ) -> FileReplyBody {
        if place != self.primary {
            let hint = FileReplyBody::Elsewhere(members[self.primary]);
            return if random.chance(1, 2) { hint } else { BUSY };
        }
        match body {
            FileBody::Create => FileReplyBody::Exists,
            FileBody::Ask(_) => answer(),
            FileBody::Open { .. } | FileBody::Renew { .. } | FileBody::Attend(_) => {
                FileReplyBody::Refused(FileError::NoTree)
            }
            FileBody::Sync { .. } => FileReplyBody::Durable,
            FileBody::Change { number, settled, change, .. } => {
                let known = self.outcomes.get(&number).copied();
                if known.is_none() && number < self.settled {
                    return FileReplyBody::Settled;
                }
                let mark = known.unwrap_or_else(|| {
                    self.executed.push(change);
                    mark(1, self.executed.len() as u64)
                });
                self.outcomes.insert(number, mark);
                self.settled = self.settled.max(settled);
                self.outcomes = self.outcomes.split_off(&self.settled);
                changed(mark)
            }
        }
    }
}

/// Requests and replies overtake each other and get lost, connections break and the primary moves.
#[test]
fn every_change_takes_effect_once_whatever_happens_to_messages() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let mut story = Story::new();
        let mut members = Members::default();
        let mut requests: Vec<Sent> = Vec::new();
        let mut replies: Vec<(Sent, FileReplyBody)> = Vec::new();
        let mut wanted = Vec::new();
        for step in 0..4_000_u64 {
            let goes_on = step < 2_000;
            if goes_on && random.chance(1, 10) {
                let change = Change::Touch { modified: Some(WallTime::from_micros(step)) };
                wanted.push(change.clone());
                story.files.change(story.now, OBJECT, change, Level::Written);
            }
            if goes_on && random.chance(1, 50) {
                story.sync();
                members.primary = random.index(3);
            }
            if goes_on && random.chance(1, 50) {
                let node = story.members[random.index(3)];
                story.files.handle_down(story.now, node);
                replies.retain(|(sent, _)| sent.to != node);
                requests.retain(|sent| sent.to != node || random.chance(1, 2));
                story.files.handle_up(story.now, node);
            }
            requests.extend(story.wait(random.below(10)));
            if !requests.is_empty() && random.chance(9, 10) {
                let sent = requests.swap_remove(random.index(requests.len()));
                let place = story.members.iter().position(|&member| member == sent.to).expect("a member");
                let body = members.take(&mut random, place, &story.members, sent.request.body.clone());
                if !goes_on || random.chance(9, 10) {
                    replies.push((sent, body));
                }
            }
            if !replies.is_empty() && random.chance(9, 10) {
                let (sent, body) = replies.swap_remove(random.index(replies.len()));
                story.reply(&sent, body);
            }
            requests.extend(story.sent());
        }
        let done = |event: &&FileEvent| matches!(event, FileEvent::Changed { outcome: Ok(_), .. });
        assert_eq!(story.events.iter().filter(done).count(), wanted.len(), "seed {seed}");
        let time = |change: &Change| match change {
            Change::Touch { modified } => *modified,
            _ => None,
        };
        members.executed.sort_by_key(time);
        assert_eq!(members.executed, wanted, "seed {seed}");
        assert_eq!(story.files.poll_timeout(), None, "seed {seed}");
    }
}
