//! A localisation in words: a few lines, the operator first.

use std::fmt;

use crate::record::{LaunchNote, Order};

use super::{Cause, Elements, KvFinding, Localisation, LogitsFinding, OperatorFinding};

impl fmt::Display for Localisation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [_, standard] = &self.sides;
        let mut lines: Vec<String> = Vec::new();
        if let Some(operator) = &self.operator {
            lines.extend(operator.lines(&self.sides));
        }
        if let Some(kv) = &self.kv {
            lines.push(kv.line());
        }
        match &self.logits {
            Some(logits) => lines.extend(logits.lines(standard)),
            None => lines.push(format!("logits: equal at all {} positions", self.compared)),
        }
        f.write_str(&lines.join("\n"))
    }
}

impl Elements {
    /// `element 3 is 0x… (…), canonical 0x… (…), 1 ulp apart; …`
    fn words(&self, what: &str, standard: &str) -> String {
        let [a, b] = &self.values;
        let apart = match self.ulp {
            Some(ulp) => format!("{ulp} ulp apart"),
            None => "not comparable in ulp".into(),
        };
        let rest = match (self.differing, self.ulp_max) {
            (1, _) => format!("no other of {} differs", self.of),
            (n, Some(most)) => format!("{n} of {} differ, by up to {most} ulp", self.of),
            (n, None) => format!("{n} of {} differ", self.of),
        };
        format!(
            "{what} {} is {} ({}), {standard} {} ({}), {apart}; {rest}",
            self.first, a.bits, a.decimal, b.bits, b.decimal
        )
    }
}

impl OperatorFinding {
    fn lines(&self, [judged, standard]: &[String; 2]) -> Vec<String> {
        let layer = self.layer.map(|layer| format!("layer {layer}, ")).unwrap_or_default();
        let cause = self.cause.words(self.launches.as_ref(), standard);
        let OperatorFinding { operator, position, residencies, .. } = self;
        let residency = match residencies {
            [1, 1] => String::new(),
            [judged, _] => format!(", residency {judged}"),
        };
        let mut lines =
            vec![format!("where: {layer}{operator}, position {position}{residency}: {cause}")];
        if let Cause::Part { split, elements, .. } = &self.cause {
            lines.push(format!("split {split}: {}", elements.words("element", standard)));
        }
        lines.push(match &self.elements {
            Some(elements) => format!("result: {}", elements.words("element", standard)),
            None => "result: its values can't be read".into(),
        });
        if let Some([a, b]) = &self.launches {
            lines.push(format!("launch: {judged} as {}; {standard} as {}", launch(a), launch(b)));
        }
        lines
    }
}

impl Cause {
    fn words(&self, launches: Option<&[LaunchNote; 2]>, standard: &str) -> String {
        match (self, launches) {
            (Cause::Order, Some([a, b])) => order(&a.order, &b.order),
            (Cause::Variant, Some([a, b])) => format!(
                "equal before it, the same order; the launch differs: {} against {}",
                a.variant, b.variant
            ),
            (Cause::Order | Cause::Variant, None) => "its launch differs".into(),
            (Cause::Part { split, of: 1, .. }, _) => {
                format!("its only split differs (split {split})")
            }
            (Cause::Part { split, of, .. }, _) => {
                format!("split {split} of {of} is the first that differs")
            }
            (Cause::Fold { of: 1 }, _) => {
                "its only split is equal, so what is done after it differs".into()
            }
            (Cause::Fold { of }, _) => {
                format!("all {of} splits are equal, so the fold over them differs")
            }
            (Cause::Unknown, Some(_)) => {
                format!("equal before it, launched as {standard}: its own computation differs")
            }
            (Cause::Unknown, None) => "the first that differs".into(),
        }
    }
}

/// Two orders of a reduction that differ.
fn order(a: &Order, b: &Order) -> String {
    match (a, b) {
        (Order::Cuts(a), Order::Cuts(b)) if a.len() == b.len() => {
            format!("cut differently: at {a:?} against {b:?}")
        }
        (Order::Cuts(a), Order::Cuts(b)) => {
            format!("cut differently: {} against {}", splits(a.len() - 1), b.len() - 1)
        }
        (Order::Split(a), Order::Split(b)) => format!("split every {a} positions against {b}"),
        (Order::Lanes(a), Order::Lanes(b)) => format!("{a} lanes against {b}"),
        _ => format!("reduced differently: {a:?} against {b:?}"),
    }
}

fn splits(n: usize) -> String {
    if n == 1 { "1 split".into() } else { format!("{n} splits") }
}

/// `row 0 of 3 (2 sequences, tiled rows, splits walked)`
fn launch(note: &LaunchNote) -> String {
    let LaunchNote { row, rows, padding, sequences, variant, .. } = note;
    let padding = if *padding == 0 { String::new() } else { format!(", {padding} padding rows") };
    let plural = if *sequences == 1 { "" } else { "s" };
    let comma = if variant.is_empty() { "" } else { ", " };
    format!("row {row} of {rows} ({sequences} sequence{plural}{padding}{comma}{variant})")
}

impl LogitsFinding {
    fn lines(&self, standard: &str) -> Vec<String> {
        let words = match &self.elements {
            Some(elements) => elements.words("token", standard),
            None => "they differ, and can't be read".into(),
        };
        let mut lines = vec![format!("logits, position {}: {words}", self.position)];
        if let Some([judged, expected]) = self.best {
            let margin = match self.margin {
                Some(margin) => format!(", {standard} top-2 margin {margin:.3e}"),
                None => String::new(),
            };
            lines.push(if judged == expected {
                format!("greedy token: {expected} on both sides{margin}")
            } else {
                format!("greedy token: {judged}, {standard} {expected}{margin}")
            });
        }
        lines
    }
}

impl KvFinding {
    fn line(&self) -> String {
        let written = match &self.computed_in[..] {
            [] => "the sample never computed it: another wrote it".into(),
            [only] => format!("computed in residency {only}"),
            more => format!("computed in residencies {more:?}"),
        };
        let KvFinding { position, layer, which, moment, residency, .. } = self;
        format!(
            "stored: {which} of position {position}, layer {layer}, differs {moment} (residency {residency}); {written}"
        )
    }
}
