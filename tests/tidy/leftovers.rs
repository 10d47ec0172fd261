//! What must not be left behind: tests switched off, and work put off.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;

use crate::finding::Finding;
use crate::source::{Source, is_punct};

/// Split, so that this file does not hold what it looks for.
const MARKS: &[&str] = &[concat!("FIX", "ME"), concat!("X", "XX"), concat!("HA", "CK")];

/// What was left behind in `source`.
pub(crate) fn left_behind(source: &Source<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    ignored_tests(source.path, source.tree.to_token_stream(), &mut findings);
    let reason = "write it now, or leave it out: a path that always panics is not a plan";
    for name in
        source.names.iter().filter(|name| name.matches("*::todo!") || name.matches("*::unimplemented!"))
    {
        findings.push(Finding::new(source.path, name.line, name.parts.join("::"), reason));
    }
    for (number, line) in (1..).zip(source.text.lines()) {
        for mark in MARKS.iter().filter(|&&mark| has_word(line, mark)) {
            let reason = "do it, or describe the limit in whole sentences where users look for it";
            findings.push(Finding::new(source.path, number, format!("says {mark}"), reason));
        }
    }
    findings
}

/// Looks for `#[ignore]`, also behind `cfg_attr`, at every depth.
fn ignored_tests(path: &str, tokens: TokenStream, findings: &mut Vec<Finding>) {
    let mut after_hash = false;
    for token in tokens {
        if let TokenTree::Group(group) = &token {
            if after_hash && group.delimiter() == Delimiter::Bracket && is_ignore(group.stream()) {
                let reason =
                    "a test that does not run proves nothing: mend it, move it to the long runs, or drop it";
                findings.push(Finding::new(path, group.span_open().start().line, "#[ignore]", reason));
            }
            ignored_tests(path, group.stream(), findings);
        }
        after_hash = is_punct(&token, '#');
    }
}

fn is_ignore(attribute: TokenStream) -> bool {
    let mut tokens = attribute.into_iter();
    match (tokens.next(), tokens.next()) {
        (Some(TokenTree::Ident(name)), _) if name == "ignore" => true,
        (Some(TokenTree::Ident(name)), Some(TokenTree::Group(arguments))) if name == "cfg_attr" => {
            let names_ignore = |token| matches!(token, TokenTree::Ident(name) if name == "ignore");
            arguments.stream().into_iter().any(names_ignore)
        }
        _ => false,
    }
}

/// Whether `word` stands in `text` with no letter, digit or `_` next to it.
pub(crate) fn has_word(text: &str, word: &str) -> bool {
    text.match_indices(word).any(|(start, _)| {
        let is_part = |neighbour: Option<char>| neighbour.is_some_and(|c| c.is_alphanumeric() || c == '_');
        !is_part(text[..start].chars().next_back()) && !is_part(text[start + word.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<usize> {
        let source = Source::parse("base/src/lib.rs", text).ok().unwrap();
        left_behind(&source).iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn ignored_tests_are_found() {
        assert_eq!(lines("mod m {\n#[test]\n#[ignore = \"slow\"]\nfn a() {} }"), [3]);
        assert_eq!(lines("#[cfg_attr(debug_assertions, ignore)] fn a() {}"), [1]);
        assert_eq!(lines("m! { #[ignore] fn a() {} }"), [1]);
        assert_eq!(lines("#[allow(x)] fn ignore() { let a = [ignore]; }"), []);
    }

    #[test]
    fn unwritten_code_is_found() {
        assert_eq!(lines("fn a() {\n todo!() }\nfn b() { std::unimplemented!(\"x\") }"), [2, 3]);
        assert_eq!(lines("fn todo() -> bool { todo != 1 && a.todo() }"), []);
    }

    #[test]
    fn marks_are_found_as_words() {
        for mark in MARKS {
            assert_eq!(lines(&format!("\n// {mark}: later")), [2]);
            assert_eq!(lines(&format!("// {mark}S and _{mark}")), []);
        }
    }
}
