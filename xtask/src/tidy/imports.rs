//! The import rule: which room a file names, and whether it may.
//!
//! Every path counts, wherever it stands: `use` trees with their groups and renames, `super::` chains that leave the
//! room, expressions, types, attributes, macro bodies, and test modules too (a room's tests are part of the room).
//! A name without `crate::` or `super::` needs an import to reach another room, and that import is seen. What is not
//! seen: a room that re-exports what it was allowed to import.

use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};

use super::Finding;
use super::rooms::{self, BINARY};
use super::tokens::{Token, push_all, reads};

/// The name of the library crate, as the binary and a stray `extern crate self` would write it.
const LIBRARY: &str = "lockstep";

/// Crates that one room alone may name, and the folder or file it does so in.
const CONFINED: &[(&str, &[&str])] = &[("cudarc", &["src/device/cuda.rs", "src/device/cuda/"])];

/// All findings of the import rule for one file under `src/`.
pub(super) fn check(path: &str, text: &str) -> Vec<Finding> {
    if !path.starts_with("src/") {
        return Vec::new();
    }
    let file = match syn::parse_file(text) {
        Ok(file) => file,
        Err(error) => {
            let line = error.span().start().line;
            return vec![Finding::error(path, line, format!("does not parse: {error}"))];
        }
    };
    let mut findings = Vec::new();
    if let Some(room) = rooms::room_of(path).filter(|room| rooms::rank(room).is_none()) {
        findings.push(Finding::error(
            path,
            1,
            format!("room `{room}` is not in the list (xtask/src/tidy/rooms.rs)"),
        ));
    }
    let mut names = Names { modules: modules_of(path), found: Vec::new(), hidden: Vec::new() };
    names.visit_file(&file);
    let binary = rooms::room_of(path).is_some_and(|room| BINARY.contains(&room));
    for name in &names.found {
        let verdict = match &name.root {
            Root::Crate if binary => None,
            Root::Crate | Root::Library => rooms::verdict(path, &name.segments),
            Root::Extern(krate) => confined(path, krate),
        };
        findings.extend(verdict.map(|message| Finding::error(path, name.line, message)));
    }
    for line in &names.hidden {
        let message = "`#[path]` puts a file where the import rule does not expect it";
        findings.push(Finding::error(path, *line, message));
    }
    findings.sort();
    findings.dedup();
    findings
}

fn confined(path: &str, krate: &str) -> Option<String> {
    let (krate, places) = CONFINED.iter().find(|(name, _)| *name == krate)?;
    let inside = places.iter().any(|place| path == *place || path.starts_with(place));
    (!inside).then(|| format!("names `{krate}`, which only {} may", places.join(" or ")))
}

/// The module that a file is, as path segments: `src/engine/blocks.rs` is `[engine, blocks]`.
fn modules_of(path: &str) -> Vec<String> {
    let inner = path.strip_prefix("src/").unwrap_or(path);
    let inner = inner.strip_suffix(".rs").unwrap_or(inner);
    let mut modules: Vec<String> = inner.split('/').map(str::to_owned).collect();
    let root = modules.len() == 1 && ["lib", "main"].contains(&modules[0].as_str());
    if root || modules.last().is_some_and(|m| m == "mod") {
        modules.pop();
    }
    modules
}

/// What a path starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Root {
    /// The crate that the file belongs to.
    Crate,
    /// The library, by its name.
    Library,
    /// Anything else: another crate, or a name in scope.
    Extern(String),
}

/// One path, resolved to the root it starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Name {
    root: Root,
    segments: Vec<String>,
    line: usize,
}

/// Collects the names of a file.
struct Names {
    /// The module under visit, as a path from the crate's root.
    modules: Vec<String>,
    found: Vec<Name>,
    /// Lines of modules with a `#[path]`.
    hidden: Vec<usize>,
}

impl Names {
    /// Resolves `segments` as written in the module under visit.
    fn add(&mut self, segments: &[String], line: usize) {
        let Some(first) = segments.first() else { return };
        let (root, mut base) = match first.as_str() {
            "crate" => (Root::Crate, Vec::new()),
            "self" | "super" => (Root::Crate, self.modules.clone()),
            LIBRARY => (Root::Library, Vec::new()),
            other => (Root::Extern(other.to_owned()), Vec::new()),
        };
        if first == "super" {
            base.pop();
        }
        let mut rest = &segments[1..];
        while let [up, after @ ..] = rest
            && up == "super"
        {
            base.pop();
            rest = after;
        }
        base.extend_from_slice(rest);
        self.found.push(Name { root, segments: base, line });
    }

    /// Adds each leaf of a `use` tree.
    fn add_use(&mut self, tree: &syn::UseTree, prefix: &[String]) {
        let with = |ident: &syn::Ident| {
            let mut path = prefix.to_vec();
            // `engine::{self}` names `engine`; a leading `self` is a root.
            if prefix.is_empty() || ident != "self" {
                path.push(ident.to_string());
            }
            path
        };
        match tree {
            syn::UseTree::Path(path) => self.add_use(&path.tree, &with(&path.ident)),
            syn::UseTree::Name(name) => {
                self.add(&with(&name.ident), name.ident.span().start().line)
            }
            syn::UseTree::Rename(rename) => {
                self.add(&with(&rename.ident), rename.ident.span().start().line);
            }
            syn::UseTree::Glob(glob) => self.add(prefix, glob.span().start().line),
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.add_use(tree, prefix);
                }
            }
        }
    }

    /// Adds the paths in tokens that no parser has structured: macro bodies and attributes.
    fn add_tokens(&mut self, stream: proc_macro2::TokenStream) {
        let mut tokens = Vec::new();
        push_all(stream, &mut tokens);
        let mut at = 0;
        while at < tokens.len() {
            if let Some(inner) = quoted(&tokens[at].text) {
                self.add_quoted(inner, tokens[at].line);
            }
            at = self.add_tokens_at(&tokens, at, &[]);
        }
    }

    /// Adds the path or `use` tree at `at`, if one starts there, and returns where to read on.
    fn add_tokens_at(&mut self, tokens: &[Token], mut at: usize, prefix: &[String]) -> usize {
        let line = tokens[at].line;
        let mut path = prefix.to_vec();
        while tokens.get(at).is_some_and(|token| is_identifier(&token.text)) {
            path.push(tokens[at].text.clone());
            at += 1;
            if !reads(tokens, at, &[":", ":"]) {
                break;
            }
            at += 2;
            if reads(tokens, at, &["{"]) {
                at += 1;
                while at < tokens.len() && tokens[at].text != "}" {
                    at = self.add_tokens_at(tokens, at, &path);
                }
                return at + 1;
            }
        }
        if path.len() == prefix.len() {
            return at + 1;
        }
        // A lone name is no path, unless a glob or a rename of the root follows it.
        if path.len() > 1 || reads(tokens, at, &["*"]) {
            self.add(&path, line);
        }
        at
    }

    /// Adds the paths in a string of an attribute, as in `#[serde(with = "crate::room::hex")]`.
    fn add_quoted(&mut self, inner: &str, line: usize) {
        let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        for word in inner.split(|c| !is_path(c)) {
            if word.starts_with("crate::") || word.starts_with("super::") {
                let path: Vec<String> = word.split("::").map(str::to_owned).collect();
                self.add(&path, line);
            }
        }
    }
}

fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn quoted(text: &str) -> Option<&str> {
    text.strip_prefix('"')?.strip_suffix('"')
}

impl<'ast> Visit<'ast> for Names {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if module.attrs.iter().any(|attribute| attribute.path().is_ident("path")) {
            self.hidden.push(module.span().start().line);
        }
        self.modules.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.modules.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        for attribute in &item.attrs {
            self.visit_attribute(attribute);
        }
        self.add_use(&item.tree, &[]);
    }

    fn visit_item_extern_crate(&mut self, item: &'ast syn::ItemExternCrate) {
        let name = if item.ident == "self" { "crate" } else { &item.ident.to_string() };
        self.add(&[name.to_owned()], item.span().start().line);
    }

    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {
        // `pub(crate)` and `pub(in path)` name a module around this one: no import.
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.segments.len() > 1 {
            let segments: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
            self.add(&segments, path.span().start().line);
        }
        visit::visit_path(self, path);
    }

    fn visit_attribute(&mut self, attribute: &'ast syn::Attribute) {
        if let syn::Meta::List(list) = &attribute.meta {
            self.add_tokens(list.tokens.clone());
        }
        visit::visit_attribute(self, attribute);
    }

    fn visit_macro(&mut self, mac: &'ast syn::Macro) {
        self.add_tokens(mac.tokens.clone());
        visit::visit_macro(self, mac);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        check(path, text).iter().map(Finding::to_string).collect()
    }

    /// Exactly one finding, on this line, that names this room.
    #[track_caller]
    fn assert_one(path: &str, text: &str, line: usize, room: &str) {
        let found = found(path, text);
        assert_eq!(found.len(), 1, "{found:#?} in:\n{text}");
        let start = format!("{path}:{line}: ");
        assert!(found[0].starts_with(&start), "{} does not start with {start}", found[0]);
        assert!(found[0].contains(&format!("`{room}")), "{} does not name {room}", found[0]);
    }

    #[track_caller]
    fn assert_clean(path: &str, text: &str) {
        let found = found(path, text);
        assert!(found.is_empty(), "{found:#?} in:\n{text}");
    }

    #[test]
    fn a_plain_use_is_seen() {
        assert_one("src/device/mod.rs", "//! D.\n\nuse crate::engine::Engine;\n", 3, "engine");
        assert_clean("src/engine/mod.rs", "use crate::device::Device;\n");
    }

    #[test]
    fn nested_groups_renames_and_globs_are_seen() {
        let group =
            "use crate::{\n    contract::Mode,\n    engine::{self, blocks::{Pool as P}},\n};\n";
        let two = found("src/device/mod.rs", group);
        assert_eq!(two.len(), 1, "two leaves on one line are one finding: {two:#?}");
        assert!(two[0].starts_with("src/device/mod.rs:3: "), "{two:?}");
        assert_one("src/device/mod.rs", "use crate::engine as e;\n", 1, "engine");
        assert_one("src/device/mod.rs", "use crate::engine::*;\n", 1, "engine");
        assert_one("src/device/mod.rs", "use crate::{engine};\n", 1, "engine");
    }

    #[test]
    fn the_root_of_the_crate_is_no_room() {
        for text in ["use crate::*;\n", "use crate as c;\n", "use crate::{self as c};\n"] {
            assert_one("src/engine/mod.rs", text, 1, "engine` names the root");
        }
        assert_one("src/engine/mod.rs", "use super::*;\n", 1, "engine` names the root");
        assert_one("src/engine/mod.rs", "extern crate self as l;\n", 1, "engine` names the root");
    }

    #[test]
    fn super_chains_that_leave_the_room_are_seen() {
        let path = "src/device/host/gemm.rs";
        assert_one(path, "use super::super::super::engine::plan;\n", 1, "engine");
        assert_clean(path, "use super::super::Device;\n");
        assert_clean(path, "use self::inner::X;\nmod inner { pub struct X; }\n");
        let test =
            "#[cfg(test)]\nmod tests {\n    use super::*;\n    use super::super::engine::E;\n}\n";
        assert_one("src/device.rs", test, 4, "engine");
    }

    #[test]
    fn expressions_types_bounds_and_patterns_are_seen() {
        for text in [
            "fn f() { crate::engine::step(); }\n",
            "fn f(_: &crate::engine::Engine) {}\n",
            "fn f<T: crate::engine::Step>(_: T) {}\n",
            "fn f(x: X) { if let crate::engine::E::A = x {} }\n",
            "fn f() -> Vec<crate::engine::E> { Vec::new() }\n",
            "impl crate::engine::Step for X {}\n",
            "fn f() { let _ = <X as crate::engine::Step>::go; }\n",
        ] {
            assert_one("src/device/mod.rs", text, 1, "engine");
        }
    }

    #[test]
    fn macro_bodies_and_attributes_are_seen() {
        for text in [
            "fn f() { assert_eq!(1, crate::engine::one()); }\n",
            "fn f() { let _ = vec![super::engine::E { a: 1 }]; }\n",
            "macro_rules! m { () => { $crate::engine::one() } }\n",
            "macro_rules! m { () => { use crate::{engine::E}; } }\n",
            "macro_rules! m { () => { use crate::{contract::{A, B}, engine::{E}, record}; } }\n",
            "macro_rules! m { () => { use crate::engine::*; } }\n",
            "#[serde(with = \"crate::engine::hex\")]\nstruct X;\n",
            "#[derive(crate::engine::D)]\nstruct X;\n",
            "struct X { #[serde(default = \"crate::engine::one\")] x: u8 }\n",
        ] {
            assert_one("src/device/mod.rs", text, 1, "engine");
        }
    }

    #[test]
    fn documentation_may_point_anywhere() {
        assert_clean(
            "src/device/mod.rs",
            "//! See [`crate::engine`].\n\n/// As [`crate::engine::E`].\nstruct X;\n",
        );
    }

    #[test]
    fn test_modules_are_held_to_the_rule() {
        let text = "#[cfg(test)]\nmod tests {\n    use crate::fixture::Fixture;\n}\n";
        assert_one("src/relation/i1.rs", text, 3, "fixture");
    }

    #[test]
    fn visibility_is_no_import() {
        assert_clean(
            "src/engine/mod.rs",
            "pub(crate) struct X;\npub(in crate::engine) struct Y;\n",
        );
    }

    #[test]
    fn an_unlisted_room_is_found_from_both_sides() {
        assert_one("src/utils/mod.rs", "//! Odds and ends.\n", 1, "utils");
        assert_one("src/engine.rs", "use crate::utils::clamp;\n", 1, "engine` imports `utils");
    }

    #[test]
    fn the_binary_reaches_rooms_by_the_librarys_name() {
        assert_clean(
            "src/main.rs",
            "mod cli;\nuse lockstep::harness::run;\nuse crate::cli::Cli;\n",
        );
        assert_one("src/main.rs", "use lockstep::utils::x;\n", 1, "main` imports `utils");
        assert_one("src/device/mod.rs", "use lockstep::engine::E;\n", 1, "engine");
    }

    #[test]
    fn cudarc_belongs_to_the_cuda_device() {
        for text in ["use cudarc::driver::CudaContext;\n", "fn f() { ::cudarc::x(); }\n"] {
            assert_one("src/engine/mod.rs", text, 1, "cudarc");
            assert_one("src/device/cudagraph.rs", text, 1, "cudarc");
            assert_clean("src/device/cuda/mod.rs", text);
            assert_clean("src/device/cuda.rs", text);
        }
        assert_one("src/device/mod.rs", "extern crate cudarc;\n", 1, "cudarc");
    }

    #[test]
    fn a_moved_module_file_is_found() {
        let text = "#[path = \"../engine/blocks.rs\"]\nmod blocks;\n";
        assert_eq!(found("src/device/mod.rs", text).len(), 1);
    }

    #[test]
    fn a_file_that_does_not_parse_is_a_finding() {
        assert_eq!(found("src/device/mod.rs", "fn f( {}\n").len(), 1);
    }

    #[test]
    fn tests_and_benches_are_outside_the_rule() {
        assert_clean("tests/relations.rs", "use lockstep::engine::E;\n");
    }
}
