//! What may be said about a mount, as in `-o` and in `fstab`.

/// How a volume is mounted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Options {
    /// What is mounted, as `df` shows it.
    pub source: String,
    /// Nothing is changed through this mount.
    pub is_read_only: bool,
    /// Others than the user who mounts may use it.
    pub others: bool,
    /// Device files are devices.
    pub devices: bool,
    /// Set-user-ID and set-group-ID mean something.
    pub set_ids: bool,
    /// Programs can be run from it.
    pub executables: bool,
    /// While no daemon can be reached it is tried again.
    pub waits: bool,
}

/// An option that is none.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "there is no mount option `{0}`; those are ro, rw, allow_other, dev, nodev, suid, nosuid, exec, noexec, wait, and what only \
     `mount` and systemd look at"
)]
pub struct NoSuchOption(pub String);

/// What means something to others, or what is so anyway.
const ELSEWHERE: &[&str] = &[
    "",
    "async",
    "atime",
    "auto",
    "default_permissions",
    "defaults",
    "diratime",
    "group",
    "noatime",
    "noauto",
    "nodiratime",
    "nofail",
    "nogroup",
    "norelatime",
    "nouser",
    "nousers",
    "owner",
    "relatime",
    "user",
    "users",
    "_netdev",
    "nostrictatime",
    "strictatime",
    "lazytime",
    "nolazytime",
];

impl Options {
    /// A mount of `source` with nothing said about it.
    pub const fn new(source: String) -> Self {
        Self {
            source,
            is_read_only: false,
            others: false,
            devices: false,
            set_ids: false,
            executables: true,
            waits: false,
        }
    }

    /// Takes in options with commas between them. Of two that contradict each other the later one counts.
    pub fn set(&mut self, list: &str) -> Result<(), NoSuchOption> {
        list.split(',').map(str::trim).try_for_each(|option| self.set_one(option))
    }

    fn set_one(&mut self, option: &str) -> Result<(), NoSuchOption> {
        match option {
            "ro" => self.is_read_only = true,
            "rw" => self.is_read_only = false,
            "allow_other" => self.others = true,
            "noallow_other" => self.others = false,
            "dev" => self.devices = true,
            "nodev" => self.devices = false,
            "suid" => self.set_ids = true,
            "nosuid" => self.set_ids = false,
            "exec" => self.executables = true,
            "noexec" => self.executables = false,
            "wait" => self.waits = true,
            other
                if ELSEWHERE.contains(&other) || other.starts_with("x-") || other.starts_with("comment=") => {
            }
            other => return Err(NoSuchOption(other.to_owned())),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_as_in_fstab() {
        let mut options = Options::new("/c:home".to_owned());
        options.set("rw,_netdev,x-systemd.automount,ro,allow_other,noexec").unwrap();
        assert!(options.is_read_only && options.others && !options.executables && !options.devices);
        options.set("defaults,rw,exec").unwrap();
        assert_eq!(options, Options { others: true, ..Options::new("/c:home".to_owned()) });
        assert_eq!(options.set("ro,cache"), Err(NoSuchOption("cache".to_owned())));
    }
}
