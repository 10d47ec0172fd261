use base::{ClientId, ClusterId, Epoch, Members, NodeId, Seq};
use bytes::Bytes;
use namespace::{
    Ask, Born, Change, Expect, Generation, InodeId, LentTo, Lock, LockKind, LockMode, Make, Name, Owner,
    RenameHow, Rights, SetAttributes, Site, Stretch, Ticket, XattrHow, XattrName,
};
use proptest::prelude::*;

use super::*;
use crate::{ClusterMap, MapError, Osd, Settings};

/// A map of one daemon with this behind it.
fn map(exports: &str) -> Result<ClusterMap, MapError> {
    let osd = Osd { id: NodeId(1), address: "a:1".to_owned() };
    let plain = ClusterMap::new(ClusterId([7; 16]), 1, 1, Settings::default(), vec![osd]).unwrap();
    ClusterMap::parse(&(plain.to_text() + exports))
}

fn exports(text: &str) -> Exports {
    map(text).unwrap().exports().clone()
}

/// One rule for everybody, with these lines in it.
fn rule(lines: &str) -> Export {
    let text = format!("[[exports]]\nvolume = \"*\"\nclients = [\"*\"]\n{lines}\n");
    exports(&text).rules()[0].clone()
}

fn role(text: &str) -> Role {
    text.parse().unwrap()
}

fn volume(text: &str) -> VolumeName {
    VolumeName::parse(text).unwrap()
}

fn who(export: &Export, uid: u32, gid: u32, groups: &[u32]) -> (u32, u32, Vec<u32>) {
    let who = export.who(uid, gid, groups).unwrap();
    (who.uid(), who.gid(), who.groups().to_vec())
}

const RULES: &str = r#"
[[exports]]
volume = "home"
clients = ["build", "admin/anna"]
access = "ro"

[[exports]]
volume = "home"
clients = ["laptop"]
path = "/laptops"
access = "rw"
squash = "all"

[[exports]]
volume = "*"
clients = ["build"]
access = "rw"

[[exports]]
volume = "public"
clients = ["*"]
access = "ro"
"#;

#[test]
fn without_rules_every_client_may_use_every_volume_as_whom_it_says() {
    let none = exports("");
    for client in ["client/a", "admin/b"] {
        let export = none.find(&role(client), &volume("any")).unwrap();
        assert_eq!((export.access(), export.path()), (ExportAccess::ReadWrite, &ExportPath::ROOT));
        assert_eq!(who(export, 0, 0, &[0, 5]), (0, 0, vec![0, 5]));
        assert_eq!(who(export, 1_000, 100, &[]), (1_000, 100, vec![]));
        assert_eq!(export.stored_uid(5), Some(5));
        assert_eq!((export.shown_uid(5), export.shown_gid(0)), (5, 0));
    }
    for stranger in ["node/1", "supervisor/1"] {
        assert!(none.find(&role(stranger), &volume("any")).is_err(), "{stranger} uses no volume");
    }
}

#[test]
fn the_first_rule_that_names_both_counts() {
    let exports = exports(RULES);
    let found = |client: &str, name: &str| {
        let found = exports.find(&role(client), &volume(name)).ok()?;
        exports.rules().iter().position(|rule| rule == found)
    };
    assert_eq!(found("client/build", "home"), Some(0));
    assert_eq!(found("admin/anna", "home"), Some(0));
    assert_eq!(found("client/laptop", "home"), Some(1));
    assert_eq!(found("client/build", "public"), Some(2), "not the one that names the volume better");
    assert_eq!(found("client/laptop", "public"), Some(3));
    assert_eq!(found("admin/anna", "public"), Some(3));
    assert_eq!(found("client/anna", "home"), None, "a client is not the operator of the same name");
    assert_eq!(found("client/laptop", "other"), None);
    assert_eq!(found("client/build2", "home"), None);
    assert_eq!(found("node/1", "public"), None, "`*` is every client, and a daemon is none");
    let refused = exports.find(&role("client/laptop"), &volume("other")).unwrap_err().to_string();
    assert!(
        refused.contains("no rule under [[exports]] lets client/laptop use the volume other; add one"),
        "{refused}"
    );
}

#[test]
fn root_is_squashed_unless_the_rule_says_otherwise() {
    let root = rule("access = \"rw\"");
    assert_eq!(who(&root, 0, 0, &[0, 7]), (65_534, 65_534, vec![65_534, 7]));
    assert_eq!(who(&root, 1, 0, &[]), (1, 65_534, vec![]), "the group of root is root's");
    let other = rule("access = \"rw\"\nanonymous_uid = 99\nanonymous_gid = 98");
    assert_eq!(who(&other, 0, 0, &[1, 0]), (99, 98, vec![1, 98]));
    let none = rule("access = \"rw\"\nsquash = \"none\"");
    assert_eq!(who(&none, 0, 0, &[0]), (0, 0, vec![0]));
    let all = rule("access = \"rw\"\nsquash = \"all\"");
    assert_eq!(who(&all, 0, 0, &[0, 1]), (65_534, 65_534, vec![]));
    assert_eq!(who(&all, 1_000, 5, &[6]), (65_534, 65_534, vec![]), "nobody has groups then");
}

#[test]
fn ranges_come_before_squashing() {
    let to_root = "access = \"rw\"\nmap_uids = [{ from = 1000, to = 0, count = 2 }]";
    assert_eq!(who(&rule(to_root), 1_000, 5, &[]).0, 65_534, "no range makes a root that is squashed");
    assert_eq!(who(&rule(to_root), 1_001, 5, &[]).0, 1);
    let not_squashed = rule(&format!("{to_root}\nsquash = \"none\""));
    assert_eq!(who(&not_squashed, 1_000, 5, &[]).0, 0);
    assert_eq!(who(&not_squashed, 0, 5, &[]).0, 65_534, "0 is user 1000 already");

    let container = rule(
        "access = \"rw\"\nmap_uids = [{ from = 0, to = 100000, count = 65536 }]\n\
         map_gids = [{ from = 0, to = 200000, count = 65536 }]",
    );
    assert_eq!(who(&container, 0, 0, &[0, 5]), (100_000, 200_000, vec![200_000, 200_005]));
    assert_eq!(who(&container, 100_001, 1, &[]).0, 65_534, "100001 is user 1 already");
    assert_eq!((container.shown_uid(100_007), container.shown_gid(200_000)), (7, 0));
    assert_eq!(container.shown_uid(7), 65_534, "nobody at the client is user 7 of the volume");
    assert_eq!(container.shown_gid(7), 65_534);
    assert_eq!((container.stored_uid(3), container.stored_uid(100_001)), (Some(100_003), None));
    assert_eq!((container.stored_gid(3), container.stored_gid(200_001)), (Some(200_003), None));
}

#[test]
fn users_and_groups_have_ranges_of_their_own() {
    let export = rule("access = \"rw\"\nmap_gids = [{ from = 10, to = 20, count = 1 }]");
    assert_eq!(who(&export, 10, 10, &[10, 20, 30]), (10, 20, vec![20, 65_534, 30]));
    assert_eq!((export.shown_uid(20), export.shown_gid(20)), (20, 10));
}

#[test]
fn nobody_has_too_many_groups_however_they_are_mapped() {
    let groups: Vec<u32> = (1..=33).collect();
    for squash in ["none", "root", "all"] {
        let export = rule(&format!("access = \"rw\"\nsquash = \"{squash}\""));
        assert_eq!(export.who(1, 1, &groups), Err(TooManyGroups { count: 33 }), "{squash}");
        assert!(export.who(1, 1, &groups[1..]).is_ok());
    }
}

#[test]
fn a_map_says_its_rules_again() {
    let text = r#"
[[exports]]
volume = "b"
clients = ["z", "admin/y", "client/a"]
path = "/a \"quoted\" \\ path\n\u007f/größe"
access = "rw"
map_uids = [{ from = 9, to = 5, count = 1 }, { from = 1, to = 3, count = 2 }]
"#;
    let (read, plain) = (map(text).unwrap(), map("").unwrap());
    let written = read.to_text();
    assert_eq!(ClusterMap::parse(&written), Ok(read));
    let said = written.strip_prefix(&plain.to_text()).unwrap();
    assert_eq!(
        said,
        "\n[[exports]]\nvolume = \"b\"\nclients = [\"a\", \"z\", \"admin/y\"]\n\
         path = \"/a \\\"quoted\\\" \\\\ path\\u000a\\u007f/größe\"\naccess = \"rw\"\nsquash = \"root\"\n\
         anonymous_uid = 65534\nanonymous_gid = 65534\n\
         map_uids = [{ from = 1, to = 3, count = 2 }, { from = 9, to = 5, count = 1 }]\nmap_gids = []\n"
    );
    assert_eq!(map(RULES).unwrap(), ClusterMap::parse(&map(RULES).unwrap().to_text()).unwrap());
}

#[test]
fn the_digest_covers_every_key_of_a_rule_and_their_order() {
    let full = "[[exports]]\nvolume = \"a\"\nclients = [\"b\"]\npath = \"/c\"\naccess = \"rw\"\nsquash = \"all\"\n\
                anonymous_uid = 5\nanonymous_gid = 6\nmap_uids = [{ from = 1, to = 2, count = 3 }]\n\
                map_gids = [{ from = 4, to = 7, count = 8 }]\n";
    let digest = |text: &str| map(text).unwrap().digest();
    assert_ne!(digest(full), digest(""));
    for (from, to) in [
        ("\"a\"", "\"*\""),
        ("\"b\"", "\"b\", \"d\""),
        ("\"/c\"", "\"/d\""),
        ("\"rw\"", "\"ro\""),
        ("\"all\"", "\"root\""),
        ("uid = 5", "uid = 4"),
        ("gid = 6", "gid = 4"),
        ("from = 1", "from = 0"),
        ("to = 2", "to = 1"),
        ("count = 3", "count = 2"),
        ("count = 8", "count = 9"),
    ] {
        assert!(full.contains(from));
        assert_ne!(digest(&full.replace(from, to)), digest(full), "{from}");
    }
    let other = full.replace("\"a\"", "\"b\"");
    assert_ne!(digest(&format!("{full}{other}")), digest(&format!("{other}{full}")));
    // What stands there anyway may be left out.
    let short = "[[exports]]\nvolume = \"a\"\nclients = [\"b\"]\naccess = \"ro\"\n";
    let long = format!("{short}path = \"/\"\nsquash = \"root\"\nanonymous_uid = 65534\nmap_gids = []\n");
    assert_eq!(digest(short), digest(&long));
}

#[test]
fn mistakes_are_named_with_what_to_do() {
    let good = "[[exports]]\nvolume = \"a\"\nclients = [\"b\"]\naccess = \"rw\"\n";
    assert!(map(good).is_ok());
    for (from, to, expected) in [
        ("volume = \"a\"", "", "missing field `volume`; add the key"),
        ("clients = [\"b\"]", "", "missing field `clients`; add the key"),
        ("access = \"rw\"", "", "missing field `access`; add the key"),
        ("access", "acess", "unknown field `acess`"),
        ("\"rw\"", "\"wr\"", "unknown variant `wr`, expected `rw` or `ro`"),
        ("\"rw\"", "\"rw\"\nsquash = \"most\"", "unknown variant `most`"),
        ("\"a\"", "\"\"", "rule 1 under [[exports]]: the name of a volume is empty; use 1 to 64 characters"),
        ("\"a\"", "\"A\"", "`A` is no name of a volume: use letters from a to z"),
        ("\"a\"", "\"a*\"", "`volume` may be \"*\" for every volume"),
        ("[\"b\"]", "[]", "rule 1 under [[exports]]: `clients` is empty; list names of clients, or [\"*\"]"),
        ("[\"b\"]", "[\"\"]", "`clients`: `` is no name: use 1 to 64 letters"),
        ("[\"b\"]", "[\"b c\"]", "`clients`: `b c` is no name"),
        ("[\"b\"]", "[\"king/c\"]", "`king/c` is no role: use"),
        ("[\"b\"]", "[\"node/1\"]", "`clients` lists node/1, which uses no volume; list client/NAME"),
        ("[\"b\"]", "[\"b\", \"client/b\"]", "`clients` lists client/b twice; remove one"),
        ("[\"b\"]", "[\"b\", \"*\"]", "lists \"*\", which is everybody, and others beside it; remove either"),
        (
            "\"rw\"",
            "\"rw\"\npath = \"srv\"",
            "rule 1 under [[exports]]: `path` is `srv`; begin it with a slash",
        ),
        ("\"rw\"", "\"rw\"\npath = \"/a/../b\"", "write it without `.` and `..`"),
        ("\"rw\"", "\"rw\"\nanonymous_uid = 0", "`anonymous_uid` is 0, which is root; use the number of"),
        ("\"rw\"", "\"rw\"\nanonymous_gid = 0", "`anonymous_gid` is 0, which is root"),
        (
            "\"rw\"",
            "\"rw\"\nanonymous_gid = 4294967295",
            "`anonymous_gid` is 4294967295, which systems take for no",
        ),
        ("\"rw\"", "\"rw\"\nanonymous_uid = -1", "line 19, `anonymous_uid = -1`: invalid value"),
    ] {
        let error = map(&good.replace(from, to)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error} lacks {expected}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn mistakes_in_ranges_are_named_with_what_to_do() {
    for (ranges, expected) in [
        (
            "{ from = 1, to = 2, count = 0 }",
            "has a range from 1 to 2 of 0 numbers; give it a `count` from 1 on",
        ),
        (
            "{ from = 4294967295, to = 2, count = 1 }",
            "has a range from 4294967295 to 2 of 1 numbers, and the last number there is is 4294967294; lower `count`",
        ),
        ("{ from = 4, to = 2, count = 4294967292 }", "lower `count`"),
        (
            "{ from = 1, to = 20, count = 3 }, { from = 3, to = 30, count = 1 }",
            "has two ranges with the same numbers, from 1 and from 3 on; let each number stand in one `from` only",
        ),
        (
            "{ from = 1, to = 20, count = 3 }, { from = 7, to = 22, count = 1 }",
            "has two ranges to the same numbers, to 20 and to 22 on; let each number stand in one `to` only",
        ),
        ("{ from = 1, to = 20 }", "missing field `count`; add the key"),
        ("{ from = 1, to = 20, count = 1, gid = 3 }", "unknown field `gid`"),
        (
            &(0..129).map(|n| format!("{{ from = {n}, to = {n}, count = 1 }}, ")).collect::<String>(),
            "has 129 ranges; join or remove some, 128 may stand there",
        ),
    ] {
        for key in ["map_uids", "map_gids"] {
            let rule = "volume = \"*\"\nclients = [\"*\"]\naccess = \"ro\"";
            let text = format!("[[exports]]\n{rule}\n{key} = [{ranges}]\n");
            let error = map(&text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error} lacks {expected}");
            assert!(error.contains("line ") || error.contains(&format!("`{key}` ")), "{error}");
        }
    }
}

#[test]
fn a_rule_that_never_counts_is_a_mistake() {
    let rule = |volume: &str, clients: &str| {
        format!("[[exports]]\nvolume = \"{volume}\"\nclients = [{clients}]\naccess = \"ro\"\n")
    };
    let check = |rules: [String; 2]| map(&rules.concat()).map(drop);
    for (earlier, later) in [
        (rule("*", "\"*\""), rule("a", "\"b\"")),
        (rule("a", "\"*\""), rule("a", "\"*\"")),
        (rule("*", "\"b\", \"c\""), rule("a", "\"c\"")),
        (rule("a", "\"b\""), rule("a", "\"client/b\"")),
    ] {
        let hidden = MapError::Exports(ExportsError::Hidden { number: 2, first: 1 });
        assert!(
            hidden
                .to_string()
                .contains("rule 2 under [[exports]] never counts, because rule 1 names the same")
        );
        assert_eq!(check([earlier, later]), Err(hidden));
    }
    for (earlier, later) in [
        (rule("a", "\"*\""), rule("*", "\"*\"")),
        (rule("a", "\"b\""), rule("a", "\"b\", \"c\"")),
        (rule("a", "\"b\""), rule("a", "\"admin/b\"")),
        (rule("a", "\"b\""), rule("c", "\"b\"")),
        (rule("*", "\"b\""), rule("a", "\"*\"")),
    ] {
        assert_eq!(check([earlier, later]), Ok(()));
    }
}

#[test]
fn rules_and_clients_are_not_too_many() {
    let rule = |n: usize| format!("[[exports]]\nvolume = \"v{n}\"\nclients = [\"b\"]\naccess = \"ro\"\n");
    let rules = |count: usize| map(&(0..count).map(rule).collect::<String>()).map(drop);
    assert_eq!(rules(EXPORTS_MAX), Ok(()));
    let error = rules(EXPORTS_MAX + 1).unwrap_err().to_string();
    assert!(error.contains("257 rules stand under [[exports]]; join some, 256 may be there"), "{error}");

    let clients = |count: usize| {
        let names: Vec<String> = (0..count).map(|n| format!("\"c{n}\"")).collect();
        map(&format!("[[exports]]\nvolume = \"v\"\nclients = [{}]\naccess = \"ro\"\n", names.join(", ")))
            .map(drop)
    };
    assert_eq!(clients(EXPORT_CLIENTS_MAX), Ok(()));
    let error = clients(EXPORT_CLIENTS_MAX + 1).unwrap_err().to_string();
    assert!(error.contains("`clients` lists 257; 256 may stand there: make a second rule"), "{error}");
}

const INODE: InodeId = InodeId::ROOT;
const CLIENT: ClientId = ClientId { certificate: 1, program: 2 };
const OWNER: Owner = Owner { client: CLIENT, number: 1 };
const LOCK: Lock =
    Lock { owner: OWNER, kind: LockKind::Flock, mode: LockMode::Exclusive, stretch: Stretch::ALL };
const BORN: Born = Born { epoch: Epoch { number: 1, node: NodeId(1) }, seq: Seq(1) };

/// Every change there is, and what it takes.
fn changes() -> Vec<(Change, ChangeKind)> {
    use ChangeKind::{Locks, Own, Service, Writes};
    let (inode, client) = (INODE, CLIENT);
    let name = || Name::new(b"a").unwrap();
    let site = || Site { dir: INODE, name: name(), expect: Expect::Any };
    let xattr = || XattrName::new(b"user.a").unwrap();
    let members = Members::new((0..3).map(NodeId)).unwrap();
    let (owner, ticket) = (OWNER, Ticket(BORN));
    let (umask, mode, holders) = (0, 0, Vec::new);
    let make = Make::File { replicas: members };
    let generation = Generation(BORN);
    vec![
        (
            Change::Create { dir: INODE, name: name(), make, mode, umask, is_exclusive: false, lends: false },
            Writes,
        ),
        (Change::Link { inode, dir: INODE, name: name() }, Writes),
        (Change::Unlink { site: site(), holders: holders(), removed: None }, Writes),
        (Change::RemoveDirectory { site: site(), holders: holders() }, Writes),
        (Change::Rename { from: site(), to: site(), how: RenameHow::Exchange, holders: holders() }, Writes),
        (Change::SetAttributes { inode, set: SetAttributes::default() }, Writes),
        (Change::SetXattr { inode, name: xattr(), value: Bytes::new(), how: XattrHow::Any }, Writes),
        (Change::RemoveXattr { inode, name: xattr() }, Writes),
        (Change::Lend { inode, to: LentTo::Content }, Service),
        (Change::Lend { inode, to: LentTo::Client(client) }, Writes),
        (
            Change::Return {
                inode,
                generation,
                modified: None,
                accessed: None,
                mode: None,
                changed: None,
                is_untouched: true,
            },
            Own,
        ),
        (
            Change::GiveBack { inode, generation, given: None, accessed: None, mode: None, changed: None },
            Service,
        ),
        (Change::Hold { inode, client }, Service),
        (Change::Release { inode, client }, Service),
        (Change::Deleted { inode }, Service),
        (Change::Lock { inode, lock: LOCK, wait: true }, Locks),
        (Change::Unlock { inode, owner, kind: LockKind::Fcntl, stretch: Stretch::ALL }, Locks),
        (Change::Cancel { inode, ticket }, Locks),
        (Change::Settle, Service),
        (Change::Welcome { client, opens: true }, Own),
        (Change::Expire { client }, Own),
        (Change::Forget { client }, Service),
        (Change::Limit { inodes_max: 1, bytes_max: 1 }, Service),
    ]
}

#[test]
fn who_may_only_read_locks_and_changes_nothing() {
    let [rw, ro] = ["rw", "ro"].map(|access| rule(&format!("access = \"{access}\"")));
    for (change, kind) in changes() {
        assert_eq!(change_kind(&change), kind, "{change:?}");
        let expected = match kind {
            ChangeKind::Writes => (Ok(()), Err(ExportRefusal::ReadOnly)),
            ChangeKind::Locks | ChangeKind::Own => (Ok(()), Ok(())),
            ChangeKind::Service => (Err(ExportRefusal::Service), Err(ExportRefusal::Service)),
        };
        assert_eq!((rw.allow_change(&change), ro.allow_change(&change)), expected, "{change:?}");
    }
}

#[test]
fn who_may_only_read_asks_what_others_ask_but_not_to_write() {
    let [rw, ro] = ["rw", "ro"].map(|access| rule(&format!("access = \"{access}\"")));
    let inode = INODE;
    let xattr = XattrName::new(b"user.a").unwrap();
    let access = |rights| Ask::Access { inode: INODE, rights };
    for ask in [
        Ask::Lookup { dir: inode, name: Name::new(b"a").unwrap() },
        Ask::Attributes { inode },
        Ask::List { dir: inode, after: None, entries_max: 1, with_attributes: true },
        Ask::Readlink { inode },
        Ask::GetXattr { inode, name: xattr },
        Ask::ListXattrs { inode },
        access(Rights { write: false, read: true, execute: true }),
        Ask::Statfs,
        Ask::TestLock { inode, lock: LOCK },
        Ask::Wish { inode, lock: LOCK, ticket: Ticket(BORN) },
    ] {
        assert_eq!((rw.allow_ask(&ask), ro.allow_ask(&ask)), (Ok(()), Ok(())), "{ask:?}");
    }
    for rights in [Rights::WRITE, Rights::CHANGE] {
        assert_eq!(rw.allow_ask(&access(rights)), Ok(()));
        assert_eq!(ro.allow_ask(&access(rights)), Err(ExportRefusal::ReadOnly));
    }
    for ask in [
        Ask::Locks { inode },
        Ask::Orphans { after: None },
        Ask::Doomed { after: None },
        Ask::Clients { after: None },
        Ask::Holds { client: CLIENT, after: None },
    ] {
        let service = Err(ExportRefusal::Service);
        assert_eq!((rw.allow_ask(&ask), ro.allow_ask(&ask)), (service, service), "{ask:?}");
    }
}

proptest! {
    #[test]
    fn nobody_is_root_where_root_is_squashed(
        ids in prop::collection::vec(prop_oneof![0..4_u32, any::<u32>()], 2..8),
        ranges in prop::collection::vec((0..6_u32, 0..6_u32, 1..4_u32), 0..3),
        squash in prop_oneof![Just("root"), Just("all")],
    ) {
        let range = |(from, to, count)| format!("{{ from = {from}, to = {to}, count = {count} }}");
        let ranges: Vec<String> = ranges.into_iter().map(range).collect();
        let ranges = ranges.join(", ");
        let text = format!(
            "[[exports]]\nvolume = \"*\"\nclients = [\"*\"]\naccess = \"rw\"\nsquash = \"{squash}\"\n\
             map_uids = [{ranges}]\nmap_gids = [{ranges}]\n"
        );
        let Ok(map) = map(&text) else { return Ok(()) };
        let who = map.exports().rules()[0].who(ids[0], ids[1], &ids[2..]).unwrap();
        prop_assert!(!who.is_root() && !who.is_in(0), "{:?}", who);
        prop_assert_eq!(ClusterMap::parse(&map.to_text()), Ok(map));
    }
}
