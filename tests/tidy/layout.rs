//! A changed byte layout changes its document in the same commit.
//!
//! A file whose module doc has a line that begins with `Layout:` decides how bytes look on the wire or on
//! disk. The document carries a fingerprint of it, so whoever changes the file has to open the document, and
//! there finds the paragraph that is no longer true.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::finding::Finding;
use crate::source::{Source, is_punct};

const MARKER: &str = "//! Layout:";
const LINE_START: &str = "<!-- layout: ";
const LINE_END: &str = " -->";

/// Documents that carry fingerprints.
pub(crate) const DOCUMENTS: &[&str] = &["docs/wire.md", "docs/disk.md"];

/// Whether `text` says of itself that it decides a layout.
pub(crate) fn decides_layout(text: &str) -> bool {
    text.lines()
        .take_while(|line| line.is_empty() || line.starts_with("//"))
        .any(|line| line.starts_with(MARKER))
}

/// The document that describes what the file at `path` lays out. Message types of other crates go on the wire.
pub(crate) fn document_of(path: &str) -> &'static str {
    if path.starts_with("osd/src/store/") { "docs/disk.md" } else { "docs/wire.md" }
}

/// The line that `document_of(source.path)` has to carry.
fn line_for(source: &Source<'_>) -> String {
    let fingerprint = fnv1a(&canonical(source.product.clone()));
    format!("{LINE_START}{} {fingerprint:016x}{LINE_END}", source.path)
}

/// Whether `document` carries the fingerprint of `source`, a file that decides a layout.
pub(crate) fn undocumented_layout(source: &Source<'_>, document: &str) -> Option<Finding> {
    let line = line_for(source);
    (!document.lines().any(|present| present == line)).then(|| {
        let what = "the layout has changed, or was never described";
        let reason = format!(
            "bring {} up to date with it, and put this line there in place of the old one: {line}",
            document_of(source.path)
        );
        Finding::new(source.path, 1, what, reason)
    })
}

/// Fingerprints in the document at `path` of files that are not among `marked`.
pub(crate) fn stale_fingerprints(path: &str, document: &str, marked: &[&str]) -> Vec<Finding> {
    let lines = (1..).zip(document.lines());
    let named =
        lines.filter_map(|(number, line)| Some((number, line.strip_prefix(LINE_START)?.split(' ').next()?)));
    let stale = named.filter(|(_, file)| !marked.contains(file) || document_of(file) != path);
    let reason = format!(
        "no such file says `{MARKER}` and belongs in this document: remove the line and its paragraph"
    );
    stale
        .map(|(number, file)| Finding::new(path, number, format!("a fingerprint of {file}"), &*reason))
        .collect()
}

/// The tokens as text, the same for every formatting: no comments, no doc comments, no trailing commas.
fn canonical(tokens: TokenStream) -> String {
    let mut text = String::new();
    let mut rest = tokens.into_iter().peekable();
    while let Some(token) = rest.next() {
        if is_punct(&token, '#') && rest.peek().is_some_and(|next| is_doc(next) || is_punct(next, '!')) {
            if rest.next_if(is_doc).is_some() {
                continue;
            }
            // An inner attribute: `#`, `!`, then its group.
            let bang = rest.next();
            if rest.next_if(is_doc).is_none() {
                text.extend(bang.map(|bang| format!("#{bang} ")));
            }
            continue;
        }
        match &token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                text.extend([open, &canonical(group.stream()), close]);
            }
            comma if is_punct(comma, ',') && rest.peek().is_none() => {}
            other => text.extend([&other.to_string(), " "]),
        }
    }
    text
}

fn is_doc(token: &TokenTree) -> bool {
    let TokenTree::Group(group) = token else { return false };
    group.delimiter() == Delimiter::Bracket
        && matches!(group.stream().into_iter().next(), Some(TokenTree::Ident(name)) if name == "doc")
}

/// FNV-1a with 64 bits: short, and the same in every release of every library.
fn fnv1a(text: &str) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    text.bytes().fold(BASIS, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str =
        "//! Messages.\n//! Layout: see below.\n#![allow(a)]\nconst LENGTH: u8 = 4;\nstruct A {a: u8,}";

    fn line(text: &str) -> String {
        line_for(&Source::parse("wire/src/lease.rs", text).ok().unwrap())
    }

    #[test]
    fn only_marked_files_decide_a_layout() {
        assert!(decides_layout(FILE));
        assert!(!decides_layout("//! Helpers.\nuse a;\n//! Layout: too late"));
    }

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!([fnv1a(""), fnv1a("foobar")], [0xcbf2_9ce4_8422_2325, 0x8594_4171_f739_67e8]);
    }

    #[test]
    fn formatting_comments_and_tests_leave_the_fingerprint_alone() {
        let same = "//! Layout: other words.\n\n#![allow(a)]\n/// Bytes.\nconst LENGTH: u8\n= 4; // four
            struct A { /* one */ a: u8 }\n#[cfg(test)] mod tests { fn a() {} }";
        assert_eq!(line(same), line(FILE));
    }

    #[test]
    fn a_changed_layout_asks_for_its_document() {
        let changed = FILE.replace("u8 = 4", "u8 = 5");
        let source = Source::parse("wire/src/lease.rs", &changed).ok().unwrap();
        let document = |text: &str| format!("# Wire\n\n{}\n", line(text));
        assert_eq!(undocumented_layout(&source, &document(&changed)), None);
        let finding = undocumented_layout(&source, &document(FILE)).unwrap();
        assert!(finding.reason.ends_with(&line(&changed)), "no line to paste in: {finding}");
        assert!(undocumented_layout(&source, "").is_some());
        assert_ne!(line(&FILE.replace("allow(a)", "allow(b)")), line(FILE));
    }

    #[test]
    fn fingerprints_of_nothing_are_stale() {
        let document = format!("\n{}\n", line(FILE));
        let found =
            |path, marked| stale_fingerprints(path, &document, marked).iter().map(|f| f.line).collect();
        let (fresh, gone, misplaced): (Vec<_>, Vec<_>, Vec<_>) = (
            found("docs/wire.md", &["wire/src/lease.rs"]),
            found("docs/wire.md", &[]),
            found("docs/disk.md", &["wire/src/lease.rs"]),
        );
        assert_eq!((fresh, gone, misplaced), (vec![], vec![2], vec![2]));
    }
}
