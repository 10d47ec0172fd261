use base::{NodeId, Role};
use tempfile::TempDir;

use super::*;
use crate::identity::Validity;
use crate::peer::Fingerprint;

const CLUSTER: ClusterId = ClusterId([7; 16]);
const OTHER_CLUSTER: ClusterId = ClusterId([8; 16]);
const NOW_S: u64 = 1_800_000_000;
const GOOD: Validity = Validity { not_before_s: NOW_S - 60, not_after_s: NOW_S + 60 };

/// A folder with an authority, and the identity of node 1 as `node.pem` and `node.key`.
struct Folder {
    folder: TempDir,
    authority: Authority,
}

impl Folder {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let authority = Authority::new(CLUSTER, Validity::ALWAYS).unwrap();
        let made = Self { folder, authority };
        made.identity(GOOD).save(&made.files()).unwrap();
        made
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn files(&self) -> CredentialFiles {
        CredentialFiles::in_folder(self.folder.path(), "node")
    }

    fn identity(&self, validity: Validity) -> Identity {
        self.authority.issue(&Role::Node(NodeId(1)), &[], validity).unwrap()
    }

    /// What is said when the identity is loaded for `cluster`; nothing if it is fine.
    fn complaint_for(&self, cluster: ClusterId) -> Option<String> {
        Identity::load(&self.files(), cluster, NOW_S).err().map(|error| error.to_string())
    }

    fn assert_complains(&self, parts: &[&str]) {
        let complaint = self.complaint_for(CLUSTER).unwrap_or_default();
        assert!(parts.iter().all(|part| complaint.contains(part)), "{complaint:?} lacks one of {parts:?}");
    }

    fn mode(&self, name: &str) -> u32 {
        fs::metadata(self.path(name)).unwrap().permissions().mode() & 0o7777
    }

    fn chmod(&self, name: &str, mode: u32) {
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
    }
}

#[test]
fn an_identity_loads_as_it_was_saved() {
    let folder = Folder::new();
    let saved = folder.identity(GOOD);
    saved.save(&folder.files()).unwrap();
    let loaded = Identity::load(&folder.files(), CLUSTER, NOW_S).unwrap();
    assert_eq!(loaded.peer(), saved.peer());
    assert_eq!(loaded.key, saved.key);
    assert_eq!(read_peer(&folder.path("node.pem"), CLUSTER).unwrap(), *saved.peer());
    assert_eq!((folder.mode("node.key"), folder.mode("node.pem")), (0o600, 0o644));
    assert_eq!(fs::read_dir(folder.folder.path()).unwrap().count(), 3, "nothing is left beside the files");
}

#[test]
fn a_loaded_authority_issues_what_the_saved_one_would() {
    let folder = Folder::new();
    folder.authority.save(folder.folder.path()).unwrap();
    assert_eq!(folder.mode("ca.key"), 0o600);
    let loaded = Authority::load(folder.folder.path()).unwrap();
    assert_eq!(loaded.cluster(), CLUSTER);
    assert_eq!(read_authority_expiry(&folder.path("ca.pem")).unwrap(), Validity::ALWAYS.not_after_s);
    assert!(read_authority_expiry(&folder.path("node.pem")).is_err());
    let issued = loaded.issue(&Role::Node(NodeId(1)), &["10.0.0.1".to_owned()], GOOD).unwrap();
    issued.save(&folder.files()).unwrap();
    assert_eq!(folder.complaint_for(CLUSTER), None);
}

#[test]
fn a_key_that_others_may_read_is_refused() {
    let folder = Folder::new();
    for mode in [0o640, 0o604, 0o660, 0o601] {
        folder.chmod("node.key", mode);
        let path = folder.path("node.key").display().to_string();
        folder.assert_complains(&[&path, &format!("mode {mode:04o}"), &format!("`chmod 600 {path}`")]);
    }
    for mode in [0o400, 0o600] {
        folder.chmod("node.key", mode);
        assert_eq!(folder.complaint_for(CLUSTER), None);
    }
    folder.authority.save(folder.folder.path()).unwrap();
    folder.chmod("ca.key", 0o644);
    let error = Authority::load(folder.folder.path()).err().unwrap().to_string();
    assert!(error.contains("ca.key holds a private key"), "{error}");
}

#[test]
fn a_missing_or_foreign_file_is_named() {
    let folder = Folder::new();
    fs::rename(folder.path("node.key"), folder.path("kept")).unwrap();
    folder.assert_complains(&["cannot read", "node.key", "No such file"]);
    fs::copy(folder.path("node.pem"), folder.path("node.key")).unwrap();
    folder.chmod("node.key", 0o600);
    folder.assert_complains(&["node.key holds no private key"]);
    fs::rename(folder.path("kept"), folder.path("node.key")).unwrap();
    fs::write(folder.path("node.pem"), "garbage").unwrap();
    folder.assert_complains(&["node.pem holds no certificate"]);
    fs::write(folder.path("node.pem"), vec![b' '; 65 << 10]).unwrap();
    folder.assert_complains(&["node.pem is longer than 65536 bytes"]);
}

#[test]
fn files_that_do_not_go_together_are_refused() {
    let folder = Folder::new();
    let other = folder.identity(GOOD);
    write(&folder.path("node.key"), &key_text(other.key.secret_der()), KEY_MODE).unwrap();
    folder.assert_complains(&["node.pem", "the key does not belong to the certificate"]);

    let stranger = Authority::new(CLUSTER, Validity::ALWAYS).unwrap();
    stranger.issue(&Role::Node(NodeId(1)), &[], GOOD).unwrap().save(&folder.files()).unwrap();
    write_public(&folder.path("ca.pem"), &certificate_text(folder.authority.certificate())).unwrap();
    folder.assert_complains(&["node/1 was not issued by the authority beside it"]);

    // A node's certificate is no authority.
    let own = certificate_text(&other.certificate);
    write_public(&folder.path("ca.pem"), &own).unwrap();
    assert!(folder.complaint_for(CLUSTER).is_some());
    folder.authority.save(folder.folder.path()).unwrap();
    write(&folder.path("ca.key"), &key_text(other.key.secret_der()), KEY_MODE).unwrap();
    let error = Authority::load(folder.folder.path()).err().unwrap().to_string();
    assert!(error.contains("the key does not belong"), "{error}");
}

#[test]
fn another_clusters_identity_is_refused() {
    let folder = Folder::new();
    let complaint = folder.complaint_for(OTHER_CLUSTER).unwrap();
    assert!(complaint.contains(&format!("belongs to cluster {CLUSTER}")), "{complaint}");
    let role = Role::Node(NodeId(1));
    let mixed = folder.authority.issue_for(OTHER_CLUSTER, &role, &[], GOOD).unwrap();
    mixed.save(&folder.files()).unwrap();
    folder.assert_complains(&["node.pem", &format!("belongs to cluster {OTHER_CLUSTER}")]);
}

#[test]
fn an_identity_out_of_its_time_is_refused() {
    let folder = Folder::new();
    let expired = Validity { not_before_s: NOW_S - 100, not_after_s: NOW_S - 7 };
    folder.identity(expired).save(&folder.files()).unwrap();
    folder.assert_complains(&["node/1 expired 7 s ago", "`fleasefs cert renew`"]);
    let early = Validity { not_before_s: NOW_S + 100, not_after_s: NOW_S + 200 };
    folder.identity(early).save(&folder.files()).unwrap();
    folder.assert_complains(&["node/1 is not good yet", "clock"]);
}

#[test]
fn a_deny_list_is_read_when_it_changes() {
    let folder = Folder::new();
    let path = folder.path("denied.txt");
    let mut file = DenyFile::new(path.clone());
    assert!(matches!(file.poll(), Err(CredentialError::Read { .. })), "a list that vanished denies nobody");
    write_public(&path, "# nobody\n").unwrap();
    assert_eq!(file.poll().unwrap(), Some(Denied::default()));
    assert_eq!(file.poll().unwrap(), None);
    // Of the same length and, by chance, written in the same instant: the inode differs.
    let (one, two) = (Fingerprint([1; 32]), Fingerprint([2; 32]));
    for fingerprint in [one, two] {
        write_public(&path, &fingerprint.to_string()).unwrap();
        assert!(file.poll().unwrap().unwrap().contains(&fingerprint));
    }
    write_public(&path, "mallory").unwrap();
    let error = file.poll().unwrap_err().to_string();
    assert!(error.contains("denied.txt: line 1: `mallory`"), "{error}");
    assert_eq!(file.poll().unwrap(), None, "a mistake is reported once");
}

#[test]
fn a_deny_list_that_was_out_of_reach_is_read_again() {
    let folder = Folder::new();
    let (place, aside) = (folder.path("place"), folder.path("aside"));
    create_folder(&place).unwrap();
    write_public(&place.join("denied.txt"), "").unwrap();
    let mut file = DenyFile::new(place.join("denied.txt"));
    assert!(file.poll().unwrap().is_some() && file.poll().unwrap().is_none());
    // The file itself stays as it is.
    fs::rename(&place, &aside).unwrap();
    file.poll().unwrap_err();
    fs::rename(&aside, &place).unwrap();
    assert!(file.poll().unwrap().is_some(), "or the trouble would never be over");
}

#[tokio::test(start_paused = true)]
async fn following_puts_each_version_in_force_and_survives_mistakes() {
    let folder = Folder::new();
    let path = folder.path("denied.txt");
    let (one, two) = (Fingerprint([1; 32]), Fingerprint([2; 32]));
    write_public(&path, &one.to_string()).unwrap();
    let (list, (sender, mut reports)) = (DenyList::default(), tokio::sync::mpsc::unbounded_channel());
    let follower = DenyFile::new(path.clone()).follow(list.clone(), move |state| {
        sender.send(state.map_err(ToString::to_string)).unwrap();
    });
    let follower = tokio::spawn(follower);
    list.denied(one).await;
    assert_eq!(reports.recv().await, Some(Ok(())));

    write_public(&path, "mallory").unwrap();
    assert!(reports.recv().await.unwrap().unwrap_err().contains("`mallory`"));
    assert!(list.denies(&one), "a list with a mistake changes nothing");
    fs::remove_file(&path).unwrap();
    assert!(reports.recv().await.unwrap().unwrap_err().contains("cannot read"));
    assert!(list.denies(&one), "a list that is gone changes nothing");

    write_public(&path, &two.to_string()).unwrap();
    list.denied(two).await;
    assert!(!list.denies(&one));
    assert_eq!(reports.recv().await, Some(Ok(())), "the troubles are over");
    follower.abort();
    assert!(follower.await.unwrap_err().is_cancelled());
    assert!(reports.recv().await.is_none(), "each trouble was reported once");
}

#[test]
fn a_secret_is_its_owners_alone_and_may_be_absent() {
    let folder = Folder::new();
    let path = folder.path("secret");
    assert_eq!(read_secret(&path).unwrap(), None);
    write_secret(&path, "one").unwrap();
    write_secret(&path, "two").unwrap();
    assert_eq!(folder.mode("secret"), 0o600);
    assert_eq!(read_secret(&path).unwrap().as_deref(), Some("two"));
    folder.chmod("secret", 0o640);
    let error = read_secret(&path).unwrap_err().to_string();
    assert!(error.contains("secret holds a private key and has mode 0640"), "{error}");
    folder.chmod("secret", 0o600);
    fs::write(&path, vec![b' '; 65 << 10]).unwrap();
    assert!(read_secret(&path).unwrap_err().to_string().contains("secret is longer than 65536 bytes"));
    let below_a_file = read_secret(&path.join("secret"));
    assert!(
        matches!(below_a_file, Err(CredentialError::Read { .. })),
        "what cannot be looked at is not absent"
    );
}
