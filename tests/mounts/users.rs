//! What users may do, as everywhere: only root can be several of them, so only root tests it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::{Command, Output};

use crate::support::{Cluster, is_root, said};

const USER: u32 = 4001;
const GROUP: u32 = 4002;
const OTHER_GROUP: u32 = 4003;

/// Runs a line of shell as a user, in one more group if it is asked for.
fn as_user(script: &str, with_other_group: bool) -> Output {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={USER}"), format!("--regid={GROUP}")]);
    command.arg(if with_other_group {
        format!("--groups={OTHER_GROUP}")
    } else {
        "--clear-groups".to_owned()
    });
    command.args(["sh", "-c", script]).output().unwrap()
}

fn root_only() -> Option<Cluster> {
    is_root().then(Cluster::start).flatten()
}

#[test]
fn modes_and_groups_count_for_other_users() {
    let Some(cluster) = root_only() else { return };
    // Others have to get to the mount.
    fs::set_permissions(cluster.dir().parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let point = cluster.mount_with("m", &["-oallow_other"]);
    let file = point.join("f");
    fs::write(&file, "secret\n").unwrap();
    chown(&file, Some(0), Some(OTHER_GROUP)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let path = file.display();
    let refused = as_user(&format!("cat {path}"), false);
    assert!(said(&refused).contains("Permission denied"), "{}", said(&refused));
    let read = as_user(&format!("cat {path}"), true);
    assert_eq!(read.stdout, b"secret\n", "{}", said(&read));
    let refused = as_user(&format!("echo x >> {path}"), true);
    assert!(!refused.status.success());
    let refused = as_user(&format!("echo x > {}/new", point.display()), true);
    assert!(!refused.status.success());
    // Only to be written, only to be run.
    chown(&file, Some(USER), Some(GROUP)).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o200)).unwrap();
    assert!(as_user(&format!("echo x >> {path}"), false).status.success());
    let refused = as_user(&format!("cat {path}"), false);
    assert!(!refused.status.success());
    let program = point.join("true");
    fs::copy("/bin/true", &program).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o711)).unwrap();
    let run = as_user(&program.display().to_string(), false);
    assert!(run.status.success(), "{}", said(&run));
}

#[test]
fn who_writes_to_a_program_that_is_somebody_elses_ends_its_privileges() {
    let Some(cluster) = root_only() else { return };
    fs::set_permissions(cluster.dir().parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let point = cluster.mount_with("m", &["-oallow_other"]);
    let other = cluster.mount("other");
    for script in ["echo x >> ", "echo x > ", "truncate -s 1 ", "fallocate -l 9000 "] {
        let file = point.join("f");
        fs::write(&file, "program\n").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o6777)).unwrap();
        let done = as_user(&format!("{script}{}", file.display()), false);
        assert!(done.status.success(), "{script}: {}", said(&done));
        for mount in [&point, &other] {
            let mode = fs::metadata(mount.join("f")).unwrap().mode();
            assert_eq!(mode & 0o7777, 0o777, "{script}: {mode:o}");
        }
    }
    let file = point.join("f");
    for owner in [None, Some(0)] {
        fs::set_permissions(&file, fs::Permissions::from_mode(0o6777)).unwrap();
        chown(&file, owner, None).unwrap();
        let modes = [&point, &other].map(|mount| fs::metadata(mount.join("f")).unwrap().mode() & 0o7777);
        assert_eq!(modes, [0o777; 2], "the owner was set, to {owner:?}");
    }
}

#[test]
fn what_a_directory_hands_down_beats_the_umask() {
    let Some(cluster) = root_only() else { return };
    let point = cluster.mount("m");
    let dir = point.join("d");
    fs::create_dir(&dir).unwrap();
    let script = |line: &str| {
        let output = Command::new("sh").arg("-c").arg(line).current_dir(&dir).output().unwrap();
        assert!(output.status.success(), "{line}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    script("umask 077; echo > a");
    assert_eq!(fs::metadata(dir.join("a")).unwrap().mode() & 0o777, 0o600);
    if Command::new("setfacl").arg("--version").output().is_err() {
        let _ = std::io::Write::write_all(&mut std::io::stderr(), b"not tested: setfacl is not installed\n");
        return;
    }
    script(&format!("setfacl -d -m u::rwx,g::r-x,o::r-x,u:{USER}:rwx ."));
    script("umask 077; echo > b");
    assert_eq!(fs::metadata(dir.join("b")).unwrap().mode() & 0o777, 0o664);
    assert!(script("getfacl -n b").contains(&format!("user:{USER}:rwx")));
}
