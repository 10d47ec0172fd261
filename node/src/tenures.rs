//! Who was primary when, and why that ended: what several daemons have seen of an object's leases, put together.
//!
//! Each lease has a random id, names the lease before it, and says how that one ended. Every member that voted for a lease remembers
//! that, so one of a majority is enough to know of it. What nobody remembers any more is missing; a lease that names a predecessor of which
//! nothing is known is then the first of a chain.

use std::collections::{BTreeMap, BTreeSet};

use base::{NodeId, Process, WallTime};

use crate::{EndedSeen, Inspection, TrailSeen, TrailWhat};

/// One lease, from when to when its owner had it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TenureSeen {
    /// Its id.
    pub lease: u64,
    /// Whose.
    pub owner: Process,
    /// Since when: when its owner had a majority or, if the owner did not say, when the first member voted for it.
    pub from: WallTime,
    /// Whether its owner said that it had a majority. If not, it may never have had one.
    pub is_decided: bool,
    /// Who voted for it, as far as anybody said.
    pub voters: BTreeSet<NodeId>,
    /// The lease before, if there was one that somebody remembered.
    pub previous: Option<u64>,
    /// How the lease before ended, as this one's voters were told.
    pub previous_ended: EndedSeen,
    /// Until when, and why; none while it goes on as far as anybody knows.
    pub end: Option<EndSeen>,
}

/// The end of a lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EndSeen {
    /// When: as its owner or a member said, or when the next lease began.
    pub at: WallTime,
    /// How, as the next lease says or else those who saw it.
    pub ended: EndedSeen,
    /// Who was named to be next.
    pub successor: Option<NodeId>,
}

/// What is known of one lease while everything is looked at.
#[derive(Default)]
struct Known {
    decided: Option<WallTime>,
    voted: Option<WallTime>,
    voters: BTreeSet<NodeId>,
    previous: Option<(u64, EndedSeen)>,
    given_up: Option<(WallTime, Option<NodeId>)>,
    lost: Option<WallTime>,
}

/// The leases that these daemons have seen of one object, in the order of their beginnings.
pub fn tenures(seen: &[Inspection]) -> Vec<TenureSeen> {
    let mut leases: BTreeMap<(u64, Process), Known> = BTreeMap::new();
    for inspection in seen {
        for entry in &inspection.trail {
            let TrailSeen { lease, owner, .. } = *entry;
            leases.entry((lease, owner)).or_default().add(inspection, entry);
        }
    }
    // Of several that follow the same one, those that came to nothing are in there first.
    let mut by_success: Vec<&Known> = leases.values().collect();
    by_success.sort_by_key(|known| known.decided.is_some());
    let begun: BTreeMap<u64, (WallTime, EndedSeen)> = by_success
        .into_iter()
        .filter_map(|known| Some((known.previous?.0, (known.from()?, known.previous?.1))))
        .collect();
    let valid: BTreeSet<Process> = seen.iter().filter_map(|seen| Some(seen.owner?.process)).collect();
    let mut tenures: Vec<TenureSeen> = leases
        .iter()
        .filter_map(|(&(lease, owner), known)| known.tenure((lease, owner), begun.get(&lease).copied()))
        .collect();
    tenures.sort_by_key(|tenure| (tenure.from, tenure.lease));
    end_the_silent(&mut tenures, seen, &valid);
    tenures
}

/// What nobody says to have ended has run out if a later one began, or if nobody knows it to be valid.
fn end_the_silent(tenures: &mut [TenureSeen], seen: &[Inspection], valid: &BTreeSet<Process>) {
    let begins: Vec<WallTime> = tenures.iter().map(|tenure| tenure.from).collect();
    let last = tenures.len().saturating_sub(1);
    for (place, tenure) in tenures.iter_mut().enumerate().filter(|(_, tenure)| tenure.end.is_none()) {
        let ended = EndedSeen::Unknown;
        if place < last {
            tenure.end = Some(EndSeen { at: begins[place + 1], ended, successor: None });
        } else if !valid.contains(&tenure.owner) {
            let asked = seen.iter().map(|seen| seen.at).max().unwrap_or(tenure.from);
            tenure.end = Some(EndSeen { at: asked, ended, successor: None });
        }
    }
}

impl Known {
    fn add(&mut self, by: &Inspection, entry: &TrailSeen) {
        let earlier = |known: Option<WallTime>| known.map_or(entry.at, |known| known.min(entry.at));
        match entry.what {
            TrailWhat::VotedFor { previous, ended, .. } => {
                self.voted = Some(earlier(self.voted));
                self.voters.insert(by.by.node);
                if previous != 0 || self.previous.is_none() {
                    self.previous = Some((previous, ended));
                }
            }
            TrailWhat::Decided { voters, .. } => {
                self.decided = Some(earlier(self.decided));
                let voted = by.members.iter().enumerate().filter(|(place, _)| voters & 1 << place != 0);
                self.voters.extend(voted.map(|(_, node)| *node));
            }
            TrailWhat::GivenUp { successor } => {
                let known = self.given_up.map(|(at, _)| at);
                self.given_up = Some((earlier(known), successor));
            }
            TrailWhat::Lost => self.lost = Some(earlier(self.lost)),
        }
    }

    fn from(&self) -> Option<WallTime> {
        self.decided.or(self.voted)
    }

    /// None of what was only ever given up: it began before anybody remembers.
    fn tenure(
        &self,
        (lease, owner): (u64, Process),
        next: Option<(WallTime, EndedSeen)>,
    ) -> Option<TenureSeen> {
        let from = self.from()?;
        let successor = self.given_up.and_then(|(_, successor)| successor);
        let (given_up, lost) = (self.given_up.map(|(at, _)| at), self.lost);
        let said = match (given_up, successor) {
            (None, _) => EndedSeen::Expired,
            (Some(_), None) => EndedSeen::Released,
            (Some(_), Some(_)) => EndedSeen::HandedOver,
        };
        let at = given_up.or(lost).or(next.map(|(at, _)| at));
        let ended = next.map(|(_, ended)| ended).filter(|ended| *ended != EndedSeen::Unknown);
        Some(TenureSeen {
            lease,
            owner,
            from,
            is_decided: self.decided.is_some(),
            voters: self.voters.clone(),
            previous: self.previous.map(|(previous, _)| previous).filter(|previous| *previous != 0),
            previous_ended: self.previous.map_or(EndedSeen::Unknown, |(_, ended)| ended),
            end: at.map(|at| EndSeen { at, ended: ended.unwrap_or(said), successor }),
        })
    }
}

#[cfg(test)]
mod tests {
    use base::ObjectId;

    use super::*;
    use crate::{LeadsSeen, OwnerSeen};

    fn at(millis: u64) -> WallTime {
        WallTime::from_micros(millis * 1_000)
    }

    fn seen(node: u32, trail: &[(u64, u64, u32, TrailWhat)]) -> Inspection {
        let entry = |&(millis, lease, owner, what): &(u64, u64, u32, TrailWhat)| TrailSeen {
            at: at(millis),
            lease,
            owner: Process::new(owner, 1),
            what,
        };
        Inspection {
            object: ObjectId::new(1, 1),
            by: Process::new(node, 1),
            at: at(9_000),
            members: [1, 2, 3].map(NodeId).to_vec(),
            owner: None,
            leads: LeadsSeen::No,
            replica: None,
            trail: trail.iter().map(entry).collect(),
        }
    }

    const fn vote(previous: u64, ended: EndedSeen) -> TrailWhat {
        TrailWhat::VotedFor { until: WallTime::ZERO, previous, ended }
    }

    const fn decided(voters: u16) -> TrailWhat {
        TrailWhat::Decided { until: WallTime::ZERO, voters }
    }

    #[test]
    fn a_chain_says_who_was_primary_and_why_that_ended() {
        use EndedSeen::{Died, HandedOver, Unknown};
        let given = TrailWhat::GivenUp { successor: Some(NodeId(2)) };
        let mut second = seen(
            2,
            &[
                (10, 7, 1, vote(0, Unknown)),
                (500, 7, 1, given),
                (510, 8, 2, vote(7, HandedOver)),
                (512, 8, 2, decided(0b110)),
                (910, 9, 3, vote(8, Died)),
            ],
        );
        let third = seen(3, &[(511, 8, 2, vote(7, HandedOver)), (912, 9, 3, decided(0b110))]);
        second.owner = Some(OwnerSeen { process: Process::new(3, 1), until: at(9_500) });
        let chain = tenures(&[second, third]);
        let told = |tenure: &TenureSeen| (tenure.lease, tenure.owner.node.0, tenure.from, tenure.is_decided);
        assert_eq!(
            chain.iter().map(told).collect::<Vec<_>>(),
            [(7, 1, at(10), false), (8, 2, at(512), true), (9, 3, at(912), true)]
        );
        let ends: Vec<_> = chain.iter().map(|tenure| tenure.end).collect();
        let end = |millis, ended, successor| Some(EndSeen { at: at(millis), ended, successor });
        assert_eq!(ends, [end(500, HandedOver, Some(NodeId(2))), end(912, Died, None), None]);
        assert_eq!(chain[1].voters, [2, 3].map(NodeId).into());
        assert_eq!((chain[1].previous, chain[0].previous), (Some(7), None));
    }

    #[test]
    fn a_lease_that_nobody_knows_to_be_valid_is_over() {
        let lost = seen(1, &[(10, 7, 1, decided(0b011)), (2_010, 7, 1, TrailWhat::Lost)]);
        let chain = tenures(&[lost]);
        assert_eq!(chain[0].end, Some(EndSeen { at: at(2_010), ended: EndedSeen::Expired, successor: None }));
        let silent = tenures(&[seen(2, &[(10, 7, 1, vote(0, EndedSeen::Unknown))])]);
        let end = silent[0].end.unwrap();
        assert_eq!((end.at, end.ended), (at(9_000), EndedSeen::Unknown));
    }

    #[test]
    fn what_was_only_given_up_began_before_anybody_remembers() {
        let given = TrailWhat::GivenUp { successor: None };
        assert_eq!(tenures(&[seen(1, &[(10, 7, 1, given)])]), []);
        assert_eq!(tenures(&[]), []);
    }
}
