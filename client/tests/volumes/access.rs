//! Who may use which volume, by certificates of different roles.

use std::time::Duration;

use bytes::Bytes;
use client::{Client, Config, ObjectError, VolumeError};
use namespace::{Ask, Change, InodeId, Make, SetAttributes, Who};
use node::file::FileError;
use node::{AccessError, CapabilityError, OpenMode, Settings};
use tokio::time::sleep;

use super::cluster::Cluster;
use super::{called, made, name};

const EXPORTS: &str = r#"
[[exports]]
volume = "*"
clients = ["admin/anna"]
access = "rw"
squash = "none"

[[exports]]
volume = "home"
clients = ["build"]
access = "rw"
map_uids = [{ from = 1000, to = 21000, count = 10 }]

[[exports]]
volume = "home"
clients = ["reader"]
access = "ro"
"#;

/// A client with a certificate of this role.
async fn client_as(cluster: &Cluster, role: &str) -> Client {
    let home = cluster.add_client(role, &role.replace('/', "-"));
    Client::connect(&Config::find(Some(&home)).unwrap()).await.unwrap()
}

/// What somebody is told who may not do something.
fn refused<T>(told: Result<T, VolumeError>) -> AccessError {
    match told.map(drop) {
        Err(VolumeError::Object(ObjectError::Refused(FileError::Access(error)))) => error,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn each_client_is_what_the_rules_say_of_its_certificate() {
    let cluster = Cluster::start_under(EXPORTS, 3, Settings::default());
    let [admin, build] = [client_as(&cluster, "admin/anna").await, client_as(&cluster, "client/build").await];
    let [reader, other] = [client_as(&cluster, "client/reader").await, cluster.client().await];
    let told = build.create_volume(&called("home"), (0, 0)).await;
    assert_eq!(refused(told), AccessError::OperatorsOnly);
    let home = admin.create_volume(&called("home"), (0, 0)).await.unwrap();
    let open_to_all = SetAttributes { mode: Some(0o777), ..SetAttributes::default() };
    let change = Change::SetAttributes { inode: InodeId::ROOT, set: open_to_all };
    home.change(&Who::root(), change).await.unwrap();
    for client in [&build, &reader, &other] {
        assert_eq!(client.volumes().await.unwrap(), [called("home")], "all read which volumes there are");
        let volume = client.volume(&called("home")).await.unwrap();
        assert_eq!(refused(client.delete_volume(&volume).await), AccessError::OperatorsOnly);
    }
    let stranger = other.volume(&called("home")).await.unwrap();
    assert_eq!(refused(stranger.attributes(InodeId::ROOT).await), AccessError::NotExported);

    let user = Who::new(1_001, 100, &[]).unwrap();
    let building = build.volume(&called("home")).await.unwrap();
    let (file, opened) = building.create_file(&user, (InodeId::ROOT, name("f")), (0o640, 0)).await.unwrap();
    assert_eq!((file.uid, opened.unwrap().open.mode), (1_001, OpenMode::ReadWrite));
    assert_eq!(home.attributes(file.inode).await.unwrap().uid, 21_001);
    let reading = reader.volume(&called("home")).await.unwrap();
    assert_eq!(refused(made(&reading, (InodeId::ROOT, "g"), Make::file()).await), AccessError::ReadOnly);
    assert_eq!(refused(reading.open(&user, file.inode, OpenMode::ReadWrite).await), AccessError::ReadOnly);
    let member = Who::new(5, 100, &[]).unwrap();
    let (shown, capability) = reading.open(&member, file.inode, OpenMode::Read).await.unwrap();
    assert_eq!((shown.uid, capability.open.mode), (21_001, OpenMode::Read));
    let service = reading.ask(&member, Ask::Clients { after: None }).await;
    assert_eq!(service, Err(VolumeError::Object(ObjectError::Refused(FileError::NotForClients))));
    for client in [admin, build, reader, other] {
        client.close().await;
    }
}

#[tokio::test]
async fn who_has_other_numbers_in_a_volume_has_the_daemons_set_permissions() {
    let cluster = Cluster::start_under(EXPORTS, 3, Settings::default());
    let [admin, build] = [client_as(&cluster, "admin/anna").await, client_as(&cluster, "client/build").await];
    let home = admin.create_volume(&called("home"), (21_001, 0)).await.unwrap();
    let (building, user) = (build.volume(&called("home")).await.unwrap(), Who::new(1_001, 100, &[]).unwrap());
    let set = SetAttributes { mode: Some(0o640), ..SetAttributes::default() };
    for number in 0..400 {
        let place = (InodeId::ROOT, name(&format!("f{number}")));
        let file = build.create_file(&building, &user, place, (0o600, 0)).await.unwrap();
        let inode = file.inode();
        let is_lent = building.has_lent(&building.attributes(inode).await.unwrap());
        assert_eq!(building.set_own(&user, inode, set), None);
        if is_lent {
            building.change(&user, Change::SetAttributes { inode, set }).await.unwrap();
            assert_eq!(home.attributes(inode).await.unwrap().mode, 0o640);
            admin.close().await;
            return build.close().await;
        }
        sleep(Duration::from_millis(10)).await;
    }
    panic!("nothing is lent to it");
}

/// Every daemon makes and takes capabilities with the same keys, before and after it starts anew.
#[tokio::test]
async fn what_is_open_stays_open_when_daemons_start_anew() {
    let mut cluster = Cluster::start(3, Settings::default());
    let (client, other) = (cluster.client().await, client_as(&cluster, "client/other").await);
    let volume = client.create_volume(&called("v"), (0, 0)).await.unwrap();
    let user = Who::root();
    let (file, opened) = volume.create_file(&user, (InodeId::ROOT, name("f")), (0, 0)).await.unwrap();
    let mut capability = opened.unwrap();
    for id in 1..=3 {
        cluster.stop_daemon(id).await.unwrap();
        cluster.start_daemon(id);
        let (attributes, renewed) = volume.renew(&capability).await.unwrap();
        assert_eq!((attributes.inode, renewed.open), (file.inode, capability.open));
        assert!(renewed.expires > capability.expires);
        capability = renewed;
    }
    let foreign = other.volume(&called("v")).await.unwrap().renew(&capability).await;
    let expected = FileError::Capability(CapabilityError::ForeignClient);
    assert_eq!(foreign, Err(VolumeError::Object(ObjectError::Refused(expected))));
    client.close().await;
    other.close().await;
}

const CONFINED: &str = r#"
[[exports]]
volume = "*"
clients = ["admin/anna"]
access = "rw"
squash = "none"

[[exports]]
volume = "shared"
clients = ["guest"]
path = "/guests"
access = "rw"
squash = "all"
anonymous_uid = 5000
anonymous_gid = 5000
"#;

#[tokio::test]
async fn a_guest_stays_in_its_directory() {
    let mut cluster = Cluster::start_under(CONFINED, 3, Settings::default());
    let admin = client_as(&cluster, "admin/anna").await;
    let guest = client_as(&cluster, "client/guest").await;
    let all = admin.create_volume(&called("shared"), (0, 0)).await.unwrap();
    let who = Who::root();
    let guests = all.make(&who, (InodeId::ROOT, name("guests")), (Make::Directory, 0o777, 0)).await.unwrap();
    let (secret, _) = all.create_file(&who, (InodeId::ROOT, name("secret")), (0o666, 0)).await.unwrap();

    let shared = guest.volume(&called("shared")).await.unwrap();
    assert_eq!(shared.attributes(InodeId::ROOT).await.unwrap().inode, InodeId::ROOT);
    let (file, opened) = shared.create_file(&who, (InodeId::ROOT, name("f")), (0o600, 0)).await.unwrap();
    assert_eq!((file.uid, opened.is_some()), (5_000, true));
    assert_eq!(all.lookup(&who, guests.inode, name("f")).await.unwrap().inode, file.inode);
    let told = shared.open(&who, secret.inode, OpenMode::Read).await;
    assert_eq!(refused(told), AccessError::Outside);
    // The library shows what it was told, to whichever daemon leads by then.
    for id in 1..=3 {
        cluster.stop_daemon(id).await.unwrap();
        cluster.start_daemon(id);
        assert_eq!(shared.attributes(file.inode).await.unwrap().inode, file.inode);
        assert!(shared.open(&who, file.inode, OpenMode::ReadWrite).await.is_ok());
    }
    // What it writes others find.
    let rights = (file.inode, OpenMode::ReadWrite);
    let written = guest.open_file(&shared, &who, rights).await.unwrap();
    written.write(0, Bytes::from_static(b"mine")).await.unwrap();
    let read = admin.open_file(&all, &who, rights).await.unwrap().read(0, 9).await;
    assert_eq!(read.unwrap().as_ref(), b"mine");
    // Another program of the same client was told nothing, until it looks.
    let again =
        Client::connect(&Config::find(Some(&cluster.home_of("client-guest"))).unwrap()).await.unwrap();
    let volume = again.volume(&called("shared")).await.unwrap();
    assert_eq!(refused(volume.attributes(file.inode).await), AccessError::Outside);
    assert_eq!(volume.list(InodeId::ROOT, None, false).await.unwrap().entries.len(), 1);
    assert!(volume.attributes(file.inode).await.is_ok());
    for client in [admin, guest, again] {
        client.close().await;
    }
}
