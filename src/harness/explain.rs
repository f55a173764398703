//! Reads the values behind a difference: both sides are carried out again, keeping the logits in full.

use std::fmt::Write as _;

use crate::case::Case;
use crate::record::{Capture, Run};
use crate::relation::{Divergence, Observable, resolve};
use crate::schedule::Schedule;
use crate::subject::{Subject, guard};

/// The first element that differs, and how close the two best tokens are. `None` if the difference is not one of
/// logits, or can't be read back.
pub fn explain(subject: &dyn Subject, case: &Case, divergence: &Divergence) -> Option<String> {
    if divergence.observable != Observable::Logits {
        return None;
    }
    let id = divergence.place.id?;
    let capture = Capture::logits_at(id, divergence.place.position?);
    let execute = |run: Result<Run, _>| run.ok()?.outputs.remove(&id);
    let Case { world, workload, schedule, seed } = &resolve(subject, case).ok()?;
    let got = execute(guard::execute(subject, world, workload, schedule, *seed, Some(&capture)))?;
    let alone = workload.alone(id);
    let empty = Schedule::default();
    let canonical = execute(guard::execute(subject, world, &alone, &empty, *seed, Some(&capture)))?;
    let residency = divergence.place.residency?;
    let got = &got.captured.iter().find(|c| c.residency == residency)?.logits;
    let canonical = &canonical.captured.first()?.logits;

    let differing = got.iter().zip(canonical).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
    let at = got.iter().zip(canonical).position(|(a, b)| a.to_bits() != b.to_bits())?;
    let (a, b) = (got[at], canonical[at]);
    let mut text = String::new();
    let _ = write!(
        text,
        "logit {at} is {:08x} ({a}), canonical {:08x} ({b}); {differing} of {} logits differ",
        a.to_bits(),
        b.to_bits(),
        got.len()
    );
    if let Some((best, margin)) = top_2(canonical) {
        let _ = write!(text, "; canonical best token {best}, top-2 margin {margin:e}");
    }
    Some(text)
}

/// The best token (lowest id among ties) and its distance to the second best.
fn top_2(logits: &[f32]) -> Option<(usize, f32)> {
    let best = (0..logits.len()).reduce(|a, b| if logits[b] > logits[a] { b } else { a })?;
    let second = logits.iter().enumerate().filter(|(i, _)| *i != best).map(|(_, x)| *x);
    second.reduce(f32::max).map(|second| (best, logits[best] - second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_of_a_tie_is_zero_and_its_best_token_the_lowest() {
        assert_eq!(top_2(&[1.0, 3.0, 3.0]), Some((1, 0.0)));
        assert_eq!(top_2(&[1.0, 3.0, 2.5]), Some((1, 0.5)));
        assert_eq!(top_2(&[1.0]), None);
        assert_eq!(top_2(&[]), None);
    }
}
