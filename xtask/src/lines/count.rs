//! Code lines of one file: lines that have a token of the language which is no comment, doc comments included.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use proc_macro2::{LineColumn, TokenStream, TokenTree};
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// What a file has.
#[derive(Debug, PartialEq, Eq)]
pub struct Counted {
    /// Lines of code, those of tests left out.
    pub code: usize,
    /// Lines of code of tests.
    pub tests: usize,
    /// Modules in files of their own that are compiled for tests alone, with the modules that they are declared in:
    /// `tests`, `inner/tests`.
    pub test_modules: Vec<PathBuf>,
}

/// Counts a file.
///
/// # Errors
///
/// If it is no Rust.
pub fn count(text: &str) -> syn::Result<Counted> {
    let mut code = BTreeSet::new();
    add_lines(text, text.parse()?, &mut code);
    let mut tests = Tests::default();
    tests.visit_file(&syn::parse_file(text)?);
    let is_test = |line: &&usize| tests.lines.iter().any(|lines| lines.contains(*line));
    // Places of a file are kept until then, and looked for among those of all.
    proc_macro2::extra::invalidate_current_thread_spans();
    let of_tests = code.iter().filter(is_test).count();
    Ok(Counted { code: code.len() - of_tests, tests: of_tests, test_modules: tests.modules })
}

/// Adds the lines of a stream's tokens. Lines without text within a string are blank all the same.
fn add_lines(text: &str, tokens: TokenStream, lines: &mut BTreeSet<usize>) {
    let is_blank: Vec<bool> = text.lines().map(|line| line.trim().is_empty()).collect();
    let mut add = |start: LineColumn, end: LineColumn| {
        lines.extend((start.line..=end.line).filter(|line| !is_blank[line - 1]));
    };
    let mut streams = vec![tokens];
    while let Some(stream) = streams.pop() {
        let mut tokens = stream.into_iter().peekable();
        while let Some(token) = tokens.next() {
            let span = token.span();
            match token {
                // A doc comment is an attribute of which every token is as long as the comment.
                TokenTree::Punct(sign) if sign.as_char() == '#' && is_longer_than_one(span) => {
                    let is_of_comment = |token: &TokenTree| {
                        let of = token.span();
                        (of.start(), of.end()) == (span.start(), span.end())
                    };
                    while tokens.next_if(is_of_comment).is_some() {}
                }
                TokenTree::Group(group) => {
                    add(group.span_open().start(), group.span_open().end());
                    add(group.span_close().start(), group.span_close().end());
                    streams.push(group.stream());
                }
                _ => add(span.start(), span.end()),
            }
        }
    }
}

fn is_longer_than_one(span: proc_macro2::Span) -> bool {
    let (start, end) = (span.start(), span.end());
    start.line != end.line || start.column + 1 != end.column
}

/// What is compiled for tests alone.
#[derive(Default)]
struct Tests {
    lines: Vec<RangeInclusive<usize>>,
    modules: Vec<PathBuf>,
    /// The modules around.
    inside: PathBuf,
}

impl Tests {
    /// Whether a part of the file is a test's, which is remembered then.
    fn takes(&mut self, part: &impl ToTokens) -> bool {
        let is_test = is_marked(part.to_token_stream());
        if is_test {
            self.lines.push(part.span().start().line..=part.span().end().line);
        }
        is_test
    }
}

impl<'a> Visit<'a> for Tests {
    fn visit_item(&mut self, item: &'a syn::Item) {
        let is_test = self.takes(item);
        match item {
            syn::Item::Mod(module) if is_test && module.content.is_none() => {
                self.modules.push(self.inside.join(module.ident.to_string()));
            }
            _ if is_test => {}
            syn::Item::Mod(module) => {
                self.inside.push(module.ident.to_string());
                visit::visit_item_mod(self, module);
                self.inside.pop();
            }
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_impl_item(&mut self, item: &'a syn::ImplItem) {
        if !self.takes(item) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_trait_item(&mut self, item: &'a syn::TraitItem) {
        if !self.takes(item) {
            visit::visit_trait_item(self, item);
        }
    }

    fn visit_field(&mut self, field: &'a syn::Field) {
        if !self.takes(field) {
            visit::visit_field(self, field);
        }
    }

    fn visit_stmt(&mut self, statement: &'a syn::Stmt) {
        if !self.takes(statement) {
            visit::visit_stmt(self, statement);
        }
    }
}

/// Whether a part begins with attributes of which one leaves it to tests: `#[test]`, or a `#[cfg(..)]` that holds in tests
/// alone.
fn is_marked(part: TokenStream) -> bool {
    let mut tokens = part.into_iter();
    while let (Some(TokenTree::Punct(sign)), Some(TokenTree::Group(group))) =
        (tokens.next(), tokens.next())
    {
        if sign.as_char() != '#' {
            return false;
        }
        let is_marked = match syn::parse2::<syn::Meta>(group.stream()) {
            Ok(syn::Meta::List(list)) if list.path.is_ident("cfg") => {
                list.parse_args().is_ok_and(|condition| is_of_tests(&condition))
            }
            meta => meta.is_ok_and(|meta| meta.path().is_ident("test")),
        };
        if is_marked {
            return true;
        }
    }
    false
}

/// Whether a condition can hold in tests alone: `test`, the feature `testing`, all of some of which one is such, or any
/// of some which all are.
fn is_of_tests(condition: &syn::Meta) -> bool {
    match condition {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::NameValue(pair) => {
            let value = pair.value.to_token_stream().to_string();
            pair.path.is_ident("feature") && value == "\"testing\""
        }
        syn::Meta::List(list) => {
            let Ok(parts) = list.parse_args_with(
                syn::punctuated::Punctuated::<syn::Meta, syn::Token![,]>::parse_terminated,
            ) else {
                return false;
            };
            match list.path.get_ident().map(ToString::to_string).as_deref() {
                Some("all") => parts.iter().any(is_of_tests),
                Some("any") => parts.iter().all(is_of_tests),
                _ => false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(text: &str) -> (usize, usize) {
        let counted = count(text).unwrap();
        (counted.code, counted.tests)
    }

    #[test]
    fn comments_and_blanks_are_no_code() {
        let text = "//! Theory.\n\n/* a\n block */\n/// Doc.\nfn f() { // why\n    /* in */ g();\n\n}\n\
                    /** Long\n doc */\n#[doc = \"attribute\"]\nstruct S;\n#![allow(x)]\n";
        // fn, g, }, doc =, struct.
        assert_eq!(counts(&text.replace("#![allow(x)]\n", "")), (5, 0));
        assert!(count(text).is_err(), "an inner attribute stands at the beginning");
        assert_eq!(counts("#![allow(x)]\n//! Front.\n"), (1, 0));
    }

    #[test]
    fn comments_within_macros_and_marks_within_texts_are_told_apart() {
        let text = "macro_rules! m {\n    () => {\n        /// Doc.\n        // Comment.\n        f()\n    };\n}\n\
                    const URL: &str = \"http://x\n\n// text\n/* text\";\nconst C: char = '/';\n";
        assert_eq!(counts(text), (5 + 3 + 1, 0));
    }

    #[test]
    fn tests_are_what_is_compiled_for_them_alone() {
        let text = "struct S {\n    a: u8,\n    #[cfg(test)]\n    b: u8,\n}\n\
                    impl S {\n    #[cfg(all(unix, test))]\n    fn c() {\n    }\n    #[cfg(not(test))]\n    fn d() {}\n}\n\
                    #[cfg(any(test, unix))]\nfn e() {\n    #[cfg(any(test, feature = \"testing\"))]\n    f();\n}\n\
                    /// Doc.\n#[inline]\n#[test]\nfn g() {\n    // Nothing.\n}\n\
                    #[cfg(test)]\nmod tests {\n    use super::*;\n}\n";
        let tests = 2 + 3 + 2 + 4 + 4;
        assert_eq!(counts(text), (3 + 4 + 3, tests));
    }

    #[test]
    fn modules_of_tests_in_other_files_are_named() {
        let text = "mod a;\n#[cfg(test)]\nmod tests;\nmod inner {\n    #[cfg(feature = \"testing\")]\n    pub mod b;\n}\n";
        let expected = ["tests", "inner/b"].map(PathBuf::from).to_vec();
        assert_eq!(count(text).unwrap().test_modules, expected);
    }
}
