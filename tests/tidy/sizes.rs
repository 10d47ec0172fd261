//! Functions that fit a screen, files that fit a head, signatures that fit a line.
//!
//! A function's lines run from its `fn` to its closing brace, both included; blank lines and lines that hold
//! only a comment are free, so that no `why` is dropped to make room. Functions inside macro calls count too.
//! A file's lines are all of them. There is no list of exceptions: what is too large is split.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use quote::ToTokens;
use syn::visit::{self, Visit};

use crate::finding::Finding;
use crate::source::Source;

const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 799;
const PARAMETERS_MAX: usize = 5;

/// What is too large in `source`.
pub(crate) fn too_large(source: &Source<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let lines = source.text.lines().count();
    if lines > FILE_LINES_MAX {
        let what = format!("the file has {lines} lines, {FILE_LINES_MAX} are allowed");
        findings.push(Finding::new(source.path, lines, what, "split it by responsibility"));
    }
    long_functions(source, source.tree.to_token_stream(), &mut findings);
    let mut signatures = Signatures { path: source.path, findings };
    signatures.visit_file(&source.tree);
    signatures.findings
}

/// Looks for `fn name … { … }` in `tokens`, at every depth.
fn long_functions(source: &Source<'_>, tokens: TokenStream, findings: &mut Vec<Finding>) {
    // The name and first line of a function whose body is still to come.
    let mut open: Option<(String, usize)> = None;
    let mut after_fn: Option<usize> = None;
    for token in tokens {
        match &token {
            TokenTree::Ident(ident) if ident == "fn" => after_fn = Some(ident.span().start().line),
            TokenTree::Ident(ident) => {
                if let Some(first) = after_fn.take() {
                    open = Some((ident.to_string(), first));
                }
            }
            TokenTree::Punct(punct) if punct.as_char() == ';' => open = None,
            TokenTree::Group(group) => {
                // `fn(A) -> B` is a type.
                after_fn = None;
                if group.delimiter() == Delimiter::Brace
                    && let Some((name, first)) = open.take()
                {
                    findings.extend(long_function(source, &name, first, group.span_close().end().line));
                }
                long_functions(source, group.stream(), findings);
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

fn long_function(source: &Source<'_>, name: &str, first: usize, last: usize) -> Option<Finding> {
    let body = source.text.lines().take(last).skip(first - 1).map(str::trim);
    let lines = body.filter(|line| !line.is_empty() && !line.starts_with("//")).count();
    (lines > FUNCTION_LINES_MAX).then(|| {
        let what = format!("`{name}` has {lines} lines of code, {FUNCTION_LINES_MAX} are allowed");
        Finding::new(source.path, first, what, "a function fits a screen: give its parts names of their own")
    })
}

/// Counts parameters where a signature is chosen, which is not where a trait is implemented: a workspace trait
/// is checked at its definition, and a foreign trait leaves no choice.
struct Signatures<'a> {
    path: &'a str,
    findings: Vec<Finding>,
}

impl<'ast> Visit<'ast> for Signatures<'_> {
    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        if block.trait_.is_none() {
            return visit::visit_item_impl(self, block);
        }
        for item in &block.items {
            match item {
                syn::ImplItem::Fn(function) => self.visit_block(&function.block),
                other => self.visit_impl_item(other),
            }
        }
    }

    fn visit_item_foreign_mod(&mut self, _: &'ast syn::ItemForeignMod) {}

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        let parameters =
            signature.inputs.iter().filter(|input| matches!(input, syn::FnArg::Typed(_))).count();
        if parameters > PARAMETERS_MAX {
            let line = signature.fn_token.span.start().line;
            let name = &signature.ident;
            let what = format!(
                "`{name}` takes {parameters} parameters besides `self`, {PARAMETERS_MAX} are allowed"
            );
            self.findings.push(Finding::new(self.path, line, what, "give those that belong together a type"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines and texts of the findings.
    fn found(text: &str) -> Vec<(usize, String)> {
        let source = Source::parse("base/src/lib.rs", text).ok().unwrap();
        too_large(&source).into_iter().map(|finding| (finding.line, finding.what)).collect()
    }

    #[test]
    fn functions_fit_a_screen() {
        let body = |statements: usize| format!("\nfn f() {{\n{}}}\n", "    a();\n".repeat(statements));
        assert_eq!(found(&body(68)), []);
        assert_eq!(found(&body(69)), [(2, "`f` has 71 lines of code, 70 are allowed".to_owned())]);
    }

    #[test]
    fn comments_and_blank_lines_are_free() {
        let text = format!("fn f() {{\n{}{}}}", "\n".repeat(60), "    // Why.\n".repeat(60));
        assert_eq!(found(&text), []);
    }

    #[test]
    fn functions_inside_other_items_count() {
        let function =
            format!("fn f<T>(a: fn(u8) -> u8) -> [T; 2]\nwhere T: Copy {{\n{}}}", "a();\n".repeat(70));
        for around in ["impl A for B {", "mod m {", "proptest! {", "fn g(a: A) {"] {
            let found = found(&format!("{around}\n{function}\n}}"));
            assert!(
                found.iter().any(|(line, what)| *line == 2 && what.starts_with("`f` has 73")),
                "{around}: {found:?}"
            );
        }
    }

    #[test]
    fn files_stay_under_eight_hundred_lines() {
        assert_eq!(found(&"//\n".repeat(799)), []);
        assert_eq!(found(&"//\n".repeat(800)), [(800, "the file has 800 lines, 799 are allowed".to_owned())]);
    }

    #[test]
    fn signatures_take_five_parameters() {
        let five = "a: A, b: A, c: A, d: A, e: A";
        for good in [
            format!("fn f({five}) {{}}"),
            format!("impl S {{ fn f(&mut self, {five}) {{}} }}"),
            format!("impl T for S {{ fn f(&self, {five}, g: A) {{}} }}"),
            format!("extern \"C\" {{ fn f({five}, g: A); }}"),
        ] {
            assert_eq!(found(&good), [], "{good}");
        }
        for bad in [
            format!("fn f({five}, g: A) {{}}"),
            format!("impl S {{ fn f(&self, {five}, g: A) {{}} }}"),
            format!("trait T {{ fn f(&self, {five}, g: A); }}"),
            format!("impl T for S {{ fn f() {{ fn inner({five}, g: A) {{}} }} }}"),
        ] {
            assert_eq!(found(&bad).len(), 1, "{bad}");
        }
    }
}
