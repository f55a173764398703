//! The schemata: a source file in which every mutant of it is a choice at run time.
//!
//! The body of the innermost function around a mutant becomes `if mutant::is(1) { body with the fault } else if .. else
//! { body }`; the signature stays, so a mutant costs no build of its own. `span-locations` gives the bytes of a body.

use anyhow::{Context as _, bail, ensure};
use syn::visit::{self, Visit};

use super::format::{MARKER, Mutant};

/// Where the copy's own module is.
const MODULE: &str = "crate::mutant";

/// A mutant and the number by which it is chosen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Numbered<'m> {
    pub(super) number: u32,
    pub(super) mutant: &'m Mutant,
}

/// A file with its mutants in it, and which lines belong to which.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Schemata {
    pub(super) text: String,
    /// (first line, last line, number), from 1.
    pub(super) lines: Vec<(usize, usize, u32)>,
}

/// A function's body, braces excluded, as a range of bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Body {
    name: String,
    start: usize,
    end: usize,
    obstacle: Option<&'static str>,
}

struct Bodies(Vec<Body>);

impl Bodies {
    fn add(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let open = block.brace_token.span.open().byte_range();
        let close = block.brace_token.span.close().byte_range();
        let obstacle = if signature.constness.is_some() {
            Some("is const")
        } else if returns_opaque(&signature.output) {
            Some("returns impl Trait")
        } else {
            None
        };
        let name = signature.ident.to_string();
        self.0.push(Body { name, start: open.end, end: close.start, obstacle });
    }
}

fn returns_opaque(output: &syn::ReturnType) -> bool {
    struct Opaque(bool);
    impl<'a> Visit<'a> for Opaque {
        fn visit_type_impl_trait(&mut self, _: &'a syn::TypeImplTrait) {
            self.0 = true;
        }
    }
    let mut opaque = Opaque(false);
    opaque.visit_return_type(output);
    opaque.0
}

impl<'a> Visit<'a> for Bodies {
    fn visit_item_fn(&mut self, item: &'a syn::ItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }
    fn visit_impl_item_fn(&mut self, item: &'a syn::ImplItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }
    fn visit_trait_item_fn(&mut self, item: &'a syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

/// The file `text` with the mutants in it. Each one's text before must occur in it once, inside a function's body.
pub(super) fn build(text: &str, mutants: &[Numbered<'_>]) -> anyhow::Result<Schemata> {
    let mut bodies = Bodies(Vec::new());
    bodies.visit_file(&syn::parse_file(text).context("the file does not parse")?);
    let mut chosen: Vec<(Body, Vec<Numbered<'_>>)> = Vec::new();
    for numbered in mutants {
        let id = &numbered.mutant.id;
        let body = innermost(&bodies.0, text, numbered.mutant).with_context(|| id.clone())?;
        match chosen.iter_mut().find(|(b, _)| b.start == body.start) {
            Some((_, list)) => list.push(*numbered),
            None => chosen.push((body.clone(), vec![*numbered])),
        }
    }
    chosen.sort_by_key(|(body, _)| body.start);
    for pair in chosen.windows(2) {
        let (outer, inner) = (&pair[0].0, &pair[1].0);
        ensure!(
            inner.start >= outer.end,
            "{} and {} have mutants, and one is inside the other",
            outer.name,
            inner.name
        );
    }
    let mut out = String::with_capacity(2 * text.len());
    let mut lines = Vec::new();
    let mut done = 0;
    for (body, list) in &chosen {
        out += &text[done..body.start];
        let original = &text[body.start..body.end];
        for Numbered { number, mutant } in list {
            // What the parser would take for a struct literal or a statement's end is kept apart by line breaks.
            out += &format!("\nif {MODULE}::is({number}) {{\n");
            let first = out.lines().count() + 1;
            let after = mutant.after.replace(MARKER, &format!("{MODULE}::hit()"));
            out += &original.replacen(&mutant.before, &after, 1);
            lines.push((first, out.lines().count(), *number));
            out += "\n} else ";
        }
        out += &format!("{{{original}}}\n");
        done = body.end;
    }
    out += &text[done..];
    syn::parse_file(&out).with_context(|| culprit(text, mutants))?;
    Ok(Schemata { text: out, lines })
}

/// The file `text` with the result of its only function called `name` handed to `through`.
pub(super) fn wrap(text: &str, name: &str, through: &str) -> anyhow::Result<String> {
    let mut bodies = Bodies(Vec::new());
    bodies.visit_file(&syn::parse_file(text).context("the file does not parse")?);
    let mut named = bodies.0.iter().filter(|body| body.name == name);
    let (Some(body), None) = (named.next(), named.next()) else {
        bail!("no single function is called {name}");
    };
    let (start, end) = (body.start, body.end);
    let original = &text[start..end];
    // A block that never returns early is enough: what is wrapped is ours.
    ensure!(!original.contains("return"), "{name} returns early");
    Ok(format!("{} {through}({{{original}}}) {}", &text[..start], &text[end..]))
}

/// The innermost function around a mutant's text.
fn innermost<'b>(bodies: &'b [Body], text: &str, mutant: &Mutant) -> anyhow::Result<&'b Body> {
    let mut places = text.match_indices(&mutant.before);
    let (Some((at, _)), None) = (places.next(), places.next()) else {
        bail!("its text before does not occur exactly once in {}", mutant.file);
    };
    let end = at + mutant.before.len();
    let around = bodies.iter().filter(|b| b.start <= at && end <= b.end);
    let body = around.min_by_key(|b| b.end - b.start);
    let body = body.context("its text before is not inside the body of a function")?;
    match body.obstacle {
        None => Ok(body),
        Some(why) => bail!("the function {} {why}: change the place that calls it", body.name),
    }
}

/// Which mutant does not parse, if one alone does not.
fn culprit(text: &str, mutants: &[Numbered<'_>]) -> String {
    let broken = |n: &&Numbered<'_>| {
        syn::parse_file(&text.replacen(&n.mutant.before, &n.mutant.after, 1)).is_err()
    };
    match mutants.iter().find(broken) {
        Some(n) => format!("{} does not parse", n.mutant.id),
        None => "the file with its mutants does not parse".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::Target;
    use super::*;

    fn mutant(id: &str, before: &str, after: &str) -> Mutant {
        Mutant {
            id: id.into(),
            kind: "SRF".into(),
            target: Target::Rust,
            file: "src/a.rs".into(),
            before: before.into(),
            after: after.into(),
            needs: Vec::new(),
            expect: vec!["I1".into()],
            source: String::new(),
            why: String::new(),
            text: String::new(),
        }
    }

    fn built(text: &str, mutants: &[Mutant]) -> anyhow::Result<Schemata> {
        let numbered: Vec<_> =
            mutants.iter().zip(1..).map(|(mutant, number)| Numbered { number, mutant }).collect();
        build(text, &numbered)
    }

    #[test]
    fn a_body_becomes_a_choice_and_the_signature_stays() {
        let text = "fn f(x: u32) -> u32 { x + 1 }\nfn g() {}\n";
        let mutants = [
            mutant("a", "x + 1", "{ mutant::hit(); x + 2 }"),
            mutant("b", " 1 ", "{ mutant::hit(); 3 }"),
        ];
        let schemata = built(text, &mutants).unwrap();
        let expected = "fn f(x: u32) -> u32 {\nif crate::mutant::is(1) {\n { crate::mutant::hit(); x + 2 } \n} else \n\
            if crate::mutant::is(2) {\n x +{ crate::mutant::hit(); 3 }\n} else { x + 1 }\n}\nfn g() {}\n";
        assert_eq!(schemata.text, expected);
        assert_eq!(schemata.lines, [(3, 3, 1), (6, 6, 2)]);
    }

    #[test]
    fn the_innermost_function_is_taken_and_nested_choices_are_refused() {
        let text = "impl A { fn f(&self) { fn inner() -> u8 { 7 } inner(); } }\n";
        let inner = mutant("a", "7", "{ mutant::hit(); 8 }");
        let schemata = built(text, std::slice::from_ref(&inner)).unwrap();
        assert!(schemata.text.contains("fn inner() -> u8 {\nif crate::mutant::is(1)"));
        let outer = mutant("b", "inner(); ", "mutant::hit(); ");
        let error = format!("{:#}", built(text, &[inner, outer]).unwrap_err());
        assert!(error.contains("one is inside the other"), "{error}");
    }

    #[test]
    fn a_result_is_handed_through() {
        let wrapped = wrap("fn a() {}\nfn f() -> u8 { let x = 1; x }\n", "f", "g").unwrap();
        assert_eq!(wrapped, "fn a() {}\nfn f() -> u8 { g({ let x = 1; x }) }\n");
        assert!(wrap("fn a() {}", "f", "g").is_err());
        assert!(wrap("fn f() -> u8 { return 1 }", "f", "g").is_err());
    }

    #[test]
    fn what_cannot_be_chosen_at_run_time_is_refused() {
        let error = |text: &str| {
            let mutant = mutant("a", "1 + 1", "{ mutant::hit(); 3 }");
            format!("{:#}", built(text, &[mutant]).unwrap_err())
        };
        assert!(error("const X: u32 = 1 + 1;").contains("not inside the body of a function"));
        assert!(error("const fn f() -> u32 { 1 + 1 }").contains("is const"));
        assert!(error("fn f() -> impl Iterator { [1 + 1].into_iter() }").contains("impl Trait"));
        assert!(error("fn f() { 1 + 1; 1 + 1; }").contains("exactly once"));
        assert!(error("fn f() { 2 }").contains("exactly once"));
        let broken = mutant("a", "{ 1 }", "{ mutant::hit(); ");
        let error = format!("{:#}", built("fn f() -> u8 { { 1 } }", &[broken]).unwrap_err());
        assert!(error.contains("a does not parse"), "{error}");
    }
}
