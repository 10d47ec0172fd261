//! Clients and daemons that do not accept each other's certificates: whoever wants to mount is told so, and does not wait for what never comes.

use std::fs;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Instant;

use crate::support::{Cluster, PATIENCE, fleasefs, is_mounted, said, until};

/// What an attempt to mount comes to, with `--wait`.
fn try_to_mount(folder: &Path, point: &Path) -> Output {
    let mut command = fleasefs();
    command.args(["mount", "--background", "--wait"]).arg(folder).arg(point);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + PATIENCE;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("it waits, for what never comes: {}", said(&child.wait_with_output().unwrap()));
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

fn assert_refused(output: &Output, why: &str) {
    let told = said(output);
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("do not accept each other's certificates"), "{told}");
    assert!(told.contains(why) && told.contains("fleasefs cert renew"), "{told}");
    assert!(!told.contains("no daemon") && !told.contains("trying again"), "{told}");
}

#[test]
fn whoever_has_the_folder_of_another_cluster_is_told_and_does_not_wait() {
    let Some(cluster) = Cluster::start() else { return };
    let map = fs::read_to_string(cluster.dir().join("cluster.toml")).unwrap();
    let addresses = map.lines().filter_map(|line| line.strip_prefix("address = \"")?.strip_suffix('"'));
    let addresses = addresses.collect::<Vec<_>>().join(",");
    let other = cluster.dir().with_file_name("other");
    cluster.run(&["init", other.to_str().unwrap(), "--osds", &addresses]);
    let point = cluster.point("m");
    assert_refused(&try_to_mount(&other.join("client"), &point), "UnknownIssuer");
    assert!(!is_mounted(&point));
}

#[test]
fn whose_certificate_is_denied_is_told_and_does_not_wait() {
    let Some(cluster) = Cluster::start() else { return };
    let (dir, point) = (cluster.dir(), cluster.point("m"));
    let client = dir.join("client");
    let mounted = try_to_mount(&client, &point);
    assert!(mounted.status.success(), "{}", said(&mounted));
    assert!(cluster.umount(&point).status.success());
    cluster.run(&["cert", "deny", dir.to_str().unwrap(), "client"]);
    // They look at the list once a second.
    let is_refused = || {
        let listed = fleasefs().args(["volume", "list", "--cluster"]).arg(&client).output().unwrap();
        !listed.status.success()
    };
    until("the daemons know", is_refused);
    assert_refused(&try_to_mount(&client, &point), "is on the deny list");
    // A new one is welcome.
    cluster.run(&["cert", "renew", dir.to_str().unwrap(), "client"]);
    let mounted = try_to_mount(&client, &point);
    assert!(mounted.status.success(), "{}", said(&mounted));
}
