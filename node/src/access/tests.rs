use std::sync::Arc;

use base::{ClusterId, NodeId, WallTime};
use bytes::Bytes;
use namespace::{InodeId, Op, Root, SetAttributes, VolumeName, Who};

use super::*;
use crate::file::{Level, Query};
use crate::{ClusterMap, Osd, Settings, file_object, object_named, volume_object};

const ROOT: InodeId = InodeId::ROOT;

fn change(change: Change) -> FileBody {
    FileBody::Change { number: 1, settled: 1, level: Level::Written, under: None, change }
}

fn plant() -> FileBody {
    let name = VolumeName::parse("home").unwrap();
    change(Change::Plant(Root { time: WallTime::ZERO, uid: 0, gid: 0, mode: 0o755, name }))
}

fn tree(of: namespace::Change) -> FileBody {
    change(Change::Tree(Arc::new(Op::wanted(Who::root(), of))))
}

fn touch() -> FileBody {
    tree(namespace::Change::SetAttributes { inode: ROOT, set: SetAttributes::default() })
}

fn limit() -> FileBody {
    tree(namespace::Change::Limit { inodes_max: 1, bytes_max: 1 })
}

fn write() -> FileBody {
    change(Change::Append { data: Bytes::from_static(b"x").into() })
}

/// A map with a rule, and one without.
fn exports() -> [Exports; 2] {
    let osds = (1..=3).map(|id| Osd { id: NodeId(id), address: format!("a{id}:1") });
    let plain = ClusterMap::new(ClusterId([1; 16]), 1, 3, Settings::default(), osds.collect()).unwrap();
    let rule = "\n[[exports]]\nvolume = \"*\"\nclients = [\"*\"]\naccess = \"rw\"\n";
    [rule, ""].map(|rule| ClusterMap::parse(&(plain.to_text() + rule)).unwrap().exports().clone())
}

fn roles() -> [Role; 2] {
    ["client/a", "admin/a"].map(|role| role.parse().unwrap())
}

/// What a client and an operator are told where there are rules, and a client where there are none.
fn told(object: ObjectId, body: &FileBody) -> [Result<(), FileError>; 3] {
    let ([with, without], [client, admin]) = (exports(), roles());
    [(&with, &client), (&with, &admin), (&without, &client)].map(|who| check_purpose(who, object, body))
}

#[test]
fn where_there_are_rules_operators_manage_volumes() {
    let only_operators = [Err(AccessError::OperatorsOnly.into()), Ok(()), Ok(())];
    let volume = volume_object(ROOT);
    for body in [FileBody::Create, change(Change::Begin), change(Change::Remove), plant(), limit()] {
        assert_eq!(told(volume, &body), only_operators, "{body:?}");
        assert_eq!(told(list_of_volumes(), &body), only_operators, "{body:?}");
    }
    assert_eq!(told(list_of_volumes(), &touch()), only_operators);
    assert_eq!(told(volume, &touch()), [Ok(()); 3], "that is for the volume's rule to say");
    assert_eq!(told(object_named("a"), &plant()), only_operators, "wherever it would be");
}

#[test]
fn the_list_of_volumes_is_read_by_all() {
    let body = FileBody::Ask(Query::Stat);
    assert_eq!(told(list_of_volumes(), &body), [Ok(()); 3]);
}

#[test]
fn no_bytes_are_where_a_volume_is_to_be() {
    assert_eq!(told(volume_object(ROOT), &write()), [Err(FileError::IsTree); 3]);
}

#[test]
fn the_data_of_a_volumes_file_is_made_by_nobody_else() {
    let file = file_object(volume_object(ROOT), ROOT);
    for body in [FileBody::Create, change(Change::Begin), plant()] {
        assert_eq!(told(file, &body), [Err(AccessError::FileOfVolume.into()); 3], "{body:?}");
    }
}

#[test]
fn objects_by_name_are_everybodys() {
    for body in [FileBody::Create, change(Change::Begin), change(Change::Remove), write()] {
        assert_eq!(told(object_named("a"), &body), [Ok(()); 3], "{body:?}");
    }
}
