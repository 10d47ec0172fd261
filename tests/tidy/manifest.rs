//! Which crate may depend on which: the table, and the check of every manifest against it.

use toml::de::{DeTable, DeValue};

use crate::finding::Finding;

/// What one crate may depend on, in `[dependencies]` and `[build-dependencies]`.
struct Package {
    /// Its name, which is also its folder.
    name: &'static str,
    /// The crates of this workspace it may use.
    workspace: &'static [&'static str],
    /// The other crates it may use, if it is pure; `None` if it is not.
    pure: Option<&'static [&'static str]>,
}

/// Libraries that only compute. None reads a clock, a file, a socket or the machine's randomness.
const COMPUTING: &[&str] = &["blake3", "bytes", "crc32c", "hashbrown", "serde", "thiserror", "toml"];

/// Crates that reach for the world; not even a test of a pure crate uses them.
const WORLDLY: &[&str] = &[
    "async-std",
    "fuser",
    "hyper",
    "libc",
    "mio",
    "nix",
    "quinn",
    "quinn-proto",
    "redb",
    "reqwest",
    "rustix",
    "rustls",
    "sled",
    "smol",
    "socket2",
    "tokio",
    "turmoil",
];

/// The whole layout. A crate stands below everything that may use it, and nothing uses `bench` but the command.
const PACKAGES: &[Package] = &[
    Package { name: "base", workspace: &[], pure: Some(&["serde"]) },
    // These three do not know each other: each gets the others' verdicts as plain values.
    Package { name: "lease", workspace: &["base"], pure: Some(COMPUTING) },
    Package { name: "replication", workspace: &["base"], pure: Some(COMPUTING) },
    Package { name: "namespace", workspace: &["base"], pure: Some(COMPUTING) },
    Package {
        name: "node",
        workspace: &["base", "lease", "namespace", "replication"],
        pure: Some(COMPUTING),
    },
    Package { name: "wire", workspace: &["base", "lease", "namespace", "node", "replication"], pure: None },
    Package { name: "net", workspace: &["base", "wire"], pure: None },
    Package {
        name: "osd",
        workspace: &["base", "lease", "namespace", "net", "node", "replication", "wire"],
        pure: None,
    },
    // A client knows messages, never the daemon that answers them.
    Package { name: "client", workspace: &["base", "lease", "namespace", "net", "node", "wire"], pure: None },
    Package { name: "client-fuse", workspace: &["base", "client", "namespace", "node"], pure: None },
    // The simulator brings its own network, so it has no use for `net`.
    Package {
        name: "sim",
        workspace: &["base", "client", "lease", "namespace", "node", "osd", "replication", "wire"],
        pure: None,
    },
    Package {
        name: "bench",
        workspace: &[
            "base",
            "client",
            "client-fuse",
            "lease",
            "namespace",
            "net",
            "node",
            "osd",
            "replication",
            "sim",
            "wire",
        ],
        pure: None,
    },
    Package {
        name: "fleasefs",
        workspace: &[
            "base",
            "bench",
            "client",
            "client-fuse",
            "lease",
            "namespace",
            "net",
            "node",
            "osd",
            "replication",
            "sim",
            "wire",
        ],
        pure: None,
    },
];

/// One line of a manifest that brings a crate in.
struct Dependency {
    /// The crate's own name, whatever the manifest calls it.
    package: String,
    line: usize,
    is_dev: bool,
}

/// The folders of the workspace's members, or what is wrong with the list.
pub(crate) fn members(root: &str) -> Result<Vec<String>, Finding> {
    let unreadable = |what: String| Finding::new("Cargo.toml", 1, what, "tidy reads the members from it");
    let table = DeTable::parse(root).map_err(|error| unreadable(error.to_string()))?;
    let list = at(table.get_ref(), &["workspace", "members"]).and_then(DeValue::as_array);
    let list = list.ok_or_else(|| unreadable("no `workspace.members`".to_owned()))?;
    Ok(list.iter().filter_map(|member| member.get_ref().as_str()).map(str::to_owned).collect())
}

/// The folders of packages that are no members because their dependencies are no business of the workspace.
pub(crate) fn outsiders(root: &str) -> Vec<String> {
    let table: toml::Table = toml::from_str(root).unwrap_or_default();
    let list = table.get("workspace").and_then(|workspace| workspace.get("exclude")?.as_array());
    list.into_iter().flatten().filter_map(|folder| folder.as_str().map(str::to_owned)).collect()
}

/// A package outside the workspace cannot inherit its lints, so it repeats them. Found if they differ.
pub(crate) fn other_lints(path: &str, text: &str, root: &str) -> Option<Finding> {
    let read = |text: &str| toml::from_str::<toml::Table>(text).unwrap_or_default();
    let (own, root) = (read(text), read(root));
    let wanted = root.get("workspace").and_then(|workspace| workspace.get("lints"));
    (own.get("lints") != wanted).then(|| {
        Finding::new(path, 1, "lints of its own", "one style for all: repeat `workspace.lints` of the root")
    })
}

/// What the manifest at `path` brings in against the table; `root` is the manifest of the workspace.
pub(crate) fn forbidden_dependencies(path: &str, text: &str, root: &str) -> Vec<Finding> {
    let (table, root) = match (DeTable::parse(text), DeTable::parse(root)) {
        (Ok(table), Ok(root)) => (table, root),
        (Err(error), _) | (_, Err(error)) => {
            return vec![Finding::new(path, 1, error.to_string(), "this manifest cannot be parsed")];
        }
    };
    let name = at(table.get_ref(), &["package", "name"]).and_then(DeValue::as_str).unwrap_or_default();
    let folder = path.strip_suffix("/Cargo.toml").unwrap_or("fleasefs");
    let Some(package) = PACKAGES.iter().find(|package| package.name == name && name == folder) else {
        let reason = "say in the table in tests/tidy/manifest.rs what it may depend on; a folder is named as its package";
        return vec![Finding::new(path, 1, format!("package `{name}` in no table"), reason)];
    };
    let dependencies = dependencies(text, table.get_ref(), root.get_ref());
    dependencies
        .iter()
        .filter_map(|dependency| {
            let reason = objection(package, dependency)?;
            Some(Finding::new(
                path,
                dependency.line,
                format!("`{name}` depends on `{}`", dependency.package),
                reason,
            ))
        })
        .collect()
}

/// Why `package` must not have `dependency`, if so.
fn objection(package: &Package, dependency: &Dependency) -> Option<&'static str> {
    let wanted = dependency.package.as_str();
    let is_own = PACKAGES.iter().any(|package| package.name == wanted);
    match (package.pure, dependency.is_dev) {
        _ if is_own && package.workspace.contains(&wanted) => None,
        (None, true) => None,
        // Its own tests, with a feature of its own.
        (_, true) if wanted == package.name => None,
        _ if is_own => Some("the layout has no such edge (docs/architecture.md): pass plain values instead"),
        (None, false) => None,
        (Some(_), true) if WORLDLY.contains(&wanted) => {
            Some("a pure crate is tested on virtual time, without sockets, files or threads")
        }
        (Some(_), true) => None,
        (Some(allowed), false) if allowed.contains(&wanted) => None,
        (Some(_), false) => {
            Some("a pure crate uses only libraries that compute; the list is in tests/tidy/manifest.rs")
        }
    }
}

/// All dependencies of a manifest, those for one platform included.
fn dependencies(text: &str, manifest: &DeTable<'_>, root: &DeTable<'_>) -> Vec<Dependency> {
    let platforms = at(manifest, &["target"]).and_then(DeValue::as_table);
    let platforms =
        platforms.into_iter().flat_map(|table| table.values()).filter_map(|value| value.get_ref().as_table());
    let mut found = Vec::new();
    for table in std::iter::once(manifest).chain(platforms) {
        for section in ["dependencies", "build-dependencies", "dev-dependencies"] {
            let entries = at(table, &[section]).and_then(DeValue::as_table);
            for (key, value) in entries.into_iter().flatten() {
                found.push(Dependency {
                    package: package_name(key.get_ref(), value.get_ref(), root),
                    line: text[..key.span().start].matches('\n').count() + 1,
                    is_dev: section == "dev-dependencies",
                });
            }
        }
    }
    found
}

/// The crate behind `key`: a manifest may rename it, and so may the workspace.
fn package_name(key: &str, value: &DeValue<'_>, root: &DeTable<'_>) -> String {
    let inherited = at(root, &["workspace", "dependencies", key]);
    let own = value.as_table().and_then(|table| at(table, &["package"]));
    let inherited = inherited.and_then(DeValue::as_table).and_then(|table| at(table, &["package"]));
    own.or(inherited).and_then(DeValue::as_str).unwrap_or(key).to_owned()
}

/// The value at the end of a path of keys.
fn at<'a, 'i>(table: &'a DeTable<'i>, path: &[&str]) -> Option<&'a DeValue<'i>> {
    let (last, tables) = path.split_last()?;
    let inner = tables.iter().try_fold(table, |table, key| table.get(*key)?.get_ref().as_table())?;
    inner.get(*last).map(|value| value.get_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "[workspace]\nmembers = [\"base\", \"lease\"]\n[workspace.dependencies]
        base = { path = \"base\" }\nruntime = { package = \"tokio\", version = \"1\" }";

    /// The lines of the manifest of `folder` that break the rule.
    fn lines(folder: &str, rest: &str) -> Vec<usize> {
        let text = format!("package.name = \"{folder}\"\n{rest}");
        let found = forbidden_dependencies(&format!("{folder}/Cargo.toml"), &text, ROOT);
        found.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn the_table_has_no_cycle_and_no_stranger() {
        for (position, package) in PACKAGES.iter().enumerate() {
            for used in package.workspace {
                let below = PACKAGES.iter().position(|below| below.name == *used);
                let is_below = below.is_some_and(|below| below < position || package.name == "fleasefs");
                assert!(is_below, "{} must stand below {}", used, package.name);
            }
        }
    }

    #[test]
    fn members_are_read_from_the_root() {
        assert_eq!(members(ROOT).unwrap(), ["base", "lease"]);
        assert!(members("[package]").is_err());
        assert!(members("[package").is_err());
    }

    #[test]
    fn a_package_outside_the_workspace_repeats_its_lints() {
        let root = "[workspace]\nexclude = [\"far/off\"]\n[workspace.lints.rust]\nmissing_docs = \"warn\"";
        assert_eq!(outsiders(root), ["far/off"]);
        assert_eq!(outsiders(ROOT), [""; 0]);
        assert_eq!(other_lints("far/off/Cargo.toml", "[lints.rust]\nmissing_docs = \"warn\"", root), None);
        assert!(other_lints("far/off/Cargo.toml", "[lints.rust]\nmissing_docs = \"allow\"", root).is_some());
        assert!(other_lints("far/off/Cargo.toml", "package.name = \"off\"", root).is_some());
    }

    #[test]
    fn edges_outside_the_table_are_found() {
        assert_eq!(lines("lease", "[dependencies]\nbase.workspace = true"), []);
        assert_eq!(lines("lease", "[dependencies]\nreplication.workspace = true"), [3]);
        assert_eq!(lines("replication", "[dev-dependencies]\nlease = { path = \"../lease\" }"), [3]);
        assert_eq!(lines("client", "[build-dependencies]\nwire.workspace = true\nosd.workspace = true"), [4]);
        assert_eq!(lines("client", "[dev-dependencies]\nosd.workspace = true"), []);
        assert_eq!(lines("base", "[dependencies.lease]\nworkspace = true"), [2]);
    }

    #[test]
    fn pure_crates_use_only_libraries_that_compute() {
        assert_eq!(lines("lease", "[dependencies]\nhashbrown = \"0.17\"\nthiserror = \"2\""), []);
        assert_eq!(lines("base", "[dependencies]\nserde = \"1\"\nhashbrown = \"0.17\""), [4]);
        assert_eq!(lines("lease", "[dependencies]\nruntime.workspace = true"), [3]);
        assert_eq!(lines("lease", "[dependencies]\nserde = { package = \"rand\", version = \"1\" }"), [3]);
        assert_eq!(lines("lease", "[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\""), [3]);
        assert_eq!(lines("lease", "[dev-dependencies]\nproptest = \"1\""), []);
        assert_eq!(lines("lease", "[dev-dependencies]\nruntime.workspace = true"), [3]);
        assert_eq!(lines("osd", "[dependencies]\nruntime.workspace = true"), []);
    }

    #[test]
    fn a_crate_in_no_table_is_found() {
        assert_eq!(lines("helpers", ""), [1]);
        let misplaced = forbidden_dependencies("core/Cargo.toml", "package.name = \"base\"", ROOT);
        assert_eq!(misplaced.len(), 1);
        assert_eq!(forbidden_dependencies("Cargo.toml", "package.name = \"fleasefs\"", ROOT), []);
        assert_eq!(forbidden_dependencies("base/Cargo.toml", "package.name = ", ROOT).len(), 1);
    }
}
