//! Who leads a file, and for how long: disks that do nothing, members that forgot, clients that are too many.

use std::sync::Arc;

use base::{ObjectId, Span};
use bytes::Bytes;
use node::file::{Answer, Change, FileBody, FileReplyBody, Level, Query};
use node::{Bug, ClientId, ShardConfig, ShardEvent, Unavailable};
use replication::{Memory, Standing};

use crate::cluster::{Cluster, Flying, ms};

const FILE: ObjectId = ObjectId::new(1, 2);

type Daemons = Cluster<lease::FleaseRules>;

fn members(cluster: &Daemons) -> [u32; 3] {
    let members: Vec<u32> = cluster.map.members(FILE).into_iter().map(|node| node.0).collect();
    members.try_into().unwrap()
}

/// Three daemons, and the file with its primary, the first.
fn created(bug: Option<Bug>, configure: fn(&mut ShardConfig)) -> (Daemons, [u32; 3]) {
    let mut cluster = Cluster::stopped(3, 3, bug);
    cluster.configure = configure;
    cluster.start_all();
    cluster.client(1);
    let members = members(&cluster);
    create(&mut cluster, members[0]);
    (cluster, members)
}

fn create(cluster: &mut Daemons, node: u32) {
    let id = cluster.ask_file(1, node, FILE, FileBody::Create);
    cluster.run(ms(50));
    assert_eq!(cluster.file_reply(1, id), Some(FileReplyBody::Exists));
}

fn append(cluster: &mut Daemons, client: u64, node: u32, number: u64) -> Option<FileReplyBody> {
    let change = Change::Append { data: Bytes::from_static(b"x").into() };
    let id = cluster.ask_file(
        client,
        node,
        FILE,
        FileBody::Change { number, settled: number, level: Level::Written, under: None, change },
    );
    cluster.run(ms(20));
    cluster.file_reply(client, id)
}

fn is_changed(told: &Option<FileReplyBody>) -> bool {
    matches!(told, Some(FileReplyBody::Changed { outcome: Ok(_), .. }))
}

fn read(cluster: &mut Daemons, node: u32) -> Option<FileReplyBody> {
    let id =
        cluster.ask_file(1, node, FILE, FileBody::Ask(Query::Read { offset: 0, length: 100, under: None }));
    cluster.run(ms(20));
    cluster.file_reply(1, id)
}

fn data(text: &str) -> Option<FileReplyBody> {
    Some(FileReplyBody::Answer(Ok(Answer::Data(Bytes::copy_from_slice(text.as_bytes()).into()))))
}

fn memory(cluster: &Daemons, node: u32) -> Option<Memory> {
    cluster.shard(node).file(FILE).map(|replica| replica.memory())
}

fn leads(cluster: &Daemons, node: u32) -> bool {
    cluster.shard(node).file(FILE).is_some_and(|replica| replica.standing() == Standing::Serving)
}

/// The disk of a primary takes nothing any more.
fn a_node_whose_disk_does_nothing_leads_nothing(bug: Option<Bug>) {
    let (mut cluster, [sick, ..]) = created(bug, |_| {});
    cluster.hold_back(move |flying| matches!(flying, Flying::Disk { node, .. } if node.node.0 == sick));
    assert!(is_changed(&append(&mut cluster, 1, sick, 1)), "the others are a majority");
    cluster.run(ms(2_500));
    assert!(!leads(&cluster, sick));
    assert!(cluster.events(sick).contains(&ShardEvent::DiskStalled(true)));
    assert_eq!(read(&mut cluster, sick), Some(FileReplyBody::Unavailable(Unavailable::NoMajority)));
    let others: Vec<u32> = cluster.ids().into_iter().filter(|&node| node != sick).collect();
    assert!(others.into_iter().any(|node| read(&mut cluster, node) == data("x")));
    cluster.let_go();
    cluster.run(ms(100));
    assert!(cluster.events(sick).contains(&ShardEvent::DiskStalled(false)));
    let told = read(&mut cluster, sick);
    assert!(matches!(told, Some(FileReplyBody::Elsewhere(_))), "{told:?}");
}

#[test]
fn a_disk_that_does_nothing_ends_a_tenure() {
    a_node_whose_disk_does_nothing_leads_nothing(None);
}

#[test]
#[should_panic]
fn without_the_rule_a_sick_node_leads_on() {
    a_node_whose_disk_does_nothing_leads_nothing(Some(Bug::StalledDiskLeads));
}

/// It has been given a state, and may never have it written. As long as it says that it is being written others keep what comes after it.
#[test]
fn a_disk_that_does_nothing_has_others_keep_no_log() {
    let short: fn(&mut ShardConfig) = |config| Arc::make_mut(&mut config.replication).kept_max = 2;
    let (mut cluster, [first, second, _]) = created(None, short);
    cluster.isolate(second);
    (1..10).for_each(|number| assert!(is_changed(&append(&mut cluster, 1, first, number))));
    cluster.hold_back(move |flying| matches!(flying, Flying::Disk { node, .. } if node.node.0 == second));
    cluster.mend();
    let mut kept = Vec::new();
    for number in 10..310 {
        assert!(is_changed(&append(&mut cluster, 1, first, number)));
        kept.push(cluster.shard(first).file(FILE).unwrap().log_bytes());
    }
    assert!(cluster.shard(second).file(FILE).unwrap().is_whole(), "it has all of the state");
    assert!(kept[149] > 10_000 && kept[299] < 1_000, "{kept:?}");
    cluster.let_go();
    cluster.run(ms(1_000));
    let [led, there] = [first, second].map(|node| cluster.shard(node).file(FILE).unwrap().tail());
    assert_eq!(led, there);
}

/// One has forgotten, one remembers, and one is gone: nobody can know what was there. The lease changes hands, so that whoever
/// hears of the third one finds out, and not at full speed.
#[test]
fn who_waits_for_a_member_in_vain_gives_the_lease_to_another() {
    let (mut cluster, [first, second, third]) = created(None, |_| {});
    assert!(is_changed(&append(&mut cluster, 1, first, 1)));
    cluster.run(ms(100));
    cluster.kill(second);
    cluster.power_off(first);
    cluster.start(first);
    for _ in 0..50 {
        cluster.run(ms(500));
        for node in [first, third] {
            cluster.ask_file(1, node, FILE, FileBody::Ask(Query::Stat));
            assert!(!leads(&cluster, node));
        }
    }
    let blocked = [first, third].map(|node| {
        let events = cluster.events(node).iter();
        events.filter(|event| matches!(event, ShardEvent::FileBlocked { .. })).count()
    });
    assert!(blocked.iter().all(|&count| count > 0) && blocked.iter().sum::<usize>() <= 5, "{blocked:?}");
    cluster.start(second);
    cluster.run(ms(8_000));
    let said = [first, second, third].map(|node| read(&mut cluster, node));
    assert!(said.contains(&data("x")), "{said:?}");
}

/// A file that was created while a member was down, and of which nothing came to its disk.
#[test]
fn a_member_that_knows_nothing_of_a_file_any_more_is_counted_on_again() {
    let (mut cluster, [first, _, third]) = created(None, |_| {});
    assert!(is_changed(&append(&mut cluster, 1, first, 1)));
    cluster.power_off(third);
    cluster.run(ms(16_000));
    assert!(!leads(&cluster, first));
    cluster.start(third);
    assert!(cluster.shard(third).file(FILE).is_none(), "it is told of it by others");
    cluster.run(ms(8_000));
    assert_eq!(memory(&cluster, third), Some(Memory::Clean));
    // The other one that remembers is gone.
    cluster.kill(first);
    cluster.run(ms(4_000));
    let said = cluster.ids().into_iter().map(|node| read(&mut cluster, node)).collect::<Vec<_>>();
    assert!(said.contains(&data("x")), "{said:?}");
}

/// Nobody writes, and the primary serves reads all the time.
#[test]
fn a_primary_hears_that_a_backup_forgot_although_it_has_nothing_to_tell_it() {
    let (mut cluster, [first, _, third]) = created(None, |_| {});
    assert!(is_changed(&append(&mut cluster, 1, first, 1)));
    cluster.run(ms(300));
    cluster.power_off(third);
    cluster.start(third);
    for _ in 0..20 {
        cluster.run(ms(200));
        assert_eq!(read(&mut cluster, first), data("x"));
    }
    assert_eq!(memory(&cluster, third), Some(Memory::Clean));
}

/// Its first tenure has an epoch that the member knows to be later.
#[test]
fn a_file_that_is_new_is_not_forgotten() {
    let mut cluster: Daemons = Cluster::new(3);
    let [first, _, third] = members(&cluster);
    cluster.client(1);
    cluster.power_off(third);
    cluster.start(third);
    cluster.run(ms(3_000));
    create(&mut cluster, first);
    cluster.run(ms(100));
    assert_eq!(memory(&cluster, third), Some(Memory::Clean));
}

/// A node that forgot looks for a file that somebody asks it for, and finds that there is none.
#[test]
fn a_file_that_is_not_there_is_not_looked_for_for_ever() {
    let mut cluster: Daemons = Cluster::new(3);
    let third = members(&cluster)[2];
    cluster.client(1);
    cluster.power_off(third);
    cluster.start(third);
    cluster.run(ms(3_000));
    assert_eq!(read(&mut cluster, third), Some(FileReplyBody::NoSuchFile));
    cluster.run(ms(5_000));
    assert!(cluster.shard(third).file(FILE).is_none());
    // And what it promised about it stays promised.
    create(&mut cluster, third);
}

/// A backup takes over a state, which takes longer than a file may be idle.
#[test]
fn a_file_is_let_go_when_its_backups_have_it() {
    let (mut cluster, [first, _, third]) = created(None, |config| {
        config.file_idle = Span::from_millis(300);
        let replication = replication::Config {
            kept_max: 0,
            parts_max: 1,
            versions_max: 1,
            ..(*config.replication).clone()
        };
        config.replication = replication.into();
    });
    cluster.kill(third);
    for number in 1..=8 {
        let change = Change::Write { offset: number << 16, data: Bytes::from_static(b"chunk").into() };
        let id = cluster.ask_file(
            1,
            first,
            FILE,
            FileBody::Change { number, settled: number, level: Level::Written, under: None, change },
        );
        assert!(is_changed(&cluster.file_reply(1, id)));
    }
    cluster.start(third);
    // Each part of it takes a tenth of a second.
    let is_page = |flying: &Flying| matches!(flying, Flying::File { message, .. } if matches!(message.message, replication::Message::Pulled { .. }));
    cluster.hold_back(is_page);
    for _ in 0..20 {
        cluster.run(ms(100));
        cluster.let_go();
        cluster.hold_back(is_page);
    }
    cluster.let_go();
    cluster.run(ms(1_000));
    assert!(!leads(&cluster, first), "nobody uses it");
    let states = [first, third].map(|node| cluster.shard(node).file(FILE).unwrap().machine().clone());
    assert_eq!(states[0], states[1]);
}

#[test]
fn a_client_that_was_silent_for_long_makes_room_for_another() {
    let (mut cluster, [first, second, _]) = created(None, |config| {
        let replication = replication::Config { clients_max: 2, ..(*config.replication).clone() };
        (config.replication, config.client_silent) = (replication.into(), Span::from_secs(30));
    });
    (2..=4).for_each(|client| cluster.client(client));
    let full = Some(FileReplyBody::Unavailable(Unavailable::Overloaded));
    assert!(is_changed(&append(&mut cluster, 1, first, 1)));
    cluster.run(ms(1_000));
    assert!(is_changed(&append(&mut cluster, 2, first, 1)));
    assert_eq!(append(&mut cluster, 3, first, 1), full, "nobody was silent for long");
    cluster.disconnect(1, first);
    cluster.disconnect(2, first);
    for _ in 0..40 {
        cluster.run(ms(1_000));
        if is_changed(&append(&mut cluster, 3, first, 1)) {
            break;
        }
    }
    let over = ShardEvent::FileClientOver { object: FILE, client: ClientId { certificate: 1, program: 1 } };
    assert!(cluster.events(first).contains(&over));
    assert_eq!(append(&mut cluster, 1, first, 1), Some(FileReplyBody::Expired));
    // Its successor knows that, too.
    cluster.kill_with_notice(first);
    cluster.run(ms(100));
    assert_eq!(append(&mut cluster, 1, second, 1), Some(FileReplyBody::Expired));
    assert!(is_changed(&append(&mut cluster, 3, second, 2)));
    assert_eq!(cluster.shard(second).file(FILE).unwrap().machine().stat().size, 4);
}

/// Its process stood still meanwhile. What it says before it looks at the time would be no entry, but an operator reads it.
#[test]
fn who_does_not_lead_any_more_declares_nobody_over() {
    let (mut cluster, [first, second, _]) = created(None, |config| {
        let replication = replication::Config { clients_max: 1, ..(*config.replication).clone() };
        (config.replication, config.client_silent) = (replication.into(), Span::from_secs(2));
    });
    cluster.client(3);
    assert!(is_changed(&append(&mut cluster, 1, first, 1)));
    cluster.disconnect(1, first);
    cluster.connect(3, first);
    cluster.run(ms(1_500));
    cluster.freeze(first);
    cluster.isolate(first);
    cluster.run(ms(10_000));
    assert!(is_changed(&append(&mut cluster, 1, second, 2)));
    // The request is there before it looks at its timers.
    cluster.daemons.get_mut(&first).unwrap().is_frozen = false;
    let body = FileBody::Change {
        number: 1,
        settled: 1,
        level: Level::Written,
        under: None,
        change: Change::Append { data: Bytes::from_static(b"x").into() },
    };
    let id = cluster.ask_file(3, first, FILE, body);
    let unknown = FileReplyBody::Unavailable(Unavailable::NoMajority);
    assert_eq!(cluster.file_reply(3, id), Some(unknown));
    let is_over = |event: &ShardEvent| matches!(event, ShardEvent::FileClientOver { .. });
    assert!(!cluster.events(first).iter().any(is_over));
}

/// Files that were written once and are kept: what is remembered of how they came about is bounded for all of them.
#[test]
fn the_logs_of_many_files_are_bounded() {
    let (mut cluster, [first, _, third]) = created(None, |config| config.logs_bytes_max = 20_000);
    let files = (1..=20).map(|low| ObjectId::new(2, low));
    for object in files.clone() {
        let id = cluster.ask_file(1, first, object, FileBody::Create);
        cluster.run(ms(50));
        assert_eq!(cluster.file_reply(1, id), Some(FileReplyBody::Exists));
        let change = Change::Append { data: Bytes::from(vec![1; 3_000]).into() };
        let id = cluster.ask_file(
            1,
            first,
            object,
            FileBody::Change { number: 1, settled: 1, level: Level::Written, under: None, change },
        );
        assert!(is_changed(&cluster.file_reply(1, id)));
    }
    cluster.run(ms(100));
    for node in [first, third] {
        let kept: Vec<u64> =
            files.clone().map(|object| cluster.shard(node).file(object).unwrap().log_bytes()).collect();
        assert!(kept.iter().sum::<u64>() <= 20_000, "{kept:?}");
        assert!(kept[0] == 0 && kept[19] > 3_000, "the last ones stay: {kept:?}");
    }
    // Who missed something takes over a state.
    cluster.kill(third);
    let change = Change::Append { data: Bytes::from_static(b"more").into() };
    let object = ObjectId::new(2, 1);
    let id = cluster.ask_file(
        1,
        first,
        object,
        FileBody::Change { number: 2, settled: 2, level: Level::Written, under: None, change },
    );
    assert!(is_changed(&cluster.file_reply(1, id)));
    cluster.start(third);
    cluster.run(ms(1_000));
    let size = |node| cluster.shard(node).file(object).unwrap().machine().stat().size;
    assert_eq!([size(first), size(third)], [3_004, 3_004]);
}
