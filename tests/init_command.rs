//! `fleasefs init` and `fleasefs cert` as people call them.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{SystemTime, UNIX_EPOCH};

use base::{NodeId, Role};
use node::{CapabilityKeys, KeyEpoch};
use serde_json::Value;
use tempfile::TempDir;

const OSDS: &str = "[fd00::1]:7000,b.example:7000,[fd00::3]:7000";
const DAY_S: u64 = 86_400;

/// A folder in which commands are run; the cluster is `c` in it.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn with_cluster() -> Self {
        let place = Self::new();
        place.ok(&["init", "c", "--osds", OSDS]);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fleasefs"));
        command.args(args).current_dir(self.0.path()).output().unwrap()
    }

    /// What a command that must succeed prints.
    fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.ok(&[args, &["--json"]].concat())).unwrap()
    }

    /// What a command that must fail complains of, in one line.
    fn complaint(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        text
    }

    fn names(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// The certificates that `cert list` shows in the cluster's folder: folder, role, state, fingerprint.
    fn certificates(&self) -> Vec<[String; 4]> {
        let listed = self.json(&["cert", "list", "c"]);
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let row = |entry: &Value| {
            let certificate = &entry["certificate"];
            let (folder, state) = (text(&entry["folder"]), text(&entry["state"]));
            [folder, text(&certificate["role"]), state, text(&certificate["fingerprint"])]
        };
        listed["certificates"].as_array().unwrap().iter().map(row).collect()
    }

    fn fingerprint(&self, role: &str) -> String {
        self.certificates().into_iter().find(|row| row[1] == role).unwrap()[3].clone()
    }
}

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn every_folder_stands_on_its_own_wherever_it_is_copied() {
    let place = Place::new();
    let made = place.json(&["init", "c", "--osds", OSDS, "--client", "build"]);
    let folders: Vec<&str> =
        made["folders"].as_array().unwrap().iter().map(|f| f["path"].as_str().unwrap()).collect();
    assert_eq!(folders, ["c/osd-1", "c/osd-2", "c/osd-3", "c/admin", "c/client", "c/client-build"]);

    let mut digests = BTreeSet::new();
    for id in [1, 2, 3].map(NodeId) {
        // Another machine knows nothing of the other folders.
        let machine = place.path(&format!("machine-{id}"));
        fs::rename(place.path(&format!("c/osd-{id}")), &machine).unwrap();
        let config = osd::config::Config::load(&machine.join("osd.toml")).unwrap();
        assert_eq!(config.map.cluster().to_string(), made["cluster"].as_str().unwrap());
        assert_eq!(config.identity(now_s()).unwrap().peer().role, Role::Node(id));
        assert_eq!(config.supervisor_identity(now_s()).unwrap().peer().role, Role::Supervisor(id));
        digests.insert(config.map.digest());
    }
    for (folder, role) in
        [("admin", "admin/admin"), ("client", "client/client"), ("client-build", "client/build")]
    {
        let config = client::Config::find(Some(&place.path("c").join(folder))).unwrap();
        assert_eq!(config.identity(now_s()).unwrap().peer().role.to_string(), role);
        digests.insert(config.map.digest());
    }
    assert_eq!(digests.len(), 1, "everybody has the same map");
}

#[test]
fn keys_are_their_owners_alone() {
    let place = Place::with_cluster();
    let mut keys = 0;
    for folder in ["c", "c/osd-1", "c/osd-2", "c/osd-3", "c/admin", "c/client"].map(|name| place.path(name)) {
        assert_eq!(mode(&folder), 0o700, "{}", folder.display());
        for entry in fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            if fs::read_to_string(&entry).is_ok_and(|text| text.contains("PRIVATE KEY")) {
                assert_eq!(mode(&entry), 0o600, "{}", entry.display());
                keys += 1;
            }
        }
    }
    assert_eq!(keys, 1 + 3 * 2 + 2);
}

#[test]
fn what_is_there_is_never_touched() {
    let place = Place::with_cluster();
    let before = place.certificates();
    let complaint = place.complaint(&["init", "c", "--osds", OSDS]);
    assert!(complaint.contains("c is not empty, and nothing in it was touched"), "{complaint}");
    assert_eq!(place.certificates(), before);
    fs::write(place.path("file"), "").unwrap();
    assert!(place.complaint(&["init", "file", "--osds", OSDS]).contains("is no folder"));
    fs::create_dir(place.path("empty")).unwrap();
    place.ok(&["init", "empty", "--osds", OSDS]);
    assert_eq!(mode(&place.path("empty")), 0o700);
}

#[test]
fn a_cluster_that_cannot_be_is_not_begun() {
    let place = Place::new();
    for (args, expected) in [
        (&["--osds", "a:1,b"][..], "`b` is no address: use host:port"),
        (&["--osds", "a:1,a:1"], "the address a:1 is listed twice"),
        (&["--osds", "a:1,b:1", "--replicas", "3"], "3 replicas need as many daemons, and --osds lists 2"),
        (
            &["--osds", "10.0.0.1:1,b:1,[fd00::1]:1"],
            "10.0.0.1:1 is an IPv4 and [fd00::1]:1 an IPv6 address, and daemons there cannot reach each other",
        ),
        (&["--osds", "a:1", "--replicas", "0"], "`replicas` cannot be 0"),
        (&["--osds", "a:1", "--t-max-ms", "200"], "t_max (200ms) must be longer than"),
    ] {
        let complaint = place.complaint(&[&["init", "c"], args].concat());
        assert!(complaint.contains(expected), "{complaint} lacks {expected}");
    }
    assert!(place.complaint(&["init", "no/c", "--osds", "a:1"]).contains("name a folder in one that exists"));
    for wrong in [&["init", "c"][..], &["init", "c", "--osds", "a:1", "--client", "a/b"]] {
        assert_eq!(place.run(wrong).status.code(), Some(2), "{wrong:?}");
    }
    assert_eq!(place.names(), BTreeSet::new(), "nothing is left behind");
}

#[test]
fn certificates_are_issued_for_clients_operators_and_new_daemons() {
    let place = Place::with_cluster();
    let issued = place.json(&["cert", "issue", "c", "--role", "client/build", "--days", "30"]);
    let left_s = issued["certificate"]["not_after_s"].as_u64().unwrap() - now_s();
    assert!((29 * DAY_S..=30 * DAY_S).contains(&left_s), "{left_s}");
    place.ok(&["cert", "issue", "c", "--role", "admin/anna", "--out", "anna"]);
    let config = client::Config::find(Some(&place.path("anna"))).unwrap();
    assert_eq!(config.identity(now_s()).unwrap().peer().role.to_string(), "admin/anna");

    let again = place.complaint(&["cert", "issue", "c", "--role", "client/build"]);
    assert!(again.contains("client-build is not empty, and nothing in it was touched"), "{again}");
    let supervisor = place.complaint(&["cert", "issue", "c", "--role", "supervisor/1"]);
    assert!(supervisor.contains("use --role node/1"), "{supervisor}");
    let unknown = place.complaint(&["cert", "issue", "c", "--role", "node/4"]);
    assert!(unknown.contains("node 4 is not in cluster.toml"), "{unknown}");
    assert_eq!(place.run(&["cert", "issue", "c", "--role", "king/1"]).status.code(), Some(2));

    let map = fs::read_to_string(place.path("c/cluster.toml")).unwrap();
    fs::write(place.path("c/cluster.toml"), map + "[[osds]]\nid = 4\naddress = \"d:1\"\n").unwrap();
    place.ok(&["cert", "deny", "c", "client-build"]);
    place.ok(&["cert", "issue", "c", "--role", "node/4"]);
    let config = osd::config::Config::load(&place.path("c/osd-4/osd.toml")).unwrap();
    let identity = config.identity(now_s()).unwrap();
    let build = place.fingerprint("client/build").parse().unwrap();
    assert!(identity.deny_list().denies(&build), "a new daemon denies whom the others deny");
    assert_eq!(place.names(), ["anna", "c"].map(str::to_owned).into(), "nothing is left behind");
}

#[test]
fn renewed_certificates_are_new_and_good() {
    let place = Place::with_cluster();
    let before = place.certificates();
    let renewed = place.json(&["cert", "renew", "c", "osd-2", "c/admin"]);
    assert_eq!(renewed["renewed"].as_array().unwrap().len(), 3, "daemon, supervisor and operator");
    for (before, after) in before.iter().zip(place.certificates()) {
        let is_chosen = before[0] == "osd-2" || before[0] == "admin";
        assert_eq!(before[3] != after[3], is_chosen, "{after:?}");
        assert_eq!(before[..3], after[..3]);
    }
    let config = osd::config::Config::load(&place.path("c/osd-2/osd.toml")).unwrap();
    assert!(config.identity(now_s()).is_ok() && config.supervisor_identity(now_s()).is_ok());
    place.ok(&["cert", "renew", "c"]);
    assert!(place.certificates().iter().zip(&before).all(|(after, before)| after[3] != before[3]));
}

#[test]
fn denied_certificates_are_on_every_daemons_list() {
    let place = Place::with_cluster();
    let (client, node) = (place.fingerprint("client/client"), place.fingerprint("node/3"));
    place.ok(&["cert", "deny", "c", "client", "--comment", "laptop lost"]);
    // Twice is once, by folder or by fingerprint.
    place.ok(&["cert", "deny", "c", &client, &node]);
    for id in 1..=3 {
        let text = fs::read_to_string(place.path(&format!("c/osd-{id}/denied.txt"))).unwrap();
        assert!(text.contains(&format!("\n{client} # client/client laptop lost\n")), "{text}");
        assert_eq!(text.matches(&client).count(), 1, "{text}");
        assert_eq!(text.parse::<net::Denied>().unwrap().iter().len(), 2);
    }
    let denied = place.certificates().into_iter().filter(|row| row[2] == "denied").map(|row| row[1].clone());
    assert_eq!(denied.collect::<Vec<_>>(), ["client/client", "node/3"]);
    let unknown = place.complaint(&["cert", "deny", "c", "clinet"]);
    assert!(unknown.contains("`clinet` is neither a fingerprint nor a folder"), "{unknown}");
}

#[test]
fn without_the_authoritys_key_nothing_is_signed_but_all_is_shown() {
    let place = Place::with_cluster();
    fs::rename(place.path("c/ca.key"), place.path("safe")).unwrap();
    assert_eq!(place.certificates().len(), 8);
    for args in [&["cert", "issue", "c", "--role", "client/a"][..], &["cert", "renew", "c"]] {
        let complaint = place.complaint(args);
        assert!(complaint.contains("bring ca.key back"), "{complaint}");
    }
    assert!(!place.path("c/client-a").exists());
    fs::rename(place.path("safe"), place.path("c/ca.key")).unwrap();
    fs::set_permissions(place.path("c/ca.key"), fs::Permissions::from_mode(0o640)).unwrap();
    let complaint = place.complaint(&["cert", "issue", "c", "--role", "client/a"]);
    assert!(complaint.contains("mode 0640") && complaint.contains("chmod 600"), "{complaint}");
}

#[test]
fn a_copied_folder_shows_its_certificates() {
    let place = Place::with_cluster();
    fs::rename(place.path("c/osd-2"), place.path("c2")).unwrap();
    let text = place.ok(&["cert", "list", "c2"]);
    for expected in ["authority", "node/2", "supervisor/2", "good"] {
        assert!(text.contains(expected), "{text} lacks {expected}");
    }
    let complaint = place.complaint(&["cert", "list", "nowhere"]);
    assert!(
        complaint.contains("nowhere/cluster.toml; name a folder that `fleasefs init` made"),
        "{complaint}"
    );
}

/// The keys of capabilities in a daemon's folder.
fn keys(place: &Place, folder: &str) -> CapabilityKeys {
    let config = osd::config::Config::load(&place.path(folder).join("osd.toml")).unwrap();
    config.capability_keys().unwrap().expect("there is a file of keys")
}

#[test]
fn all_daemons_of_a_cluster_have_the_same_keys_and_no_other_cluster_has() {
    let place = Place::with_cluster();
    let first = keys(&place, "c/osd-1");
    assert_eq!(first.latest(), KeyEpoch(1));
    for folder in ["c/osd-2", "c/osd-3"] {
        assert_eq!(keys(&place, folder), first);
        assert_eq!(mode(&place.path(folder).join("capability.keys")), 0o600);
    }
    for folder in ["c", "c/admin", "c/client"] {
        assert!(!place.path(folder).join("capability.keys").exists(), "{folder} has no use for keys");
    }
    place.ok(&["init", "d", "--osds", OSDS]);
    assert_ne!(keys(&place, "d/osd-1"), first);

    let map = fs::read_to_string(place.path("c/cluster.toml")).unwrap();
    fs::write(place.path("c/cluster.toml"), map + "[[osds]]\nid = 4\naddress = \"d:1\"\n").unwrap();
    place.ok(&["cert", "issue", "c", "--role", "node/4"]);
    assert_eq!(keys(&place, "c/osd-4"), first, "a new daemon has the keys of the others");
    assert_eq!(mode(&place.path("c/osd-4/capability.keys")), 0o600);
}

#[test]
fn a_key_is_added_for_all_daemons_and_what_was_there_stays() {
    let place = Place::with_cluster();
    let text = |folder: &str| fs::read_to_string(place.path(folder).join("capability.keys")).unwrap();
    let before = text("c/osd-1");
    let added = place.json(&["cert", "keys", "c", "--after", "2"]);
    assert_eq!(added["epoch"], 2);
    assert_eq!(added["files"].as_array().unwrap().len(), 3);
    let from_s = added["used_from_s"].as_u64().unwrap();
    assert!((2 * 3_600 - 60..=2 * 3_600).contains(&(from_s - now_s())), "{from_s}");
    for folder in ["c/osd-1", "c/osd-2", "c/osd-3"] {
        assert_eq!(keys(&place, folder).latest(), KeyEpoch(2));
        assert!(text(folder).starts_with(&before) && text(folder).ends_with(&format!(" {from_s}\n")));
        assert_eq!(mode(&place.path(folder).join("capability.keys")), 0o600);
    }
    assert_eq!(text("c/osd-1"), text("c/osd-3"));
    let told = place.ok(&["cert", "keys", "c", "--after", "0"]);
    assert!(told.contains("Added key 3, used at once") && told.contains("c/osd-2/capability.keys"), "{told}");
    let secret = text("c/osd-1").lines().last().unwrap().split_whitespace().nth(1).unwrap().to_owned();
    assert!(secret.len() == 64 && !told.contains(&secret), "no key is ever printed");

    assert!(!told.contains("have no folder here"), "{told}");
    fs::rename(place.path("c/osd-3"), place.path("machine-3")).unwrap();
    let told = place.ok(&["cert", "keys", "c"]);
    assert!(
        told.contains("used in 24 h") && told.contains("to the daemons that have no folder here"),
        "{told}"
    );
}

#[test]
fn a_cluster_of_before_gets_its_first_key() {
    let place = Place::with_cluster();
    for id in 1..=3 {
        fs::remove_file(place.path(&format!("c/osd-{id}/capability.keys"))).unwrap();
        let config = osd::config::Config::load(&place.path(&format!("c/osd-{id}/osd.toml"))).unwrap();
        assert!(config.capability_keys().unwrap().is_none());
    }
    let added = place.json(&["cert", "keys", "c"]);
    assert_eq!(
        (added["epoch"].as_u64(), added["used_from_s"].as_u64()),
        (Some(1), None),
        "there is none to wait with"
    );
    assert_eq!(keys(&place, "c/osd-2"), keys(&place, "c/osd-3"));

    // One that lost its file gets what the others have.
    fs::remove_file(place.path("c/osd-2/capability.keys")).unwrap();
    place.ok(&["cert", "keys", "c"]);
    assert_eq!(keys(&place, "c/osd-2"), keys(&place, "c/osd-1"));
    assert_eq!(keys(&place, "c/osd-2").latest(), KeyEpoch(2));
}

#[test]
fn keys_that_are_not_the_same_everywhere_are_not_added_to() {
    let place = Place::with_cluster();
    place.ok(&["init", "d", "--osds", OSDS]);
    fs::copy(place.path("d/osd-1/capability.keys"), place.path("c/osd-3/capability.keys")).unwrap();
    let complaint = place.complaint(&["cert", "keys", "c"]);
    assert!(
        complaint.contains("hold different keys; copy the one that the daemons use over the other"),
        "{complaint}"
    );
    assert!(
        complaint.contains("c/osd-1/capability.keys") && complaint.contains("c/osd-3/capability.keys"),
        "{complaint}"
    );
    assert_eq!(keys(&place, "c/osd-1").latest(), KeyEpoch(1), "nothing was written");

    fs::write(place.path("c/osd-1/capability.keys"), "1 secret\n").unwrap();
    let complaint = place.complaint(&["cert", "keys", "c"]);
    assert!(
        complaint.contains("c/osd-1/capability.keys: the key in line 1 is not 64 hexadecimal digits"),
        "{complaint}"
    );
    assert!(!complaint.contains("secret"), "{complaint}");
    let complaint = place.complaint(&["cert", "keys", "c/osd-2"]);
    assert!(
        complaint.contains("c/osd-2 is the folder of one daemon, and all have the same keys"),
        "{complaint}"
    );
    let complaint = place.complaint(&["cert", "keys", "c/client"]);
    assert!(complaint.contains("c/client has no daemon's folder in it"), "{complaint}");
    fs::set_permissions(place.path("d/osd-1/capability.keys"), fs::Permissions::from_mode(0o640)).unwrap();
    assert!(place.complaint(&["cert", "keys", "d"]).contains("holds a private key and has mode 0640"));
}
