use std::fs;

use base::ClusterId;
use net::credentials::write_public;
use net::{Authority, Validity};
use node::{Osd, Settings};
use tempfile::TempDir;

use super::*;

const CLUSTER: ClusterId = ClusterId([7; 16]);
const NODE: NodeId = NodeId(2);
const NOW_S: u64 = 1_800_000_000;

/// The folder of daemon 2 of a cluster, as it is made for a machine.
struct Folder {
    folder: TempDir,
    authority: Authority,
}

impl Folder {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let osds = (1..=3).map(|id| Osd { id: NodeId(id), address: format!("10.0.0.{id}:700{id}") });
        let map = ClusterMap::new(CLUSTER, 1, 3, Settings::default(), osds.collect()).unwrap();
        let authority = Authority::new(CLUSTER, Validity::ALWAYS).unwrap();
        for (name, role) in [("node", Role::Node(NODE)), ("supervisor", Role::Supervisor(NODE))] {
            let identity = authority.issue(&role, &[], Validity::ALWAYS).unwrap();
            identity.save(&CredentialFiles::in_folder(folder.path(), name)).unwrap();
        }
        let made = Self { folder, authority };
        made.write("cluster.toml", &map.to_text());
        made.write("osd.toml", &commented(NODE, Engine::Redb));
        made.write("denied.txt", "# nobody\n");
        made
    }

    fn write(&self, name: &str, text: &str) {
        write_public(&self.folder.path().join(name), text).unwrap();
    }

    fn load(&self) -> Result<Config, ConfigError> {
        Config::load(&self.folder.path().join("osd.toml"))
    }

    /// What is said about a configuration with this text.
    fn complaint(&self, text: &str) -> String {
        self.write("osd.toml", text);
        self.load().unwrap_err().to_string()
    }
}

#[test]
fn the_file_that_a_daemon_starts_with_says_what_holds_anyway() {
    let folder = Folder::new();
    let config = folder.load().unwrap();
    assert_eq!((config.node, config.listen.as_str()), (NODE, "10.0.0.2:7002"));
    assert_eq!(config.metrics.as_deref(), Some("127.0.0.1:7002"));
    assert_eq!(config.data, folder.folder.path().join("data"));

    // Each key that is commented out is there with its default; two of them depend on the map.
    let is_key = |line: &str| line.starts_with('#') && line.contains(" = ") && !line.starts_with("# ");
    let keys = commented(NODE, Engine::Redb).lines().filter(|line| is_key(line)).count();
    assert_eq!(keys, 18);
    let uncommented: String = commented(NODE, Engine::Redb)
        .lines()
        .map(|line| if is_key(line) { format!("{}\n", &line[1..]) } else { format!("{line}\n") })
        .collect();
    folder.write("osd.toml", &uncommented);
    let spelled_out =
        Config { listen: config.listen.clone(), metrics: config.metrics.clone(), ..folder.load().unwrap() };
    assert_eq!(spelled_out, config);
}

#[test]
fn the_file_says_by_what_the_index_is_kept_if_that_is_not_the_default() {
    let folder = Folder::new();
    folder.write("osd.toml", &commented(NODE, Engine::Sled));
    assert_eq!(folder.load().unwrap().store.index, Engine::Sled);
}

#[test]
fn a_daemon_finds_its_identities_and_its_deny_list() {
    let folder = Folder::new();
    let denied = net::Fingerprint([9; 32]);
    folder.write("denied.txt", &format!("{denied} # stolen"));
    let config = folder.load().unwrap();
    let identity = config.identity(NOW_S).unwrap();
    assert_eq!(identity.peer().role, Role::Node(NODE));
    assert!(identity.deny_list().denies(&denied));
    assert_eq!(config.supervisor_identity(NOW_S).unwrap().peer().role, Role::Supervisor(NODE));
}

#[test]
fn a_certificate_for_another_node_is_refused() {
    let folder = Folder::new();
    let other = folder.authority.issue(&Role::Node(NodeId(3)), &[], Validity::ALWAYS).unwrap();
    other.save(&CredentialFiles::in_folder(folder.folder.path(), "node")).unwrap();
    let error = folder.load().unwrap().identity(NOW_S).unwrap_err().to_string();
    assert!(error.contains("node.pem is the certificate of node/3 and not of node/2"), "{error}");
    folder.write(
        "osd.toml",
        "node = 2\nfiles.supervisor_certificate = \"node.pem\"\nfiles.supervisor_key = \"node.key\"",
    );
    let error = folder.load().unwrap().supervisor_identity(NOW_S).unwrap_err().to_string();
    assert!(error.contains("of node/3 and not of supervisor/2"), "{error}");
}

#[test]
fn a_deny_list_that_is_gone_denies_the_start() {
    let folder = Folder::new();
    fs::remove_file(folder.folder.path().join("denied.txt")).unwrap();
    let error = folder.load().unwrap().identity(NOW_S).unwrap_err().to_string();
    assert!(error.contains("cannot read") && error.contains("denied.txt"), "{error}");
}

#[test]
fn mistakes_name_file_key_and_remedy() {
    let folder = Folder::new();
    for (text, expected) in [
        ("nod = 2", "osd.toml: line 1, `nod = 2`: unknown field `nod`"),
        ("", "osd.toml: missing field `node`; add the key"),
        ("node = 2\n[limits]\nclient_max = 1", "line 3, `client_max = 1`: unknown field `client_max`"),
        ("node = -2", "line 1, `node = -2`: "),
        ("node = 7", "osd.toml: `node` is 7, which is not in"),
        ("node = 2\nlisten = \"here\"", "osd.toml: `listen` is `here`; use host:port"),
        ("node = 2\nmetrics = \"on\"", "osd.toml: `metrics` is `on`; use host:port, or \"off\""),
        ("node = 2\nlog.level = \"loud\"", "line 2, `log.level = \"loud\"`: unknown variant `loud`"),
        ("node = 2\nlimits.clients_max = 0", "`limits.clients_max` is `0`; use at least 1"),
        ("node = 2\nfiles.map = \"map.toml\"", "map.toml: No such file"),
    ] {
        let complaint = folder.complaint(text);
        assert!(complaint.contains(expected), "{complaint} lacks {expected}");
        assert!(!complaint.contains('\n'), "{complaint}");
    }
    folder.write("osd.toml", "node = 2");
    folder.write("cluster.toml", "version = 1");
    let complaint = folder.load().unwrap_err().to_string();
    assert!(complaint.contains("cluster.toml: missing field `cluster`"), "{complaint}");
    let missing = Config::load(&folder.folder.path().join("none.toml")).unwrap_err().to_string();
    assert!(missing.contains("none.toml: No such file") && missing.contains("`fleasefs init`"), "{missing}");
}

#[test]
fn addresses_are_this_machines() {
    let folder = Folder::new();
    folder.write("osd.toml", "node = 2\nlisten = \"127.0.0.1:7\"\nmetrics = \"off\"");
    let config = folder.load().unwrap();
    assert_eq!(config.listen_address().unwrap(), "127.0.0.1:7".parse().unwrap());
    assert_eq!(config.page().unwrap(), None);
    folder.write("osd.toml", "node = 2\nlisten = \"nowhere.invalid:7\"");
    let error = folder.load().unwrap().listen_address().unwrap_err().to_string();
    assert!(error.contains("`listen` is `nowhere.invalid:7`, and"), "{error}");
}

#[test]
fn what_others_can_reach_needs_a_token() {
    let folder = Folder::new();
    let token = folder.folder.path().join("page.token");
    let write_token = |text: &str| net::credentials::write_secret(&token, text).unwrap();
    let config = folder.load().unwrap();
    assert_eq!(config.page().unwrap(), Some(("127.0.0.1:7002".parse().unwrap(), None)));
    folder.write("osd.toml", "node = 2\nmetrics = \"0.0.0.0:9100\"");
    let open = folder.load().unwrap();
    let error = open.page().unwrap_err().to_string();
    assert!(
        error.contains("osd.toml: `metrics` is `0.0.0.0:9100`, which other machines can reach"),
        "{error}"
    );
    assert!(error.contains("there is no") && error.contains("page.token; put a token"), "{error}");
    for bad in ["", "\n", "0123456789abcde\n", "0123456789abcdef g", "0123456789abcdef\nx"] {
        write_token(bad);
        let error = open.page().unwrap_err().to_string();
        assert!(error.contains("page.token holds no token"), "{bad:?}: {error}");
    }
    write_token("0123456789abcdef\n");
    let expected = Some("0123456789abcdef".to_owned());
    assert_eq!(open.page().unwrap(), Some(("0.0.0.0:9100".parse().unwrap(), expected.clone())));
    assert_eq!(config.page().unwrap().unwrap().1, expected, "who has one wants it to be shown");
    fs::remove_file(&token).unwrap();
    folder.write("page.token", "0123456789abcdef");
    let error = open.page().unwrap_err().to_string();
    assert!(error.contains("page.token holds a private key and has mode 0644"), "{error}");
}

#[test]
fn a_daemon_starts_without_keys_and_never_with_bad_ones() {
    let folder = Folder::new();
    let config = folder.load().unwrap();
    assert_eq!(config.capability_keys().unwrap(), None, "clusters of before have none");

    let path = folder.folder.path().join("capability.keys");
    let line = |epoch: u32| node::CapabilityKey::new([5; 32]).line(node::KeyEpoch(epoch), None);
    net::credentials::write_secret(&path, &(line(1) + &line(4))).unwrap();
    assert_eq!(config.capability_keys().unwrap().unwrap().latest(), node::KeyEpoch(4));

    let complaint = || config.capability_keys().unwrap_err().to_string();
    net::credentials::write_secret(&path, &(line(4) + &line(1))).unwrap();
    assert!(complaint().ends_with(
        "capability.keys: line 2 has epoch 1 behind epoch 4; give each key an epoch above those before it"
    ));
    net::credentials::write_secret(&path, "").unwrap();
    assert!(
        complaint().contains("capability.keys: there is no key in it; make one with `fleasefs cert keys`")
    );
    folder.write("capability.keys", &line(1));
    assert!(complaint().contains("capability.keys holds a private key and has mode 0644"), "{}", complaint());
}
