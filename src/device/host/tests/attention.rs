//! Attention: the contract's bits from a paged, poisoned pool, however the rows are cut into steps.

use super::reference::Attention;
use super::*;
use crate::device::{Sequence, Splits};

/// K, V and q of one sequence, and its place in a pool.
struct Text {
    heads: Heads,
    positions: usize,
    /// `[position][q heads * dim]`.
    q: Vec<u16>,
    /// `[position][kv heads * dim]`.
    k: Vec<u16>,
    v: Vec<u16>,
    blocks: Vec<u32>,
}

impl Text {
    fn new(rng: &mut Rng, dtype: Dtype, heads: Heads, positions: usize, scale: f32) -> Text {
        let len = positions * heads.kv * heads.dim;
        Text {
            heads,
            positions,
            q: rng.ordinary(dtype, positions * heads.q * heads.dim, scale),
            k: rng.ordinary(dtype, len, scale),
            v: rng.ordinary(dtype, len, 1.0),
            blocks: Vec::new(),
        }
    }

    /// The rows `[from, to)` of all heads by the reference.
    fn expect(&self, dtype: Dtype, constants: Constants, from: usize, to: usize) -> Vec<u16> {
        let Heads { q, kv, dim } = self.heads;
        let head = |x: &[u16], h: usize| -> Vec<u16> {
            x[..to * kv * dim]
                .chunks_exact(kv * dim)
                .flat_map(|row| row[h * dim..(h + 1) * dim].to_vec())
                .collect()
        };
        let kv_heads: Vec<_> = (0..kv).map(|h| (head(&self.k, h), head(&self.v, h))).collect();
        let mut out = Vec::new();
        for position in from..to {
            for h in 0..q {
                let (k, v) = &kv_heads[h / (q / kv)];
                let attention = Attention { unit: MatrixUnit::SM90, dtype, constants, dim, k, v };
                let q = &self.q[(position * q + h) * dim..][..dim];
                out.extend(attention.row(q, position));
            }
        }
        out
    }
}

/// A pool with the texts' K and V up to `written`, everything else NaN, blocks in shuffled order.
fn pool(rng: &mut Rng, host: &Host, texts: &mut [Text], size: usize, written: &[usize]) -> HostKv {
    let heads = texts[0].heads;
    let blocks: usize = texts.iter().map(|t| t.positions.div_ceil(size)).sum();
    let mut free: Vec<u32> = (0..blocks as u32 + 3).collect();
    for i in (1..free.len()).rev() {
        free.swap(i, rng.below(i + 1));
    }
    let (kv_heads, head_dim) = (heads.kv, heads.dim);
    let shape = KvShape { layers: 2, blocks: free.len(), block_size: size, kv_heads, head_dim };
    let mut kv = host.alloc_kv(shape).unwrap();
    for (text, written) in texts.iter_mut().zip(written) {
        text.blocks = free.split_off(free.len() - text.positions.div_ceil(size));
        let len = kv.row_len();
        for position in 0..*written {
            let row = kv.row(1, &text.blocks, position);
            let (k, v) = kv.k_v_mut();
            k[row.clone()].copy_from_slice(&text.k[position * len..(position + 1) * len]);
            v[row].copy_from_slice(&text.v[position * len..(position + 1) * len]);
        }
    }
    kv
}

fn run(
    host: &mut Host,
    splits: Splits,
    split: u32,
    size: usize,
    kv: &HostKv,
    chunks: &[(&Text, usize, usize)],
) -> Vec<u16> {
    let heads = chunks[0].0.heads;
    let width = heads.q * heads.dim;
    let mut q = Vec::new();
    let mut layout = Layout { block_size: size as u32, sequences: Vec::new() };
    for (text, from, to) in chunks {
        q.extend_from_slice(&text.q[from * width..to * width]);
        layout.sequences.push(Sequence {
            blocks: text.blocks.clone(),
            start: *from as u32,
            len: (to - from) as u32,
        });
    }
    let mut out = host.alloc_t16(q.len()).unwrap();
    let launch = AttentionLaunch { splits, split };
    host.attention(launch, 1, heads, &layout, &q, kv, &mut out).unwrap();
    out
}

const TINY_HEADS: Heads = Heads { q: 4, kv: 2, dim: 16 };

/// Two sequences in one step, several tiles and splits, three kinds of constants, block sizes that divide
/// nothing; both split variants on every path.
#[test]
fn rows_are_the_contracts_from_a_pool_of_shuffled_blocks_and_nan() {
    let mut rng = Rng::new(10);
    let small = Constants { tile: 32, split: 64, ..Constants::SMALL };
    let real = Constants { tile: 64, split: 128, ..Constants::REAL };
    let cases = [
        (Constants::TINY, TINY_HEADS, 4, 3.0),
        (Constants::TINY, TINY_HEADS, 3, 40.0),
        (small, Heads { q: 3, kv: 1, dim: 64 }, 16, 1.5),
        (real, Heads { q: 2, kv: 2, dim: 32 }, 7, 2.0),
    ];
    for (i, (constants, heads, size, scale)) in cases.into_iter().enumerate() {
        let dtype = DTYPES[i % 2];
        let mut texts = [
            Text::new(&mut rng, dtype, heads, 75, scale),
            Text::new(&mut rng, dtype, heads, 140, scale),
        ];
        let expected: Vec<u16> = [
            texts[0].expect(dtype, constants, 60, 75),
            texts[1].expect(dtype, constants, 131, 132),
        ]
        .concat();
        for mut host in hosts(dtype, constants) {
            let kv = pool(&mut rng, &host, &mut texts, size, &[75, 132]);
            for splits in [Splits::Walk, Splits::Parallel] {
                let chunks = [(&texts[0], 60, 75), (&texts[1], 131, 132)];
                let out = run(&mut host, splits, constants.split, size, &kv, &chunks);
                assert!(out == expected, "case {i} {splits:?} {:?}", host.path());
            }
            let counts = host.counts().unwrap();
            assert_eq!((counts.attention_walk, counts.attention_parallel), (1, 1));
            assert!(counts.attention_folds > 0 && counts.attention_tile_before_chunk > 0);
        }
    }
}

/// Goal: a prompt's rows do not depend on how it is cut into steps, one row at a time included. Method: the
/// whole prompt in one step is the standard; later positions hold NaN while an earlier chunk runs.
#[test]
fn a_prompt_cut_anywhere_gives_the_same_rows() {
    let mut rng = Rng::new(11);
    let (size, positions) = (4, 70);
    for dtype in DTYPES {
        let mut host = Host::new(contract(dtype, Constants::TINY));
        let mut text = [Text::new(&mut rng, dtype, TINY_HEADS, positions, 4.0)];
        let kv = pool(&mut rng, &host, &mut text, size, &[positions]);
        let whole = run(&mut host, Splits::Walk, 32, size, &kv, &[(&text[0], 0, positions)]);
        let width = TINY_HEADS.q * TINY_HEADS.dim;
        let mut check = |rng: &mut Rng, from: usize, to: usize, splits: Splits| {
            let kv = pool(rng, &host, &mut text, size, &[to]);
            let out = run(&mut host, splits, 32, size, &kv, &[(&text[0], from, to)]);
            assert!(out == whole[from * width..to * width], "{dtype:?} {from}..{to} {splits:?}");
        };
        for cut in 1..positions {
            for splits in [Splits::Walk, Splits::Parallel] {
                check(&mut rng, 0, cut, splits);
                check(&mut rng, cut, positions, splits);
                check(&mut rng, cut, cut + 1, splits);
            }
        }
    }
}

/// A step that writes NaN to V poisons the rows whose tile reaches it, masked or not; a NaN in K only the
/// rows that see it. Compared with the reference, which walks every tile whole.
#[test]
fn non_finite_keys_and_values_do_what_the_contract_says() {
    let mut rng = Rng::new(12);
    let constants = Constants { tile: 32, split: 64, ..Constants::TINY };
    let size = 4;
    for dtype in DTYPES {
        // The last one sits where K's bits would show up as V's, were the unwritten tail not cleared.
        for (in_v, special, position, element) in [
            (false, f32::NAN, 50, 3),
            (true, f32::NAN, 50, 3),
            (false, f32::INFINITY, 50, 3),
            (true, f32::NEG_INFINITY, 50, 3),
            (false, f32::NEG_INFINITY, 50, 3),
            (false, f32::NEG_INFINITY, 75, 12),
        ] {
            let mut text = [Text::new(&mut rng, dtype, TINY_HEADS, 90, 1.0)];
            let at = position * TINY_HEADS.kv * TINY_HEADS.dim + element;
            let target = if in_v { &mut text[0].v } else { &mut text[0].k };
            target[at] = dtype.round(special);
            let expected = text[0].expect(dtype, constants, 20, 90);
            for mut host in hosts(dtype, constants) {
                let kv = pool(&mut rng, &host, &mut text, size, &[90]);
                for splits in [Splits::Walk, Splits::Parallel] {
                    let out = run(&mut host, splits, 64, size, &kv, &[(&text[0], 20, 90)]);
                    // A wholly masked tile may be skipped: rows before the tile of position 50 are free.
                    let from = (32 - 20) * TINY_HEADS.q * TINY_HEADS.dim;
                    assert!(out[from..] == expected[from..], "{dtype:?} {in_v} {special}");
                    if !in_v {
                        assert!(out == expected, "{dtype:?} {special}");
                    }
                }
            }
        }
    }
}

/// Goal: scratch carries nothing from one sequence to the next. Method: a neighbour of NaN alone, before and
/// after, must change no bit of a sequence that ends inside a tile.
#[test]
fn a_poisoned_neighbour_leaves_no_trace() {
    let mut rng = Rng::new(15);
    for dtype in DTYPES {
        for constants in [Constants::TINY, Constants { tile: 32, split: 64, ..Constants::TINY }] {
            let mut texts = [0, 1].map(|_| Text::new(&mut rng, dtype, TINY_HEADS, 60, 2.0));
            texts[0].k.fill(0x7fff);
            texts[0].v.fill(0x7fff);
            let expected = texts[1].expect(dtype, constants, 37, 43);
            for mut host in hosts(dtype, constants) {
                let kv = pool(&mut rng, &host, &mut texts, 4, &[60, 43]);
                for splits in [Splits::Walk, Splits::Parallel] {
                    let (bad, good) = ((&texts[0], 10, 60), (&texts[1], 37, 43));
                    let chunks = [bad, good, bad];
                    let out = run(&mut host, splits, constants.split, 4, &kv, &chunks);
                    let (from, len) = (50 * 64, 6 * 64);
                    assert!(out[from..from + len] == expected, "{dtype:?} {splits:?}");
                    assert!(out[..from].iter().all(|x| *x == 0x7fff));
                }
            }
        }
    }
}

/// Scores far apart, so that whole splits underflow to nothing, and all scores -infinity.
#[test]
fn splits_without_weight_are_skipped() {
    let mut rng = Rng::new(13);
    let dtype = Dtype::Bf16;
    for scale in [300.0, 1e19] {
        let mut text = [Text::new(&mut rng, dtype, TINY_HEADS, 100, scale)];
        let expected = text[0].expect(dtype, Constants::TINY, 0, 100);
        for mut host in hosts(dtype, Constants::TINY) {
            let kv = pool(&mut rng, &host, &mut text, 4, &[100]);
            for splits in [Splits::Walk, Splits::Parallel] {
                let out = run(&mut host, splits, 32, 4, &kv, &[(&text[0], 0, 100)]);
                assert!(out == expected, "{scale} {splits:?} {:?}", host.path());
            }
        }
    }
}

/// A row from position 32 on merges two splits, in each of four heads; only the chunk from 17 on starts
/// inside a tile.
#[test]
fn counters_count_folds_and_chunks_that_start_inside_a_tile() {
    let mut rng = Rng::new(14);
    let mut host = Host::new(contract(Dtype::F16, Constants::TINY));
    let mut text = [Text::new(&mut rng, Dtype::F16, TINY_HEADS, 42, 1.0)];
    let kv = pool(&mut rng, &host, &mut text, 4, &[42]);
    for (from, to, folds, inside) in [(0, 8, 0, 0), (16, 32, 0, 0), (17, 32, 0, 1), (32, 42, 40, 0)]
    {
        host = host.fresh();
        run(&mut host, Splits::Walk, 32, 4, &kv, &[(&text[0], from, to)]);
        let counts = host.counts().expect("the host counts");
        assert_eq!(counts.attention_folds, folds, "{from}..{to}");
        assert_eq!(counts.attention_tile_before_chunk, inside, "{from}..{to}");
    }
}

#[test]
fn a_launch_that_does_not_fit_the_pool_is_refused() {
    let mut host = Host::new(contract(Dtype::F16, Constants::TINY));
    let shape = KvShape { layers: 1, blocks: 4, block_size: 4, kv_heads: 2, head_dim: 16 };
    let kv = host.alloc_kv(shape).unwrap();
    let q = vec![0; 64];
    let mut run =
        |split: u32, layer: usize, heads: Heads, blocks: &[u32], start: u32, size: u32| {
            let sequence = Sequence { blocks: blocks.to_vec(), start, len: 1 };
            let layout = Layout { block_size: size, sequences: vec![sequence] };
            let launch = AttentionLaunch { splits: Splits::Walk, split };
            host.attention(launch, layer, heads, &layout, &q, &kv, &mut vec![0; 64])
        };
    let other = Heads { q: 4, kv: 1, dim: 16 };
    assert!(run(32, 0, TINY_HEADS, &[3], 3, 4).is_ok());
    assert!(run(24, 0, TINY_HEADS, &[3], 3, 4).is_err());
    assert!(run(0, 0, TINY_HEADS, &[3], 3, 4).is_err());
    assert!(run(32, 1, TINY_HEADS, &[3], 3, 4).is_err());
    assert!(run(32, 0, other, &[3], 3, 4).is_err());
    assert!(run(32, 0, TINY_HEADS, &[4], 3, 4).is_err());
    assert!(run(32, 0, TINY_HEADS, &[3], 4, 4).is_err());
    assert!(run(32, 0, TINY_HEADS, &[3], 3, 8).is_err());
}
