//! The row operators and the sampler against the reference, on every path.

use super::*;
use crate::contract::rope::RopeScaling;
use crate::contract::scalar::{score_scale, silu};
use crate::contract::tree::norm_lanes;
use crate::contract::{digest, sampler::SamplerParams};
use crate::device::{Sequence, Splits};

/// The known answer of docs/contract.md section 4, through the operator (which rounds y).
#[test]
fn the_norm_gives_the_known_answer() {
    let x: Vec<f32> = (0..96).map(|i| (i % 7 - 3) as f32 * 0.37).collect();
    let y = reference::norm(64, &x, &[1.0; 96], 1e-6);
    assert_eq!(y[0].to_bits(), 0xbfc1_431d);
    let lanes = norm_lanes(96) as usize;
    let s = crate::contract::tree::lane_sum(lanes, &x, |s, x| x.mul_add(x, s));
    assert_eq!(s.to_bits(), 0x424f_8a58);
    let r = norm::Scale { x: &x, lanes, eps: 1e-6 };
    assert_eq!(Simd::all()[0].run(r).to_bits(), 0x3fae_1c2c);
}

#[test]
fn norms_are_the_contracts_fused_or_not() {
    let mut rng = Rng::new(20);
    for dtype in DTYPES {
        for (m, n) in [(1, 64), (5, 96), (3, 576), (2, 1024), (2, 1536), (4, 17), (1, 1)] {
            let h = rng.units(m * n);
            let weight = rng.ordinary(dtype, n, 2.0);
            let w: Vec<f32> = weight.iter().map(|w| dtype.widen(*w)).collect();
            for lanes in [norm_lanes(n), 8, 2] {
                let x: Vec<u16> = h
                    .chunks_exact(n)
                    .flat_map(|h| reference::norm(lanes as usize, h, &w, 1e-5))
                    .map(|y| dtype.round(y))
                    .collect();
                for mut host in hosts(dtype, Constants::TINY) {
                    for fused in [false, true] {
                        let launch = NormLaunch { lanes, fused };
                        let mut out = host.alloc_t16(m * n).unwrap();
                        host.rmsnorm(launch, m, n, &h, &weight, 1e-5, &mut out).unwrap();
                        assert_eq!(out, x, "{dtype:?} {m} x {n}, {lanes} lanes, {fused}");
                    }
                    let counts = host.counts().unwrap();
                    assert_eq!((counts.norm_fused, counts.norm_plain), (1, 1));
                    let launch = NormLaunch { lanes: 3, fused: false };
                    let mut out = vec![0; m * n];
                    assert!(host.rmsnorm(launch, m, n, &h, &weight, 1e-5, &mut out).is_err());
                }
            }
        }
    }
}

#[test]
fn rope_rotates_scales_q_and_stores_keys_and_values_in_their_slots() {
    let mut rng = Rng::new(21);
    let heads = Heads { q: 4, kv: 2, dim: 16 };
    let table = RopeTable::new(16, 10000.0, RopeScaling::None, 64);
    let layout = Layout {
        block_size: 4,
        sequences: vec![
            Sequence { blocks: vec![5, 2], start: 3, len: 4 },
            Sequence { blocks: vec![7, 0, 1], start: 9, len: 1 },
        ],
    };
    for dtype in DTYPES {
        let qkv = rng.ordinary(dtype, 5 * heads.qkv_columns(), 3.0);
        let weights = [rng.ordinary(dtype, 16, 2.0), rng.ordinary(dtype, 16, 2.0)];
        for normed in [false, true] {
            let head = |x: &[u16], weight: &[u16], position: usize| {
                let wide = |x: &[u16]| x.iter().map(|x| dtype.widen(*x)).collect::<Vec<f32>>();
                let x = wide(x);
                let x = if normed { reference::norm(16, &x, &wide(weight), 1e-6) } else { x };
                reference::rope(&table, position, &x)
            };
            for mut host in hosts(dtype, Constants::TINY) {
                let shape =
                    KvShape { layers: 2, blocks: 8, block_size: 4, kv_heads: 2, head_dim: 16 };
                let mut kv = host.alloc_kv(shape).unwrap();
                let mut q = host.alloc_t16(5 * 64).unwrap();
                let norm = normed.then_some(QkNorm { q: &weights[0], k: &weights[1], eps: 1e-6 });
                let rope = host.upload_rope(&table).unwrap();
                host.rope_and_store(1, heads, &layout, &qkv, norm, &rope, &mut q, &mut kv).unwrap();
                let places = [(0, 3), (0, 4), (0, 5), (0, 6), (1, 9)];
                for (row, (sequence, position)) in places.into_iter().enumerate() {
                    let qkv = &qkv[row * heads.qkv_columns()..][..heads.qkv_columns()];
                    for h in 0..4 {
                        let y = head(&qkv[h * 16..][..16], &weights[0], position);
                        let y: Vec<u16> =
                            y.iter().map(|y| dtype.round(y * score_scale(16))).collect();
                        assert_eq!(q[row * 64 + h * 16..][..16], y, "{dtype:?} {normed} row {row}");
                    }
                    let slot = kv.row(1, &layout.sequences[sequence].blocks, position);
                    for h in 0..2 {
                        let y = head(&qkv[64 + h * 16..][..16], &weights[1], position);
                        let y: Vec<u16> = y.iter().map(|y| dtype.round(*y)).collect();
                        assert_eq!(kv.k()[slot.clone()][h * 16..][..16], y);
                    }
                    assert_eq!(kv.v()[slot], qkv[96..]);
                }
                let untouched = kv.k().iter().filter(|x| **x == UNWRITTEN).count();
                assert!(untouched >= kv.k().len() - 5 * 32, "a stray write");
                let sequence = &layout.sequences[0];
                let digests = host.digest_kv(1, &kv, &sequence.blocks, 3, 7).unwrap();
                for (digest, position) in digests.iter().zip(3..) {
                    let row = kv.row(1, &sequence.blocks, position);
                    let wide: Vec<f32> = kv.v()[row].iter().map(|x| dtype.widen(*x)).collect();
                    assert_eq!(digest.v, digest::row(host.simd, &wide));
                }
                assert!(host.digest_kv(1, &kv, &sequence.blocks, 3, 9).is_err());
            }
        }
    }
}

#[test]
fn swiglu_embedding_and_digests_are_the_contracts() {
    let mut rng = Rng::new(22);
    let (m, f) = (3, 37);
    for dtype in DTYPES {
        let mut gate_up = rng.ordinary(dtype, m * 2 * f, 20.0);
        gate_up[..3].copy_from_slice(&[0x7fff, dtype.round(f32::INFINITY), 0x8000]);
        let table = rng.wide(dtype, 11 * 21);
        for mut host in hosts(dtype, Constants::TINY) {
            let mut z = host.alloc_t16(m * f).unwrap();
            host.swiglu(m, f, &gate_up, &mut z).unwrap();
            for (i, z) in z.iter().enumerate() {
                let (g, up) = (gate_up[i / f * 2 * f + i % f], gate_up[i / f * 2 * f + f + i % f]);
                assert_eq!(*z, dtype.round(silu(dtype.widen(g)) * dtype.widen(up)));
            }
            let matrix = host.upload_matrix(11, 21, &table).unwrap();
            let mut h = host.alloc_f32(2 * 21).unwrap();
            host.embed(&matrix, &[10, 3], &mut h).unwrap();
            for k in 0..21 {
                assert_eq!(h[k].to_bits(), dtype.widen(table[10 * 21 + k]).to_bits());
                assert_eq!(h[21 + k].to_bits(), dtype.widen(table[3 * 21 + k]).to_bits());
            }
            assert!(host.embed(&matrix, &[11], &mut h).is_err());
            let digests = host.digest_rows(2, 21, &h).unwrap();
            assert_eq!(digests[1], digest::row(host.simd, &h[21..]));
            assert_eq!(bits(&host.read_row(21, &h, 1).unwrap()), bits(&h[21..]));
            assert!(host.read_row(21, &h, 2).is_err());
        }
    }
}

#[test]
fn logprobs_are_the_contracts_and_add_up_to_one() {
    let mut rng = Rng::new(23);
    for (vocab, constants) in [
        (264, Constants::TINY),
        (5000, Constants::SMALL),
        (9001, Constants::REAL),
        (1, Constants::TINY),
    ] {
        let mut logits: Vec<f32> = rng.units(3 * vocab).iter().map(|x| x * 12.0).collect();
        logits[2 * vocab] = f32::NAN;
        for mut host in hosts(Dtype::Bf16, constants) {
            let ids: Vec<u32> = (0..vocab as u32).collect();
            let of = |host: &mut Host, row: u32| {
                host.logprobs(vocab, &logits, &vec![row; vocab], &ids).unwrap()
            };
            let lp = of(&mut host, 1);
            let row = &logits[vocab..2 * vocab];
            for id in [0, vocab / 2, vocab - 1] {
                let block = constants.vocab_block as usize;
                assert_eq!(lp[id].to_bits(), reference::logprob(block, row, id).to_bits());
            }
            let sum: f64 = lp.iter().map(|x| f64::from(*x).exp()).sum();
            assert!((sum - 1.0).abs() < 1e-5, "{sum}");
            assert!(of(&mut host, 2).iter().all(|x| x.is_nan()));
            assert!(host.logprobs(vocab, &logits, &[3], &[0]).is_err());
            assert!(host.logprobs(vocab, &logits, &[0], &[vocab as u32]).is_err());
        }
    }
}

/// Random parameters of every kind, ties included, against the sorted reference.
#[test]
fn draws_are_the_contracts() {
    let mut rng = Rng::new(24);
    let vocab = 264;
    for case in 0..400 {
        let scale = [1.0, 5.0, 30.0][rng.below(3)];
        let mut logits: Vec<f32> =
            rng.units(vocab).iter().map(|x| (x * 64.0).round() / 64.0 * scale).collect();
        logits[5] = -0.0;
        let params = SamplerParams {
            temperature: [0.0, 1.0, 0.3, 3.0][rng.below(4)],
            top_k: [0, 1, 7, 264, 1000][rng.below(5)],
            top_p: [1.0, 0.9, 0.3, 0.0, 1.5][rng.below(5)],
            min_p: [0.0, 0.02, 0.5, 1.0][rng.below(4)],
            repetition_penalty: [1.0, 1.3, 0.8][rng.below(3)],
        };
        let seen: Vec<u32> = (0..vocab as u32).filter(|_| rng.below(5) == 0).collect();
        let key = [rng.next(), rng.next()];
        let expected = reference::draw(&logits, &params, &seen, key, case);
        for mut host in hosts(Dtype::Bf16, Constants::TINY) {
            let row = SampleRow { row: 0, params, seen: seen.clone(), key, position: case };
            let drawn = host.sample(vocab, &logits, &[row]).unwrap();
            assert_eq!(drawn, [expected], "case {case} {params:?} {:?}", host.path());
        }
    }
}

fn sample(logits: &[f32], params: SamplerParams, position: u32) -> Option<u32> {
    let mut host = Host::new(contract(Dtype::Bf16, Constants::TINY));
    let row = SampleRow { row: 0, params, seen: vec![], key: [1, 2], position };
    host.sample(logits.len(), &logits.to_vec(), &[row]).unwrap()[0]
}

/// Frequencies of 20,000 draws against exact probabilities; five standard deviations.
#[test]
fn draws_follow_the_probabilities() {
    let logits = [0.0, 1.0, -1.0, 2.0, f32::MIN];
    let params = SamplerParams { temperature: 0.7, ..SamplerParams::default() };
    let n = 20_000;
    let mut counts = [0; 5];
    for position in 0..n {
        counts[sample(&logits, params, position).unwrap() as usize] += 1;
    }
    let weights = logits.map(|x| f64::from(x / 0.7).exp());
    let z: f64 = weights.iter().sum();
    for (count, weight) in counts.iter().zip(weights) {
        let (p, n) = (weight / z, f64::from(n));
        let sigma = (n * p * (1.0 - p)).sqrt();
        assert!((f64::from(*count) - n * p).abs() <= 5.0 * sigma, "{count} of {p}");
    }
}

#[test]
fn ties_go_to_the_lowest_id_and_a_logit_that_is_not_finite_is_undecided() {
    let greedy = SamplerParams::default();
    assert_eq!(sample(&[1.0, 3.0, 3.0, 2.0], greedy, 0), Some(1));
    assert_eq!(sample(&[-0.0, 0.0], greedy, 0), Some(1));
    assert_eq!(sample(&[-4.0], greedy, 0), Some(0));
    let warm = SamplerParams { temperature: 1.0, ..greedy };
    assert_eq!(sample(&[-4.0], warm, 0), Some(0));
    for params in [greedy, warm] {
        for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(sample(&[0.0, x, 1.0], params, 0), None);
        }
    }
    let first = SamplerParams { temperature: 5.0, top_k: 1, ..greedy };
    let narrow = SamplerParams { temperature: 5.0, top_p: 0.0, ..greedy };
    let strict = SamplerParams { temperature: 5.0, min_p: 1.0, ..greedy };
    for position in 0..50 {
        for params in [first, narrow, strict] {
            assert_eq!(sample(&[1.0, 1.5, 0.0], params, position), Some(1));
        }
        // Of two equal logits, top-k keeps the lower id.
        assert_eq!(sample(&[1.0, 1.5, 1.5], first, position), Some(1));
    }
    // No request should carry these; they must not panic either.
    for params in [
        SamplerParams { temperature: f32::NAN, ..greedy },
        SamplerParams { temperature: 1.0, top_p: f32::NAN, min_p: f32::NAN, ..greedy },
        SamplerParams { temperature: 1.0, min_p: 2.0, ..greedy },
        SamplerParams { temperature: f32::INFINITY, top_p: -1.0, ..greedy },
    ] {
        let _ = sample(&[1.0, 1.5, 0.0], params, 0);
    }
}

/// Goal: the log's values are the ones that its digests are of, and those that rounding gives the output. Method: every
/// operator that logs, values kept; attention in two sequences, so that rows are made in parts.
#[test]
fn kept_values_have_the_logged_digests() {
    let mut rng = Rng::new(31);
    for dtype in DTYPES {
        for mut host in hosts(dtype, Constants::TINY) {
            host.watch(true);
            host.keep(&(0..9).collect());
            let heads = Heads { q: 4, kv: 2, dim: 16 };
            let sequences = vec![
                Sequence { blocks: vec![2, 0, 3], start: 0, len: 9 },
                Sequence { blocks: vec![1], start: 0, len: 3 },
            ];
            let layout = Layout { block_size: 4, sequences };
            let (m, n) = (layout.rows(), heads.qkv_columns());
            let shape =
                KvShape { layers: 1, blocks: 4, block_size: 4, kv_heads: heads.kv, head_dim: 16 };
            let mut kv = host.alloc_kv(shape).unwrap();
            let qkv = rng.ordinary(dtype, m * n, 1.0);
            let rope = RopeTable::new(16, 1e4, RopeScaling::None, 16);
            let (mut q, mut out) = (vec![0; m * 64], vec![0; m * 64]);
            host.rope_and_store(0, heads, &layout, &qkv, None, &rope, &mut q, &mut kv).unwrap();
            for splits in [Splits::Walk, Splits::Parallel] {
                let launch = AttentionLaunch { splits, split: 32 };
                host.attention(launch, 0, heads, &layout, &q, &kv, &mut out).unwrap();
            }
            let mut z = vec![0; m * n / 2];
            host.swiglu(m, n / 2, &qkv, &mut z).unwrap();
            let log = host.take_log().unwrap();
            assert_eq!(log.len(), 5, "q', K, two attentions, SwiGLU");
            for entry in &log {
                let values = entry.values.as_ref().unwrap();
                let digests = host.digest_rows(m, entry.width, values).unwrap();
                assert_eq!(digests, entry.digests);
            }
            let rounded = |i: usize| -> Vec<u16> {
                log[i].values.as_ref().unwrap().iter().map(|x| dtype.round(*x)).collect()
            };
            assert_eq!((rounded(0), rounded(3), rounded(4)), (q, out, z));
            assert!(host.take_log().unwrap().is_empty());
        }
    }
}
