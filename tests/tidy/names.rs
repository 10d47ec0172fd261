//! Which code may name what: the invariants of absence, read from the sources.
//!
//! Test code may name anything, except that a test of a pure crate does not sleep.

use crate::finding::Finding;
use crate::source::{Name, Source, names};

/// Names that have one home.
struct Home {
    /// Patterns as [`Name::matches`] reads them.
    patterns: &'static [&'static str],
    /// Where the rule applies; empty means everywhere.
    scope: &'static [&'static str],
    /// Path prefixes that may name them.
    homes: &'static [&'static str],
    /// Why nobody else may.
    reason: &'static str,
}

/// Sources that see the world only through their arguments.
const PURE: &[&str] = &[
    "base/src/",
    "lease/src/",
    "replication/src/",
    "namespace/src/",
    "node/src/",
    "client/src/core.rs",
    "client/src/core/",
];

/// Sources that run at users' sites; measurements, simulation and tests are no part of them.
const PRODUCT: &[&str] = &[
    "base/src/",
    "lease/src/",
    "replication/src/",
    "namespace/src/",
    "node/src/",
    "wire/src/",
    "net/src/",
    "osd/src/",
    "client/src/",
    "client-fuse/src/",
];

const HOMES: &[Home] = &[
    Home {
        patterns: &["std::fs", "std::net", "std::thread", "std::env", "std::process", "std::os", "tokio"],
        scope: PURE,
        homes: &[],
        reason: "a pure crate gets the world as events and gives outputs; its driver does the rest",
    },
    Home {
        patterns: &["*::Instant", "*::SystemTime", "*::clock_gettime"],
        scope: PURE,
        homes: &[],
        reason: "a pure crate reads no clock: take a `base::WallTime` or `base::MonoTime` as an argument",
    },
    Home {
        patterns: &["*::HashMap", "*::HashSet", "*::RandomState"],
        scope: PURE,
        homes: &[],
        reason: "its order differs from run to run, so a seed would not reproduce: use a `BTreeMap`, or a \
                 `hashbrown::HashTable` where no output depends on the order",
    },
    Home {
        patterns: &["rand", "getrandom", "fastrand"],
        scope: PURE,
        homes: &[],
        reason: "a pure crate draws from a seeded `base::Random` only, so that a seed reproduces a run",
    },
    Home {
        patterns: &["async", "await"],
        scope: PURE,
        homes: &[],
        reason: "a pure crate waits for nothing: it is told by `handle_*` and asked by `poll_*`",
    },
    Home {
        patterns: &["*::println!", "*::print!", "*::eprintln!", "*::eprint!", "*::dbg!"],
        scope: PURE,
        homes: &[],
        reason: "a pure crate has no terminal: return the fact, and let the command print it",
    },
    Home {
        patterns: &["quinn", "quinn_proto", "quinn_udp", "rustls", "rustls_pki_types"],
        scope: &[],
        homes: &["net/src/"],
        reason: "only `net` knows the transport, so that it can be replaced and simulated",
    },
    Home {
        patterns: &["rcgen"],
        scope: &[],
        homes: &["net/src/", "src/init.rs", "src/init/"],
        reason: "certificates are made by `net` and `init` only",
    },
    Home {
        patterns: &["fuser"],
        scope: &[],
        homes: &["client-fuse/src/fuse.rs", "client-fuse/src/fuse/"],
        reason: "`fuse.rs` translates between the kernel and `fs.rs`; nothing else speaks FUSE",
    },
    Home {
        patterns: &["std::fs", "tokio::fs", "memmap2", "redb", "sled"],
        scope: PRODUCT,
        homes: &[
            "osd/src/store/",
            "osd/src/config.rs",
            "client/src/config.rs",
            "net/src/credentials.rs",
            "client-fuse/src/device.rs",
            "client-fuse/src/caller.rs",
            "client-fuse/src/mounts.rs",
        ],
        reason: "only the store touches data, because only it knows what survives a crash; what an operator writes \
                 is read in `config.rs` and `credentials.rs`, and `device.rs` sets up the kernel's side of a mount",
    },
    Home {
        patterns: &["*::Instant::now", "*::SystemTime::now", "*::clock_gettime"],
        scope: &[],
        homes: &["osd/src/clock.rs", "client/src/clock.rs", "client-fuse/src/clock.rs", "bench/", "src/"],
        reason: "clocks are read in `clock.rs` only, so that a simulation can hand in its own time",
    },
    Home {
        patterns: &["postcard"],
        scope: &[],
        homes: &["wire/src/"],
        reason: "only `wire` knows how messages look as bytes",
    },
    Home {
        patterns: &["anyhow"],
        scope: &[],
        homes: &["src/"],
        reason: "a library's errors are enums that a caller can match; `anyhow` is for the command",
    },
];

/// Names that `source` uses away from their home.
pub(crate) fn names_away_from_home(source: &Source<'_>) -> Vec<Finding> {
    let used = names(source.product.clone());
    let mut findings = Vec::new();
    for home in HOMES {
        let in_scope = home.scope.is_empty() || is_under(source.path, home.scope);
        if in_scope && !is_under(source.path, home.homes) {
            findings.extend(matching(source.path, &used, home.patterns, home.reason));
        }
    }
    findings
}

/// Sleeping in a pure crate, tests included.
pub(crate) fn sleeping_tests(source: &Source<'_>) -> Vec<Finding> {
    let folder = source.path.split('/').next().unwrap_or_default();
    if !is_under(&format!("{folder}/src/"), PURE) {
        return Vec::new();
    }
    let reason = "time is an argument of a pure crate: its test hands in a later one instead of waiting";
    matching(source.path, &source.names, &["*::thread::sleep"], reason)
}

fn is_under(path: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| path.starts_with(prefix))
}

/// One finding for each line that uses one of `patterns`.
fn matching(path: &str, used: &[Name], patterns: &[&str], reason: &str) -> Vec<Finding> {
    let hits = used.iter().filter(|name| patterns.iter().any(|pattern| name.matches(pattern)));
    let mut findings: Vec<Finding> = hits
        .map(|name| Finding::new(path, name.line, format!("names `{}`", name.parts.join("::")), reason))
        .collect();
    findings.dedup_by_key(|finding| finding.line);
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines on which `text`, standing at `path`, breaks the rule.
    fn lines(path: &str, text: &str) -> Vec<usize> {
        let source = Source::parse(path, text).ok().unwrap();
        names_away_from_home(&source).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn a_pure_crate_sees_no_world() {
        for bad in [
            "use std::fs;",
            "use std::{net, fmt};",
            "fn f() { std::thread::yield_now() }",
            "fn f() { let _ = std::env::var(\"A\"); }",
            "use std::time::{Duration, Instant};",
            "use std::time; fn f() { time::SystemTime::now(); }",
            "use std::collections::HashMap;",
            "use rand::Rng;",
            "#[tokio::main] async fn f() {}",
            "fn f() { println!(\"\") }",
            "fn f() { assert!(std::process::id() > 0) }",
        ] {
            assert!(!lines("lease/src/cell.rs", bad).is_empty(), "{bad} went unnoticed");
        }
    }

    #[test]
    fn a_pure_crate_may_compute() {
        let good = "//! Not `std::fs`.\nuse std::collections::BTreeMap; use std::time::Duration; use hashbrown::HashTable;
            fn f() -> &'static str { \"std::fs\" }
            #[cfg(test)] mod tests { use std::collections::HashMap; }";
        assert_eq!(lines("lease/src/cell.rs", good), []);
    }

    #[test]
    fn each_name_has_one_home() {
        for (name, home, elsewhere) in [
            ("quinn::Endpoint", "net/src/lib.rs", "osd/src/lib.rs"),
            ("rustls::ServerConfig", "net/src/tls.rs", "src/init.rs"),
            ("rcgen::Certificate", "src/init.rs", "src/main.rs"),
            ("fuser::Filesystem", "client-fuse/src/fuse.rs", "client-fuse/src/fs.rs"),
            ("std::fs::File", "osd/src/store/journal.rs", "osd/src/lib.rs"),
            ("tokio::fs::File", "sim/src/trace.rs", "client/src/lib.rs"),
            ("std::fs::File", "net/src/credentials.rs", "net/src/endpoint.rs"),
            ("std::fs::File", "osd/src/config.rs", "osd/src/shard.rs"),
            ("redb::Database", "osd/src/store/index.rs", "osd/src/shard.rs"),
            ("std::time::Instant::now", "osd/src/clock.rs", "net/src/lib.rs"),
            ("tokio::time::Instant::now", "src/sim.rs", "sim/src/lib.rs"),
            ("postcard::Error", "wire/src/lib.rs", "net/src/lib.rs"),
            ("anyhow::Error", "src/main.rs", "osd/src/lib.rs"),
        ] {
            let text = format!("\ntype A = {name};");
            assert_eq!(lines(home, &text), [], "{name} is at home in {home}");
            assert_eq!(lines(elsewhere, &text), [2], "{name} is away from home in {elsewhere}");
        }
        assert_eq!(lines("osd/tests/crash.rs", "use anyhow::Result; use std::fs;"), []);
    }

    #[test]
    fn tests_of_pure_crates_do_not_sleep() {
        let text = "#[cfg(test)] mod tests {\n fn f() { std::thread::sleep(D); }\n}";
        let lines =
            |path| sleeping_tests(&Source::parse(path, text).ok().unwrap()).iter().map(|f| f.line).collect();
        let (pure, other): (Vec<_>, Vec<_>) = (lines("lease/src/cell.rs"), lines("osd/src/lib.rs"));
        assert_eq!((pure, other), (vec![2], vec![]));
    }
}
