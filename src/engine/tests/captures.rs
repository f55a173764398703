//! What a capture keeps is what the digests stand for, and asking for it changes nothing.

use std::collections::BTreeSet;

use super::*;
use crate::contract::digest;
use crate::contract::simd::Simd;
use crate::record::sites::{Site, Stage};
use crate::record::{Capture, CapturedRow, Order, Output};
use crate::workload::SampleId;

const SITES: usize = 22;

/// Two requests of 40 and 3 tokens, of which the first is preempted once; with a capture, and without.
fn both(capture: &Capture) -> [Run; 2] {
    let mut b = bench(64);
    // What is preempted is computed again, not found.
    b.world.prefix_cache = false;
    let requests = vec![request(1, 0..40, 4), request(2, 50..53, 6)];
    let workload = Workload { requests };
    let intents = vec![Intent { uid: 1, sample: 0, mark: computed(1, 41), act: PREEMPT }];
    let schedule = Schedule { intents };
    [Some(capture), None]
        .map(|capture| execute(&b.model, &b.world, &workload, &schedule, 5, capture).unwrap())
}

fn everything(id: Option<SampleId>, positions: std::ops::Range<u32>) -> Capture {
    Capture { id, positions, sites: (0..SITES).collect(), logits: true, parts: true }
}

fn captured(output: &mut Output) -> Vec<CapturedRow> {
    std::mem::take(&mut output.captured)
}

#[test]
fn a_capture_changes_nothing_else_and_its_values_have_the_digests() {
    let [mut run, plain] = both(&everything(None, 0..100));
    let simd = Simd::all()[0];
    for output in run.outputs.values_mut() {
        let rows = captured(output);
        assert_eq!(rows.len(), output.positions.len());
        for (row, bits) in rows.iter().zip(&output.positions) {
            assert_eq!((row.residency, row.position), (bits.residency, bits.position));
            assert_eq!(digest::row(simd, &row.logits), bits.logits);
            let sites: Vec<u64> =
                row.sites.values().map(|s| digest::row(simd, &s.values)).collect();
            assert_eq!(sites, bits.sites);
        }
    }
    assert_eq!(run, plain);
}

/// One position, computed in two residencies; one site, no logits, no parts.
#[test]
fn a_capture_keeps_what_it_asks_for_and_no_more() {
    let id = SampleId::first(1);
    let sites = BTreeSet::from([5]);
    let capture = Capture { id: Some(id), positions: 7..8, sites, ..Capture::default() };
    let [mut run, _] = both(&capture);
    assert!(run.outputs[&SampleId::first(2)].captured.is_empty());
    let rows = captured(run.outputs.get_mut(&id).unwrap());
    let at: Vec<_> = rows.iter().map(|row| (row.residency, row.position)).collect();
    assert_eq!(at, [(1, 7), (2, 7)]);
    for row in &rows {
        assert!(row.logits.is_empty());
        assert_eq!(row.sites.keys().copied().collect::<Vec<_>>(), [5]);
        assert!(row.sites[&5].launch.is_none() && row.sites[&5].parts.is_empty());
        assert_eq!(row.sites[&5].values.len(), 64);
    }
}

/// Whether each head of 16 columns is a mean of two parts, with one weight a head.
fn are_means(values: &[f32], first: &[f32], second: &[f32]) -> bool {
    let heads = values.chunks_exact(16).zip(first.chunks_exact(16)).zip(second.chunks_exact(16));
    heads.into_iter().all(|((y, a), b)| {
        let apart = |i: &usize| (b[*i] - a[*i]).abs();
        let widest = (0..16).max_by(|i, j| apart(i).total_cmp(&apart(j))).unwrap();
        let weight = (y[widest] - a[widest]) / (b[widest] - a[widest]);
        let mean = |i: usize| a[i] + (b[i] - a[i]) * weight;
        (0.0..=1.0).contains(&weight) && (0..16).all(|i| (mean(i) - y[i]).abs() < 1e-5)
    })
}

/// Goal: the parts of a reduction are those that it folds. Method: the contract's fold of a GEMM's parts gives its result
/// to the bit; an attention's result is, head by head, a weighted mean of its
/// parts, and of one part that part.
#[test]
fn the_parts_of_a_reduction_give_its_result() {
    let [mut run, _] = both(&everything(None, 0..100));
    let mut folds = [0; 2];
    for output in run.outputs.values_mut() {
        for row in captured(output) {
            for (index, site) in &row.sites {
                let Site { layer, stage } = Site::nth(*index, SITES);
                let launch = site.launch.as_ref().unwrap();
                match (&launch.order, stage) {
                    (Order::Cuts(cuts), _) => {
                        assert_eq!(site.parts.len(), cuts.len() - 1);
                        // The residual before: h after the last site that added to it.
                        let before = match (stage, layer) {
                            (Stage::Output, Some(0)) => Some(0),
                            (Stage::Output, _) => Some(index - 6),
                            (Stage::Down, _) => Some(index - 4),
                            _ => None,
                        };
                        for (i, y) in site.values.iter().enumerate() {
                            let sum = site.parts.iter().fold(0.0_f32, |s, p| s + p[i]);
                            let y0 = before.map(|b| row.sites[&b].values[i] + sum).unwrap_or(sum);
                            assert_eq!(y.to_bits(), y0.to_bits(), "{index}, {i}");
                        }
                        folds[0] += usize::from(cuts.len() > 2);
                    }
                    (Order::Split(split), _) => {
                        assert_eq!(site.parts.len() as u32, row.position / split + 1);
                        let is_mean = match &site.parts[..] {
                            [only] => *only == site.values,
                            [first, second] => are_means(&site.values, first, second),
                            more => panic!("{} parts", more.len()),
                        };
                        assert!(is_mean, "site {index}, position {}", row.position);
                        folds[1] += usize::from(row.position >= *split);
                    }
                    (Order::Lanes(lanes), _) => assert_eq!(*lanes, 64),
                    (Order::Fixed, _) => assert_eq!(launch.variant, ""),
                }
            }
        }
    }
    assert!(folds.iter().all(|n| *n >= 8), "{folds:?}");
}
