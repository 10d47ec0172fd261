//! The house rules, as tests. `docs/style.md` says which rule stands in which module.
//!
//! Every rule is a pure function over a path and a text, with samples of good and bad beside it. Only this
//! file reads the tree. A finding names the place, the rule and the reason; there are no lists of exceptions.

mod finding;
mod layout;
mod leftovers;
mod manifest;
mod names;
mod prose;
mod sizes;
mod source;

use std::fs;
use std::path::Path;

use finding::Finding;
use source::Source;

/// A text file of the project.
struct Text {
    /// Relative to the root of the workspace.
    path: String,
    text: String,
}

#[test]
fn crates_depend_only_on_what_the_layout_allows() {
    let tree = tree();
    let root = text_at(&tree, "Cargo.toml").expect("the workspace has a manifest");
    let members = manifest::members(root).unwrap_or_else(|finding| panic!("{finding}"));
    let manifests =
        members.iter().map(|member| format!("{member}/Cargo.toml")).chain(["Cargo.toml".to_owned()]);
    report(manifests.flat_map(|path| match text_at(&tree, &path) {
        Some(text) => manifest::forbidden_dependencies(&path, text, root),
        None => {
            vec![Finding::new(&path, 1, "a member without a manifest", "write the folder out in `members`")]
        }
    }));
}

#[test]
fn packages_outside_the_workspace_keep_its_lints() {
    let tree = tree();
    let root = text_at(&tree, "Cargo.toml").expect("the workspace has a manifest");
    report(manifest::outsiders(root).into_iter().filter_map(|folder| {
        let path = format!("{folder}/Cargo.toml");
        manifest::other_lints(&path, text_at(&tree, &path).unwrap_or_default(), root)
    }));
}

#[test]
fn names_stay_at_home() {
    report_sources(names::names_away_from_home);
}

#[test]
fn tests_of_pure_crates_do_not_sleep() {
    report_sources(names::sleeping_tests);
}

#[test]
fn functions_files_and_signatures_stay_small() {
    report_sources(sizes::too_large);
}

#[test]
fn nothing_is_left_behind() {
    report_sources(leftovers::left_behind);
}

#[test]
fn layouts_are_described_as_they_are() {
    let tree = tree();
    let marked: Vec<&Text> =
        tree.iter().filter(|file| is_rust(file) && layout::decides_layout(&file.text)).collect();
    let mut findings = Vec::new();
    for file in &marked {
        let document = text_at(&tree, layout::document_of(&file.path)).unwrap_or_default();
        match Source::parse(&file.path, &file.text) {
            Ok(source) => findings.extend(layout::undocumented_layout(&source, document)),
            Err(finding) => findings.push(finding),
        }
    }
    let marked: Vec<&str> = marked.iter().map(|file| file.path.as_str()).collect();
    for path in layout::DOCUMENTS {
        let document = text_at(&tree, path).unwrap_or_default();
        findings.extend(layout::stale_fingerprints(path, document, &marked));
    }
    report(findings);
}

#[test]
fn the_text_speaks_of_the_project_alone() {
    report(tree().iter().flat_map(|file| prose::strangers(&file.path, &file.text)));
}

#[test]
fn ci_runs_the_test_command_of_the_readme() {
    let tree = tree();
    let readme = text_at(&tree, "README.md").expect("the project has a README.md");
    let script = text_at(&tree, ".ci/run").expect("the project has a .ci/run");
    report(prose::other_test_command(readme, script));
}

/// Fails with all findings of `rule` in the Rust files of the tree.
fn report_sources(rule: impl Fn(&Source<'_>) -> Vec<Finding>) {
    let tree = tree();
    let sources = tree.iter().filter(|file| is_rust(file));
    report(sources.flat_map(|file| match Source::parse(&file.path, &file.text) {
        Ok(source) => rule(&source),
        Err(finding) => vec![finding],
    }));
}

/// Fails with all `findings`, one on each line.
fn report(findings: impl IntoIterator<Item = Finding>) {
    let lines: Vec<String> = findings.into_iter().map(|finding| finding.to_string()).collect();
    assert!(lines.is_empty(), "{} broken rules:\n{}", lines.len(), lines.join("\n"));
}

fn is_rust(file: &Text) -> bool {
    file.path.ends_with(".rs")
}

fn text_at<'a>(tree: &'a [Text], path: &str) -> Option<&'a str> {
    tree.iter().find(|file| file.path == path).map(|file| file.text.as_str())
}

/// All text files of the project, in the order of their paths.
fn tree() -> Vec<Text> {
    let mut files = Vec::new();
    // Cargo runs a test in the folder of its package. A path fixed when this was built could be another tree's.
    collect_files(Path::new("."), "", &mut files);
    files.sort_by(|a, b| a.path.cmp(&b.path));
    // A walk that went astray would find nothing wrong anywhere.
    assert!(text_at(&files, "base/src/lib.rs").is_some(), "the walk missed base/src/lib.rs");
    files
}

/// Appends the files in the folder that `prefix` names; symbolic links are not followed.
fn collect_files(folder: &Path, prefix: &str, files: &mut Vec<Text>) {
    // Cargo marks its target folders with this file.
    if folder.join("CACHEDIR.TAG").exists() {
        return;
    }
    for entry in fs::read_dir(folder).expect("a folder of the project can be read") {
        let entry = entry.expect("a folder of the project can be read");
        let (Ok(name), Ok(kind)) = (entry.file_name().into_string(), entry.file_type()) else { continue };
        let path = format!("{prefix}{name}");
        if kind.is_dir() && name != ".git" {
            collect_files(&entry.path(), &format!("{path}/"), files);
        } else if kind.is_file() && path != ".git" {
            // What is not UTF-8 is data.
            files.extend(fs::read_to_string(entry.path()).ok().map(|text| Text { path, text }));
        }
    }
}
