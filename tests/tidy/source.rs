//! A Rust file in the forms the rules look at: its text, its syntax tree, and the names its tokens spell.
//!
//! Rules look at tokens, not at text, so a comment or a string may say `std::fs` and code may not.

use std::iter::Peekable;

use proc_macro2::token_stream::IntoIter;
use proc_macro2::{Spacing, TokenStream, TokenTree};
use quote::ToTokens;
use syn::visit_mut::{self, VisitMut};

use crate::finding::Finding;

/// A parsed Rust file.
pub(crate) struct Source<'a> {
    /// The file, relative to the root of the workspace.
    pub(crate) path: &'a str,
    /// All of it.
    pub(crate) text: &'a str,
    /// All of it, parsed.
    pub(crate) tree: syn::File,
    /// All names in it.
    pub(crate) names: Vec<Name>,
    /// The tokens that are built into the product: nothing under `#[cfg(test)]`, nothing in a test file.
    pub(crate) product: TokenStream,
}

/// A path as code spells it; `use a::{b, c::*}` spells `a::b` and `a::c::*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// The parts between the `::`; `core` and `alloc` read `std`, and a macro's last part ends in `!`.
    pub(crate) parts: Vec<String>,
    /// Where the last part stands, counted from 1.
    pub(crate) line: usize,
}

impl<'a> Source<'a> {
    /// Parses `text`, or says where it is no Rust.
    pub(crate) fn parse(path: &'a str, text: &'a str) -> Result<Self, Finding> {
        let tree = syn::parse_file(text).map_err(|error| {
            Finding::new(path, error.span().start().line, error.to_string(), "this file cannot be parsed")
        })?;
        let mut product = tree.clone();
        if is_test_file(path) {
            product.items.clear();
        }
        WithoutTests.visit_file_mut(&mut product);
        let names = names(tree.to_token_stream());
        Ok(Self { path, text, tree, names, product: product.into_token_stream() })
    }
}

impl Name {
    /// Whether this name is, or leads into, what `pattern` names.
    ///
    /// `std::fs` matches from the first part on; `*::Instant::now` matches wherever these parts follow each
    /// other. A wildcard import matches what it could bring in.
    pub(crate) fn matches(&self, pattern: &str) -> bool {
        if let Some(anywhere) = pattern.strip_prefix("*::") {
            let wanted: Vec<&str> = anywhere.split("::").collect();
            return self.parts.windows(wanted.len()).any(|parts| parts == wanted);
        }
        let mut wanted = pattern.split("::");
        let mut parts = self.parts.iter();
        loop {
            match (parts.next(), wanted.next()) {
                (_, None) => return true,
                (Some(part), Some(wanted)) if part == wanted => {}
                (Some(part), Some(_)) => return part == "*",
                (None, Some(_)) => return false,
            }
        }
    }
}

/// Whether a whole file is test code, by its place.
pub(crate) fn is_test_file(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "tests" | "benches" | "tests.rs"))
}

/// Removes what only a test build compiles. `any(test, feature = …)` stays: a product build may have it.
struct WithoutTests;

impl VisitMut for WithoutTests {
    fn visit_file_mut(&mut self, file: &mut syn::File) {
        file.items.retain(|item| !is_test_only(item));
        visit_mut::visit_file_mut(self, file);
    }

    fn visit_item_mod_mut(&mut self, module: &mut syn::ItemMod) {
        if let Some((_, items)) = &mut module.content {
            items.retain(|item| !is_test_only(item));
        }
        visit_mut::visit_item_mod_mut(self, module);
    }

    fn visit_item_impl_mut(&mut self, block: &mut syn::ItemImpl) {
        block.items.retain(|item| !is_test_only(item));
        visit_mut::visit_item_impl_mut(self, block);
    }

    fn visit_item_trait_mut(&mut self, definition: &mut syn::ItemTrait) {
        definition.items.retain(|item| !is_test_only(item));
        visit_mut::visit_item_trait_mut(self, definition);
    }

    fn visit_block_mut(&mut self, block: &mut syn::Block) {
        block.stmts.retain(|statement| !is_test_only(statement));
        visit_mut::visit_block_mut(self, block);
    }
}

/// Whether the attributes at the front of `item` say `cfg(test)` or `cfg(all(test, …))`.
fn is_test_only(item: &impl ToTokens) -> bool {
    let tokens: Vec<TokenTree> = item.to_token_stream().into_iter().collect();
    let attributes = tokens.chunks(2).map_while(|pair| match pair {
        [TokenTree::Punct(hash), TokenTree::Group(attribute)] if hash.as_char() == '#' => Some(attribute),
        _ => None,
    });
    attributes.into_iter().any(|attribute| {
        let text: String = attribute.stream().to_string().split_whitespace().collect();
        text == "cfg(test)" || text.starts_with("cfg(all(test,")
    })
}

/// All names in `tokens`, macro arguments and attributes included.
pub(crate) fn names(tokens: TokenStream) -> Vec<Name> {
    let mut found = Vec::new();
    collect_names(tokens, &[], &mut found);
    found
}

/// Appends the names in `tokens`; inside `use a::{…}` they all begin with `prefix`.
fn collect_names(tokens: TokenStream, prefix: &[String], found: &mut Vec<Name>) {
    let mut rest = tokens.into_iter().peekable();
    while let Some(token) = rest.next() {
        match token {
            TokenTree::Group(group) => collect_names(group.stream(), &[], found),
            TokenTree::Ident(first) => {
                let mut name = Name { parts: prefix.to_vec(), line: first.span().start().line };
                name.parts.push(normal(&first.to_string(), prefix.is_empty()));
                read_on(&mut name, &mut rest, found);
                found.push(name);
            }
            TokenTree::Punct(star) if star.as_char() == '*' && !prefix.is_empty() => {
                let mut name = Name { parts: prefix.to_vec(), line: star.span().start().line };
                name.parts.push("*".to_owned());
                found.push(name);
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// Takes the rest of a path from `rest` into `name`; the names of a `{…}` at its end go to `found`.
fn read_on(name: &mut Name, rest: &mut Peekable<IntoIter>, found: &mut Vec<Name>) {
    // One `:` is a type or a bound; two lead on.
    while rest.next_if(|token| is_punct(token, ':')).is_some()
        && rest.next_if(|token| is_punct(token, ':')).is_some()
    {
        match rest.next_if(|token| !matches!(token, TokenTree::Punct(punct) if punct.as_char() != '*')) {
            Some(TokenTree::Group(group)) => return collect_names(group.stream(), &name.parts, found),
            Some(part) => {
                name.line = part.span().start().line;
                name.parts.push(part.to_string());
            }
            None => return,
        }
    }
    // `a != b` calls no macro.
    if matches!(rest.peek(), Some(TokenTree::Punct(bang)) if bang.as_char() == '!' && bang.spacing() == Spacing::Alone)
        && let Some(last) = name.parts.last_mut()
    {
        last.push('!');
    }
}

/// `core` and `alloc` hold the same things as `std`.
fn normal(part: &str, is_first: bool) -> String {
    match part {
        "core" | "alloc" if is_first => "std".to_owned(),
        part => part.to_owned(),
    }
}

/// Whether `token` is the punctuation `wanted`.
pub(crate) fn is_punct(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spelled(text: &str) -> Vec<String> {
        names(text.parse().unwrap()).iter().map(|name| name.parts.join("::")).collect()
    }

    fn product(text: &str) -> String {
        Source::parse("base/src/lib.rs", text).ok().unwrap().product.to_string()
    }

    #[test]
    fn names_are_spelled_out() {
        assert_eq!(
            spelled("use std::{fs, time::{Instant, *}};"),
            ["use", "std::fs", "std::time::Instant", "std::time::*", "std::time", "std"]
        );
        assert_eq!(spelled("a::b::<C>(d: E)"), ["a::b", "C", "d", "E"]);
        assert_eq!(spelled("core::mem::take(println!(\"{x}\"))"), ["std::mem::take", "println!"]);
    }

    #[test]
    fn patterns_match_whole_parts() {
        let name = |text: &str| names(text.parse().unwrap()).remove(0);
        assert!(name("std::fs::File").matches("std::fs"));
        assert!(name("tokio::time::Instant::now").matches("*::Instant::now"));
        assert!(name("std::*").matches("std::fs"));
        assert!(!name("std::fsx").matches("std::fs"));
        assert!(!name("crate::std::fs").matches("std::fs"));
        assert!(!name("std").matches("std::fs"));
    }

    #[test]
    fn only_what_needs_a_test_build_is_removed() {
        assert_eq!(product("#[cfg(test)] mod tests { fn a() {} }"), "");
        assert_eq!(product("/// Doc.\n#[cfg(all(test, unix))] fn a() {}"), "");
        assert_eq!(product("mod m { #[cfg(test)] fn a() {} }").replace(' ', ""), "modm{}");
        assert!(product("#[cfg(any(test, unix))] fn a() {}").contains("fn a"));
        assert!(product("#[cfg(not(test))] fn a() {}").contains("fn a"));
        assert!(product("fn f() { #[cfg(test)] a(); b(); }").contains("b ()"));
        assert!(!product("fn f() { #[cfg(test)] a(); b(); }").contains("a ()"));
    }

    #[test]
    fn what_is_no_rust_is_reported_with_its_line() {
        let finding = Source::parse("base/src/lib.rs", "\nfn (").err().unwrap();
        assert_eq!((finding.path.as_str(), finding.line), ("base/src/lib.rs", 2));
    }
}
