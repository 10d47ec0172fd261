//! The members of a file change: who serves it, who is asked, and what is left behind.

use base::{NodeId, ObjectId, Span};
use node::MemberChange::{Admit, Dismiss};
use node::file::{FileBody, FileReplyBody, Query};
use node::{
    BlockedStatus, Bug, Changed, MembersError, OrderBody, OrderReplyBody, ShardEvent, StrikeError,
    Unavailable,
};
use replication::{Message, Standing};

use crate::cluster::{Cluster, Flying, ms};
use crate::files::{Daemons, FILE, Writer, data, read, write};

/// A change takes some turns of messages, and perhaps a lease that runs out.
const SOON: Span = Span::from_secs(6);

const fn node(id: u32) -> NodeId {
    NodeId(id)
}

/// So many daemons; a file at its home, and those that have nothing of it.
fn daemons(count: u32, replicas: u8, bug: Option<Bug>) -> (Daemons, Vec<u32>, Vec<u32>) {
    let mut cluster: Daemons = Cluster::with(count, replicas, bug);
    cluster.client(1);
    let home: Vec<u32> = cluster.map.members(FILE).into_iter().map(|node| node.0).collect();
    let others = (1..=count).filter(|id| !home.contains(id)).collect();
    let id = cluster.ask_file(1, home[0], FILE, FileBody::Create);
    cluster.run(ms(50));
    assert_eq!(cluster.file_reply(1, id), Some(FileReplyBody::Exists));
    Writer { number: 0 }.must(&mut cluster, home[0], write("kept"));
    (cluster, home, others)
}

#[test]
fn an_operator_is_told_who_the_members_are() {
    let (mut cluster, home, others) = daemons(4, 3, None);
    let told = |cluster: &mut Daemons| match cluster.obey(home[0], OrderBody::Members(FILE)) {
        OrderReplyBody::Members(members) => members.as_slice().to_vec(),
        told => panic!("{told:?} is no answer"),
    };
    assert!(!told(&mut cluster).contains(&node(others[0])));
    cluster.must_change(home[0], FILE, Admit(node(others[0])), SOON);
    assert_eq!(told(&mut cluster).len(), 4);
}

/// It dies for good while it is given the file, and everybody at home knows of all earlier changes.
#[test]
fn a_newcomer_that_is_gone_for_good_is_not_waited_for() {
    let (mut cluster, home, others) = daemons(4, 3, None);
    let newcomer = others[0];
    cluster
        .hold_back(move |flying| flying.is_peer(newcomer, |_| true) || matches!(flying, Flying::File { .. }));
    let told = cluster.order(home[0], FILE, Admit(node(newcomer)));
    assert_eq!(told, Ok(Changed::UnderWay));
    cluster.kill(newcomer);
    cluster.held.clear();
    cluster.let_go();
    cluster.run(ms(500));
    let is_settled = |cluster: &Daemons| cluster.shard(home[0]).file(FILE).unwrap().is_settled();
    assert!(!is_settled(&cluster), "it may come back");
    for &id in &home {
        cluster.call(id, |shard, now| shard.strike(now, node(newcomer)).unwrap());
    }
    assert!(is_settled(&cluster));
    assert_eq!(members(&cluster, home[0]).len(), 3);
}

fn members(cluster: &Daemons, id: u32) -> Vec<u32> {
    cluster.shard(id).members_of(FILE).as_slice().iter().map(|node| node.0).collect()
}

/// Everybody at home is replaced by somebody else.
fn moved(bug: Option<Bug>) -> (Daemons, Vec<u32>, Vec<u32>) {
    let (mut cluster, home, mut others) = daemons(7, 3, bug);
    others.truncate(home.len());
    for (&old, &new) in home.iter().zip(&others) {
        cluster.must_change(home[0], FILE, Admit(node(new)), SOON);
        cluster.must_change(home[0], FILE, Dismiss(node(old)), SOON);
    }
    (cluster, home, others)
}

/// What a client is told that knows only where the file began, and follows those who name others.
fn read_from(cluster: &mut Daemons, asked: u32) -> Option<FileReplyBody> {
    let mut asked = asked;
    for _ in 0..400 {
        match read(cluster, asked) {
            Some(FileReplyBody::Elsewhere(named)) => asked = named.0,
            // Whoever had the lease may be gone.
            Some(FileReplyBody::Unavailable(_)) | None => cluster.run(ms(10)),
            told => return told,
        }
    }
    None
}

fn a_file_is_found_where_its_members_are(bug: Option<Bug>) {
    let (mut cluster, home, others) = moved(bug);
    for &old in &home {
        assert!(!members(&cluster, old).contains(&old));
        assert_eq!(read_from(&mut cluster, old), data("kept"));
    }
    // Where it began, nobody is needed any more.
    home.iter().for_each(|&old| _ = cluster.kill(old));
    cluster.run(ms(15_000));
    assert_eq!(read_from(&mut cluster, others[2]), data("kept"));
    let states = others.iter().map(|&id| cluster.shard(id).file(FILE).unwrap().machine());
    let states: Vec<_> = states.collect();
    assert!(states.iter().all(|state| *state == states[0]), "{states:?}");
}

fn where_a_file_began_it_is_never_begun_again(bug: Option<Bug>) {
    let (mut cluster, home, others) = moved(bug);
    cluster.run(ms(60_000));
    for &old in &home {
        let replica = cluster.shard(old).file(FILE);
        assert!(replica.is_some_and(|replica| !replica.is_whole()), "it keeps who has the file, and no more");
    }
    // Nor when all of them have started anew.
    home.iter().for_each(|&old| _ = cluster.kill(old));
    home.iter().for_each(|&old| cluster.start(old));
    cluster.run(ms(3_000));
    let id = cluster.ask_file(1, home[0], FILE, FileBody::Create);
    cluster.run(ms(50));
    let told = cluster.file_reply(1, id);
    assert!(matches!(told, Some(FileReplyBody::Elsewhere(to)) if others.contains(&to.0)), "{told:?}");
    assert_eq!(read_from(&mut cluster, home[1]), data("kept"));
}

fn who_is_no_member_names_those_who_are(bug: Option<Bug>) {
    let (mut cluster, home, others) = daemons(4, 3, bug);
    let primary = cluster.must_change(home[0], FILE, Admit(node(others[0])), SOON);
    let gone = if primary == home[2] { home[1] } else { home[2] };
    cluster.must_change(primary, FILE, Dismiss(node(gone)), SOON);
    cluster.run(ms(500));
    let id = cluster.ask_file(1, gone, FILE, FileBody::Ask(Query::Stat));
    let told = cluster.file_reply(1, id);
    assert!(matches!(told, Some(FileReplyBody::Elsewhere(to)) if to.0 != gone), "{told:?}");
}

/// The operator who was told takes the old member away.
fn who_was_told_of_new_members_may_count_on_them(bug: Option<Bug>) {
    let (mut cluster, home, others) = daemons(4, 3, bug);
    let [primary, old, _] = home[..] else { panic!("{home:?}") };
    let new = others[0];
    cluster.must_change(primary, FILE, Admit(node(new)), SOON);
    // Nobody hears what the primary orders now.
    cluster.hold_back(move |flying| matches!(flying, Flying::File { from, .. } if from.node.0 == primary));
    let told = cluster.order(primary, FILE, Dismiss(node(old)));
    cluster.kill(primary);
    cluster.held.clear();
    cluster.let_go();
    cluster.run(ms(4_000));
    assert_eq!(read_from(&mut cluster, new), data("kept"));
    if told == Ok(Changed::Done) {
        assert!(!members(&cluster, new).contains(&old), "the operator was told that it is gone");
    }
}

/// A newcomer is here at last, and another member is gone: the owner has no majority that votes.
fn a_newcomer_votes_for_nobody_at_first(bug: Option<Bug>) {
    let (mut cluster, home, others) = daemons(4, 3, bug);
    let primary = cluster.must_change(home[0], FILE, Admit(node(others[0])), SOON);
    let gone = if primary == home[2] { home[1] } else { home[2] };
    cluster.kill(gone);
    let is_lost = |cluster: &Daemons| {
        let lost = |event: &ShardEvent| matches!(event, ShardEvent::LeaseLost { cell: FILE, .. });
        cluster.events(primary).iter().any(lost)
    };
    cluster.run(ms(2_100));
    assert!(is_lost(&cluster), "the newcomer has voted");
    assert_eq!(read_from(&mut cluster, primary), data("kept"), "in time it does");
}

/// Those who know a view and those who do not need each other's votes.
fn who_is_asked_to_vote_in_a_view_asks_for_it(bug: Option<Bug>) {
    let (mut cluster, home, others) = daemons(4, 3, bug);
    let [primary, knows, ignorant] = home[..] else { panic!("{home:?}") };
    let new = others[0];
    // One member never hears what is committed.
    cluster.hold_back(move |flying| match flying {
        Flying::File { to, message, .. } if *to == ignorant => match &message.message {
            Message::Append { committed, .. } => committed.0 > 2,
            Message::Adopt { .. } | Message::WrongView { .. } => true,
            _ => false,
        },
        _ => false,
    });
    cluster.must_change(primary, FILE, Admit(node(new)), SOON);
    cluster.run(ms(3_000));
    cluster.kill(primary);
    cluster.held.clear();
    cluster.let_go();
    assert_eq!(members(&cluster, knows).len(), 4);
    assert_eq!(members(&cluster, ignorant).len(), 3);
    // Nobody asks the one that does not know.
    let mut told = None;
    for _ in 0..50 {
        told = read(&mut cluster, knows);
        if told == data("kept") {
            break;
        }
        cluster.run(ms(100));
    }
    assert_eq!(told, data("kept"));
}

/// Who has lost all that it had of a file may have voted in a later view than it knows now. A member of old does not know of
/// that view, and has nobody but the one who forgot it.
fn who_has_lost_a_file_votes_for_nobody(bug: Option<Bug>) {
    let (mut cluster, home, others) = daemons(7, 3, bug);
    let [primary, damaged, ignorant] = home[..] else { panic!("{home:?}") };
    // The rest tell both sides what time it is.
    let new = others[0];
    cluster.isolate(ignorant);
    cluster.must_change(primary, FILE, Admit(node(new)), SOON);
    cluster.must_change(primary, FILE, Dismiss(node(ignorant)), SOON);
    cluster.run(ms(500));
    assert!(members(&cluster, ignorant).contains(&ignorant), "it knows nothing of the other view");
    cluster.kill(damaged);
    cluster.damage(damaged, FILE);
    cluster.mend();
    for (one, other) in [(primary, damaged), (primary, ignorant), (new, damaged), (new, ignorant)] {
        cluster.cut(one, other);
    }
    cluster.start(damaged);
    let owns = |cluster: &Daemons, node: u32| {
        cluster.shard(node).leases().valid_until(cluster.clock(node), FILE).is_some()
    };
    for _ in 0..100 {
        _ = read(&mut cluster, ignorant);
        _ = read(&mut cluster, primary);
        cluster.run(ms(100));
        assert!(
            !owns(&cluster, ignorant),
            "it has the lease by a vote of somebody who may have voted for another"
        );
    }
    assert!(owns(&cluster, primary));
    assert_eq!(read(&mut cluster, primary), data("kept"));
    cluster.mend();
    cluster.run(ms(10_000));
    assert_eq!(cluster.shard(damaged).file(FILE).unwrap().memory(), replication::Memory::Clean);
}

macro_rules! stories {
    ($($bug:ident: $story:ident, $without:ident;)*) => {
        $(
            #[test]
            fn $without() {
                let told = std::panic::catch_unwind(|| $story(Some(Bug::$bug)));
                assert!(told.is_err(), "it went well without the rule");
            }
        )*

        #[test]
        fn with_the_rules_members_change_well() {
            $($story(None);)*
        }
    };
}

stories! {
    LeaseStaysAtHome: a_file_is_found_where_its_members_are, a_lease_that_stays_at_home_ends_with_it;
    HomeForgets: where_a_file_began_it_is_never_begun_again, a_home_that_forgets_has_the_file_begun_anew;
    TombstoneIgnored: who_is_no_member_names_those_who_are, a_tombstone_that_is_ignored_names_nobody;
    ChangeToldEarly: who_was_told_of_new_members_may_count_on_them, an_operator_who_is_told_early_is_deceived;
    NewcomerVotesAtOnce: a_newcomer_votes_for_nobody_at_first, a_newcomer_that_counts_as_old_votes_at_once;
    ViewNotAskedFor: who_is_asked_to_vote_in_a_view_asks_for_it, who_asks_nobody_never_votes;
    UnsureVotes: who_has_lost_a_file_votes_for_nobody, who_has_lost_a_file_and_votes_makes_two_owners;
}

#[test]
fn what_cannot_be_changed_is_refused_with_a_reason() {
    let (mut cluster, home, others) = daemons(5, 3, None);
    let (primary, [new, down]) = (home[0], others[..].try_into().unwrap());
    assert_eq!(cluster.order(primary, FILE, Admit(node(9))), Err(MembersError::NotInMap(node(9))));
    assert_eq!(cluster.order(home[1], FILE, Admit(node(new))), Err(MembersError::Elsewhere(node(primary))));
    let lock = node::lock_cell("x");
    let wrong = Err(MembersError::Unavailable(Unavailable::WrongCell));
    assert_eq!(cluster.order(primary, lock, Admit(node(new))), wrong);
    cluster.kill(down);
    assert_eq!(cluster.order(primary, FILE, Admit(node(down))), Err(MembersError::NotConnected(node(down))));
    // What is so already is done.
    assert_eq!(cluster.order(primary, FILE, Admit(node(home[2]))), Ok(Changed::Done));
    assert_eq!(cluster.order(primary, FILE, Dismiss(node(new))), Ok(Changed::Done));
    // Nothing of the file reaches the newcomer.
    cluster.hold_back(move |flying| matches!(flying, Flying::File { to, .. } if *to == new));
    assert_eq!(cluster.order(primary, FILE, Admit(node(new))), Ok(Changed::UnderWay));
    assert_eq!(cluster.order(primary, FILE, Dismiss(node(home[1]))), Err(MembersError::Changing));
    cluster.order(primary, FILE, Dismiss(node(new))).unwrap();
    cluster.kill(home[1]);
    assert_eq!(cluster.order(primary, FILE, Dismiss(node(home[2]))), Err(MembersError::NoMajority));
    assert_eq!(members(&cluster, primary), members(&cluster, home[2]));
}

#[test]
fn a_file_that_nobody_created_has_no_members() {
    let (mut cluster, _, _) = daemons(3, 3, None);
    let other = ObjectId::new(1, 77);
    let asked = cluster.map.members(other)[0].0;
    assert_eq!(cluster.order(asked, other, Dismiss(node(2))), Ok(Changed::UnderWay));
    cluster.run(ms(500));
    assert_eq!(cluster.order(asked, other, Dismiss(node(2))), Err(MembersError::NoSuchFile));
}

#[test]
fn a_file_keeps_a_member() {
    let (mut cluster, home, _) = daemons(2, 1, None);
    assert_eq!(cluster.order(home[0], FILE, Dismiss(node(home[0]))), Err(MembersError::Count));
}

/// The next change waits until the present members have granted the lease.
#[test]
fn members_change_again_when_those_that_are_have_confirmed_the_lease() {
    let (mut cluster, home, others) = daemons(5, 3, None);
    let primary = home[0];
    // From now on no vote reaches the primary.
    cluster.hold_back(move |flying| matches!(flying, Flying::Lease { to, .. } if *to == primary));
    cluster.order(primary, FILE, Admit(node(others[0]))).unwrap();
    cluster.run(ms(100));
    assert_eq!(members(&cluster, primary).len(), 4);
    assert_eq!(cluster.order(primary, FILE, Admit(node(others[1]))), Err(MembersError::Undecided));
    cluster.let_go();
    cluster.must_change(primary, FILE, Admit(node(others[1])), SOON);
}

/// Whoever stays has the lease handed over first, so that nobody waits until one runs out.
#[test]
fn a_primary_is_dismissed_without_a_stall() {
    let (mut cluster, home, _) = daemons(3, 3, None);
    let before = cluster.now;
    let told = cluster.order(home[0], FILE, Dismiss(node(home[0])));
    assert!(matches!(told, Err(MembersError::Elsewhere(_))), "{told:?}");
    let primary = cluster.must_change(home[0], FILE, Dismiss(node(home[0])), SOON);
    assert_ne!(primary, home[0]);
    assert!(cluster.now.since(before) <= ms(50), "{}", cluster.now.since(before));
    assert_eq!(read_from(&mut cluster, home[0]), data("kept"));
    Writer { number: 1 }.must(&mut cluster, primary, write("more"));
}

#[test]
fn who_came_later_and_left_forgets_the_file() {
    let (mut cluster, home, others) = daemons(4, 3, None);
    let (primary, guest) = (home[0], others[0]);
    cluster.must_change(primary, FILE, Admit(node(guest)), SOON);
    cluster.run(ms(100));
    assert!(cluster.shard(guest).file(FILE).is_some_and(replication::Replica::is_whole));
    holds_forget_back(&mut cluster);
    cluster.must_change(primary, FILE, Dismiss(node(guest)), SOON);
    cluster.run(ms(35_000));
    assert_eq!(cluster.shard(guest).file(FILE).map(replication::Replica::standing), Some(Standing::Retired));
    // Although nobody uses the file any more.
    cluster.held.clear();
    cluster.let_go();
    cluster.run(ms(25_000));
    assert!(cluster.shard(guest).file(FILE).is_none());
    cluster.kill(guest);
    cluster.start(guest);
    assert!(cluster.shard(guest).file(FILE).is_none(), "not even on disk");
    // It may come again.
    cluster.run(ms(3_000));
    cluster.must_change(primary, FILE, Admit(node(guest)), SOON);
    cluster.kill(guest);
    cluster.start(guest);
    cluster.run(ms(5_000));
    assert!(members(&cluster, guest).contains(&guest));
}

fn holds_forget_back(cluster: &mut Daemons) {
    cluster.hold_back(|flying| match flying {
        Flying::File { message, .. } => matches!(message.message, Message::Forget { .. }),
        _ => false,
    });
}

/// Its next process has nothing to do but to wait, and must not wait for ever.
#[test]
fn who_left_and_starts_again_forgets_the_file() {
    let (mut cluster, home, others) = daemons(4, 3, None);
    let guest = others[0];
    cluster.must_change(home[0], FILE, Admit(node(guest)), SOON);
    holds_forget_back(&mut cluster);
    cluster.must_change(home[0], FILE, Dismiss(node(guest)), SOON);
    cluster.run(ms(500));
    cluster.kill(guest);
    cluster.held.clear();
    cluster.let_go();
    cluster.run(ms(30_000));
    cluster.start(guest);
    assert_eq!(cluster.shard(guest).file(FILE).map(replication::Replica::standing), Some(Standing::Retired));
    cluster.run(ms(25_000));
    assert!(cluster.shard(guest).file(FILE).is_none());
}

/// Those whom it knows as members have left, too.
#[test]
fn who_left_long_ago_learns_whom_to_ask() {
    let (mut cluster, home, others) = daemons(7, 3, None);
    let (guest, later) = (others[0], &others[1..]);
    cluster.must_change(home[0], FILE, Admit(node(guest)), SOON);
    holds_forget_back(&mut cluster);
    cluster.must_change(home[0], FILE, Dismiss(node(guest)), SOON);
    cluster.run(ms(500));
    cluster.isolate(guest);
    cluster.held.clear();
    cluster.let_go();
    for (&old, &new) in home.iter().zip(later) {
        cluster.must_change(home[0], FILE, Admit(node(new)), SOON);
        cluster.must_change(home[0], FILE, Dismiss(node(old)), SOON);
    }
    cluster.run(ms(20_000));
    cluster.mend();
    assert!(cluster.shard(guest).file(FILE).is_some());
    cluster.run(ms(45_000));
    assert!(cluster.shard(guest).file(FILE).is_none());
}

#[test]
fn a_newcomer_that_nobody_makes_a_member_forgets_what_it_was_given() {
    let (mut cluster, home, others) = daemons(4, 3, None);
    let guest = others[0];
    // It hears of the file, and its answers do not arrive.
    cluster.hold_back(move |flying| matches!(flying, Flying::File { from, .. } if from.node.0 == guest));
    cluster.order(home[0], FILE, Admit(node(guest))).unwrap();
    cluster.run(ms(100));
    assert!(cluster.shard(guest).file(FILE).is_some());
    cluster.kill(home[0]);
    cluster.held.clear();
    cluster.let_go();
    cluster.run(ms(30_000));
    assert!(cluster.shard(guest).file(FILE).is_none());
    assert_eq!(members(&cluster, home[1]).len(), 3);
}

#[test]
fn who_is_gone_for_good_is_not_waited_for() {
    let (mut cluster, home, others) = daemons(4, 3, None);
    let [primary, gone, _] = home[..] else { panic!("{home:?}") };
    let guest = others[0];
    cluster.must_change(primary, FILE, Admit(node(guest)), SOON);
    let struck = cluster.obey(primary, OrderBody::Strike(node(gone)));
    assert_eq!(struck, OrderReplyBody::Struck(Err(StrikeError::Connected(node(gone)))));
    cluster.run(ms(3_000));
    cluster.kill(gone);
    cluster.must_change(primary, FILE, Dismiss(node(guest)), SOON);
    cluster.must_change(primary, FILE, Dismiss(node(gone)), SOON);
    cluster.run(ms(40_000));
    assert!(cluster.shard(guest).file(FILE).is_some(), "somebody may come back and ask it");
    for id in cluster.ids() {
        assert_eq!(cluster.obey(id, OrderBody::Strike(node(gone))), OrderReplyBody::Struck(Ok(())));
    }
    cluster.run(ms(40_000));
    assert!(cluster.shard(guest).file(FILE).is_none());
}

/// All were told so after a start, when nobody knows any more that the change which left it out is committed. Whoever leads next finds
/// that out only then.
#[test]
fn who_is_gone_for_good_is_not_waited_for_by_a_later_primary() {
    let (mut cluster, home, _) = daemons(4, 4, None);
    let [primary, gone, ..] = home[..] else { panic!("{home:?}") };
    let left: Vec<u32> = home.iter().copied().filter(|&id| id != gone).collect();
    cluster.kill(gone);
    cluster.must_change(primary, FILE, Dismiss(node(gone)), SOON);
    cluster.run(ms(50));
    for &id in &left {
        cluster.kill(id);
    }
    for &id in &left {
        cluster.start(id);
    }
    for &id in &left {
        let former = &cluster.shard(id).file(FILE).unwrap().rest().former;
        assert!(former.is_empty(), "n{id} knows nothing of the change");
        assert_eq!(cluster.obey(id, OrderBody::Strike(node(gone))), OrderReplyBody::Struck(Ok(())));
    }
    cluster.run(ms(4_000));
    assert_eq!(read_from(&mut cluster, primary), data("kept"));
    cluster.run(ms(4_000));
    for &id in &left {
        let replica = cluster.shard(id).file(FILE).unwrap();
        assert_eq!(members(&cluster, id).len(), 3);
        assert!(replica.is_settled(), "n{id} waits for {:?}", replica.rest().former);
    }
}

/// A daemon that is no member, has nothing, and is not where anybody looks says so.
#[test]
fn a_stranger_knows_nothing() {
    let (mut cluster, _, others) = daemons(4, 3, None);
    let told = read(&mut cluster, others[0]);
    assert_eq!(told, Some(FileReplyBody::Unavailable(Unavailable::NotMember)));
    let told = cluster.order(others[0], FILE, Dismiss(node(others[0])));
    assert_eq!(told, Err(MembersError::Unavailable(Unavailable::NotMember)));
}

/// One has forgotten, one is gone, and one remembers: nobody can tell what the one that is gone had, and so an operator
/// has to say that it is given up.
#[test]
fn an_operator_gives_up_what_is_lost() {
    let (mut cluster, home, _) = daemons(3, 3, None);
    let [remembers, forgot, gone] = home[..] else { panic!("{home:?}") };
    let accept = |cluster: &mut Daemons, id: u32| {
        cluster.obey(id, OrderBody::AcceptLoss(FILE)) == OrderReplyBody::LossAccepted(true)
    };
    assert!(!accept(&mut cluster, remembers), "nobody waits for anybody");
    cluster.kill(gone);
    cluster.power_off(forgot);
    cluster.start(forgot);
    cluster.kill(remembers);
    cluster.start(remembers);
    cluster.run(ms(4_000));
    read(&mut cluster, remembers);
    cluster.run(ms(4_000));
    let is_blocked = |cluster: &Daemons, id: u32| {
        let blocked = |event: &ShardEvent| matches!(event, ShardEvent::FileBlocked { .. });
        cluster.events(id).iter().any(blocked)
    };
    assert!(is_blocked(&cluster, remembers) || is_blocked(&cluster, forgot));
    assert_ne!(read(&mut cluster, remembers), data("kept"));
    let waiting = |cluster: &Daemons| [remembers, forgot].map(|id| cluster.shard(id).blocked()).concat();
    let told = waiting(&cluster);
    let is_told = |told: &BlockedStatus| {
        (told.object, &told.missing[..], &told.forgot[..]) == (FILE, &[node(gone)][..], &[node(forgot)][..])
    };
    assert!(!told.is_empty() && told.iter().all(is_told), "{told:?}");
    let accepted = [remembers, forgot].map(|id| accept(&mut cluster, id));
    assert!(accepted.contains(&true));
    assert_eq!(read_from(&mut cluster, remembers), data("kept"));
    assert_eq!(waiting(&cluster), []);
}
