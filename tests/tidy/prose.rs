//! Text that people read: it speaks of the project alone, and the commands it promises are the ones that run.

use crate::finding::Finding;
use crate::leftovers::has_word;

/// Split, so that this file does not hold what it looks for.
const PLACES: &[&str] = &[concat!("/wo", "rk/"), concat!("/ro", "ot/")];
const OUTSIDERS: &[&str] = &[
    concat!("anth", "ropic"),
    concat!("cla", "ude"),
    concat!("open", "ai"),
    concat!("chat", "gpt"),
    concat!("co", "pilot"),
];

/// Places of one machine and names that have no business in the project.
pub(crate) fn strangers(path: &str, text: &str) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let lower = line.to_lowercase();
        for place in PLACES.iter().filter(|place| has_place(&lower, place)) {
            let reason = "other machines have no such folder: name paths from the root of the workspace";
            findings.push(Finding::new(path, number, format!("names {place}"), reason));
        }
        for name in OUTSIDERS.iter().filter(|&&name| has_word(&lower, name)) {
            findings.push(Finding::new(
                path,
                number,
                format!("names {name}"),
                "the text speaks of the project alone",
            ));
        }
    }
    findings
}

/// Whether the absolute path `place` is in `line`, not just a part of another path.
fn has_place(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(start, _)| {
        let before = line[..start].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || "_-./~}".contains(c))
    })
}

/// Whether the CI script runs the test command of the README, word for word.
pub(crate) fn other_test_command(readme: &str, script: &str) -> Option<Finding> {
    let Some(command) = test_command(readme) else {
        let reason = "a reader needs the one command that tests everything: give it a line in a fenced block";
        return Some(Finding::new("README.md", 1, "no `cargo test` command", reason));
    };
    let runs_it = |line: &str| {
        let line = line.trim();
        line == command || line.strip_prefix("step ").is_some_and(|rest| rest.trim() == command)
    };
    (!script.lines().any(runs_it)).then(|| {
        let what = format!("does not run `{command}`");
        Finding::new(".ci/run", 1, what, "CI runs the very command that the README gives")
    })
}

/// The first line in a fenced block of `readme` that calls `cargo test`.
fn test_command(readme: &str) -> Option<&str> {
    let mut fenced = false;
    readme.lines().map(str::trim).find(|line| {
        if line.starts_with("```") {
            fenced = !fenced;
        }
        fenced && line.starts_with("cargo test")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_are_found_with_their_lines() {
        for name in OUTSIDERS {
            assert_eq!(
                strangers("docs/a.md", &format!("\nSays {}.", name.to_uppercase())).len(),
                1,
                "{name}"
            );
        }
        for place in PLACES {
            assert_eq!(strangers("docs/a.md", &format!("\nIn {place}x."))[0].line, 2, "{place}");
            assert_eq!(strangers("docs/a.md", &format!("net{place}x and a{place}")), []);
        }
        assert_eq!(strangers("docs/a.md", "openaire works"), []);
    }

    #[test]
    fn the_readmes_test_command_is_the_one_ci_runs() {
        let readme = "Run `cargo test -p base`.\n```sh\ncargo test --workspace\n```\n";
        assert_eq!(other_test_command(readme, "step cargo test --workspace\n"), None);
        assert_eq!(other_test_command(readme, "# cargo test --workspace\n").unwrap().path, ".ci/run");
        assert_eq!(other_test_command(readme, "cargo test --workspace --lib\n").unwrap().path, ".ci/run");
        assert_eq!(other_test_command("cargo test --workspace", "").unwrap().path, "README.md");
    }
}
