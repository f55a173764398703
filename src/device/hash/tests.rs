//! Tests of the hash device: what changes a hash and what does not, and its draws against the contract's sampler.

use super::mix::POISON;
use super::*;
use crate::contract::sampler::SamplerParams;
use crate::contract::{Constants, Dtype, MatrixUnit};
use crate::device::Sequence;

const HEADS: Heads = Heads { q: 4, kv: 2, dim: 16 };
const SHAPE: KvShape = KvShape { layers: 2, blocks: 12, block_size: 4, kv_heads: 2, head_dim: 16 };
const VOCAB: usize = 264;

fn device() -> Hash {
    Hash::new(Contract {
        version: crate::contract::VERSION,
        dtype: Dtype::Bf16,
        matrix_unit: MatrixUnit::SM90,
        constants: Constants::TINY,
        rope_sha256: String::new(),
    })
}

fn layout(blocks: &[u32], start: u32, len: u32) -> Layout {
    let sequence = Sequence { blocks: blocks.to_vec(), start, len };
    Layout { block_size: 4, sequences: vec![sequence] }
}

fn buffer(rows: &[u64]) -> HashBuffer {
    let mut buffer = HashBuffer::unwritten(8192);
    buffer.rows_mut(rows.len(), 64).copy_from_slice(rows);
    buffer
}

/// Rows 0 .. len of a sequence with these row hashes, written in one chunk.
fn written(device: &mut Hash, blocks: &[u32], rows: &[u64]) -> HashKv {
    let mut kv = HashKv::new(SHAPE);
    let layout = layout(blocks, 0, rows.len() as u32);
    let mut q = HashBuffer::unwritten(8192);
    for layer in 0..2 {
        device
            .rope_and_store(layer, HEADS, &layout, &buffer(rows), None, &64, &mut q, &mut kv)
            .unwrap();
    }
    kv
}

const LAUNCH: AttentionLaunch = AttentionLaunch { splits: Splits::Walk, split: 32 };

/// Attention of the row at `position`, with a query that is always the same.
fn attend(device: &mut Hash, layer: usize, blocks: &[u32], position: u32, kv: &HashKv) -> u64 {
    let mut out = HashBuffer::unwritten(8192);
    let layout = layout(blocks, position, 1);
    device.attention(LAUNCH, layer, HEADS, &layout, &buffer(&[7]), kv, &mut out).unwrap();
    out.row(0)
}

const BLOCKS: [u32; 3] = [5, 2, 9];

/// Goal: a row sees every position up to its own, in order, in its own layer, and nothing else. Method: changes one
/// entry at a time, at every position, visible or not.
#[test]
fn attention_depends_on_each_visible_entry_and_on_no_other() {
    let mut device = device();
    let rows: Vec<u64> = (100..111).collect();
    let kv = written(&mut device, &BLOCKS, &rows);
    for position in 0..11 {
        let plain = attend(&mut device, 0, &BLOCKS, position, &kv);
        assert_ne!(plain, POISON);
        assert_ne!(plain, attend(&mut device, 1, &BLOCKS, position, &kv), "layer 1");
        for changed in 0..12 {
            let mut other = kv.clone();
            other.block_mut(0, BLOCKS[changed / 4])[changed % 4] = 3;
            let now = attend(&mut device, 0, &BLOCKS, position, &other);
            assert_eq!(now != plain, changed <= position as usize, "{changed} from {position}");
            let mut other = kv.clone();
            other.block_mut(1, BLOCKS[changed / 4])[changed % 4] = 3;
            assert_eq!(attend(&mut device, 0, &BLOCKS, position, &other), plain);
        }
    }
    let plain = attend(&mut device, 0, &BLOCKS, 10, &kv);
    assert_ne!(attend(&mut device, 0, &[2, 5, 9], 10, &kv), plain, "blocks exchanged");
    let mut swapped = kv.clone();
    swapped.block_mut(0, 5).swap(1, 2);
    assert_ne!(attend(&mut device, 0, &BLOCKS, 10, &swapped), plain, "entries exchanged");
}

/// Where the blocks lie and how the prefill was cut shows nowhere.
#[test]
fn placement_and_cuts_change_nothing() {
    let mut device = device();
    let rows: Vec<u64> = (100..111).collect();
    let one = written(&mut device, &BLOCKS, &rows);
    let other = [11, 0, 1];
    for cut in 1..11 {
        let mut kv = HashKv::new(SHAPE);
        let mut q = HashBuffer::unwritten(8192);
        for (from, to) in [(0, cut), (cut, 11)] {
            let layout = layout(&other, from as u32, (to - from) as u32);
            let qkv = buffer(&rows[from..to]);
            device.rope_and_store(0, HEADS, &layout, &qkv, None, &64, &mut q, &mut kv).unwrap();
        }
        let digests = |device: &mut Hash, kv: &HashKv, blocks: &[u32]| {
            device.digest_kv(0, kv, blocks, 0, 11).unwrap()
        };
        assert_eq!(digests(&mut device, &kv, &other), digests(&mut device, &one, &BLOCKS));
        assert_eq!(
            attend(&mut device, 0, &other, 10, &kv),
            attend(&mut device, 0, &BLOCKS, 10, &one)
        );
    }
}

#[test]
fn an_entry_is_a_function_of_row_position_and_layer() {
    let mut device = device();
    let kv = written(&mut device, &BLOCKS, &[1, 1, 2, 2, 1]);
    let mut all: Vec<KvDigest> = Vec::new();
    for layer in 0..2 {
        all.extend(device.digest_kv(layer, &kv, &BLOCKS, 0, 5).unwrap());
    }
    let distinct: std::collections::BTreeSet<_> = all.iter().collect();
    assert_eq!(distinct.len(), 10);
    let again = written(&mut device, &BLOCKS, &[1, 9, 2, 2, 1]);
    let other = device.digest_kv(0, &again, &BLOCKS, 0, 5).unwrap();
    let differ: Vec<usize> = (0..5).filter(|i| other[*i] != all[*i]).collect();
    assert_eq!(differ, [1]);
    assert_eq!(device.digest_kv(0, &kv, &BLOCKS, 2, 4).unwrap(), all[2..4]);
    assert!(device.digest_kv(0, &kv, &BLOCKS, 3, 3).unwrap().is_empty());
}

/// What was never written spoils all that it enters, up to the draw, which then refuses.
#[test]
fn an_unwritten_entry_spoils_the_row() {
    let mut device = device();
    let mut kv = written(&mut device, &BLOCKS, &[1, 2, 3, 4, 5]);
    kv.block_mut(0, BLOCKS[0])[2] = POISON;
    assert_ne!(attend(&mut device, 0, &BLOCKS, 1, &kv), POISON);
    assert_eq!(attend(&mut device, 0, &BLOCKS, 2, &kv), POISON);
    assert_eq!(attend(&mut device, 0, &BLOCKS, 4, &kv), POISON);
    let digests = device.digest_kv(0, &kv, &BLOCKS, 2, 3).unwrap();
    assert_eq!((digests[0].k, digests[0].v), (POISON, POISON));
    let fresh = HashBuffer::unwritten(VOCAB);
    let row = SampleRow {
        row: 0,
        params: SamplerParams::default(),
        seen: Vec::new(),
        key: [1, 2],
        position: 3,
    };
    assert_eq!(device.sample(VOCAB, &fresh, &[row]).unwrap(), [None]);
    assert!(device.read_row(VOCAB, &fresh, 0).unwrap().iter().all(|x| x.is_nan()));
}

/// Goal: the shortcut of a greedy draw is the contract's greedy draw. Method: the contract's sampler over the
/// logits made in full; ties at the top must have been among them.
#[test]
fn a_greedy_draw_is_the_contracts_over_the_whole_row() {
    let mut device = device();
    let mut ties = 0;
    for vocab in [1, 2, 5, VOCAB, 1000] {
        for seed in 0..400 {
            let logits = buffer(&[mix(seed, 17)]);
            let x = device.read_row(vocab, &logits, 0).unwrap();
            assert!(x.iter().all(|x| x.is_finite()));
            let row = SampleRow {
                row: 0,
                params: SamplerParams::default(),
                seen: Vec::new(),
                key: [0, 0],
                position: 1,
            };
            let drawn = device.sample(vocab, &logits, std::slice::from_ref(&row)).unwrap()[0];
            let scratch = &mut sampler::Scratch::default();
            let simd = device.simd;
            let expected = sampler::draw(simd, &x, &row.params, &[], row.key, 1, scratch);
            assert_eq!(drawn, expected);
            let best = x[drawn.unwrap() as usize];
            ties += usize::from(x.iter().filter(|x| **x == best).count() > 1);
        }
    }
    assert!(ties > 100, "{ties}");
}

#[test]
fn logits_are_the_same_on_every_simd_path() {
    for row in [0, 1, 99, u64::MAX - 1] {
        let rows: Vec<Vec<f32>> = Simd::all()
            .into_iter()
            .map(|simd| {
                let mut out = vec![0.0; VOCAB];
                logits::fill(simd, row, &mut out);
                out
            })
            .collect();
        assert!(rows.iter().all(|r| *r == rows[0]));
        let distinct: std::collections::BTreeSet<u32> =
            rows[0].iter().map(|x| x.to_bits()).collect();
        assert!(distinct.len() > 200, "{}", distinct.len());
    }
}

/// Variants that change no bit change no hash, and what changes bits on a real device does.
#[test]
fn cuts_splits_and_lanes_matter_where_they_are_not_the_contracts() {
    let mut device = device();
    let w = device.upload_matrix(64, 64, &vec![3; 64 * 64]).unwrap();
    let contract: Arc<[u32]> = Constants::TINY.cuts(64, Constants::TINY.splits(64, 64)).into();
    let gemm = |device: &mut Hash, rows, splits, cuts: &Arc<[u32]>| {
        let mut y = HashBuffer::unwritten(8192);
        let launch = GemmLaunch { rows, splits, cuts: Arc::clone(cuts) };
        let x = buffer(&[1, 2]);
        device.gemm(&launch, 2, &x, &w, GemmOutput::Round(&mut y)).unwrap();
        [y.row(0), y.row(1)]
    };
    let plain = gemm(&mut device, RowTile::Skinny, Splits::Walk, &contract);
    assert_eq!(gemm(&mut device, RowTile::Tiled, Splits::Parallel, &contract), plain);
    let other = gemm(&mut device, RowTile::Skinny, Splits::Walk, &vec![0, 64].into());
    assert!(other[0] != plain[0] && other[1] != plain[1]);
    let launch =
        GemmLaunch { rows: RowTile::Skinny, splits: Splits::Walk, cuts: vec![0, 48].into() };
    let mut y = HashBuffer::unwritten(8192);
    let refused = device.gemm(&launch, 2, &buffer(&[1, 2]), &w, GemmOutput::Round(&mut y));
    assert!(matches!(refused, Err(DeviceError::Launch(_))));

    let weight = device.upload(&[7; 64]).unwrap();
    let norm = |device: &mut Hash, lanes, fused| {
        let mut x = HashBuffer::unwritten(64);
        let launch = NormLaunch { lanes, fused };
        device.rmsnorm(launch, 1, 64, &buffer(&[5]), &weight, 1e-6, &mut x).unwrap();
        x.row(0)
    };
    assert_eq!(norm(&mut device, 64, true), norm(&mut device, 64, false));
    assert_ne!(norm(&mut device, 64, true), norm(&mut device, 32, true));

    // A split of 16 in the place of 32 cuts a row at position 16 for the first time.
    let rows: Vec<u64> = (0..40).collect();
    let blocks: Vec<u32> = (0..10).collect();
    let kv = written(&mut device, &blocks, &rows);
    for position in 0..40 {
        let mut halved = HashBuffer::unwritten(8192);
        let launch = AttentionLaunch { split: 16, ..LAUNCH };
        let layout = layout(&blocks, position, 1);
        device.attention(launch, 0, HEADS, &layout, &buffer(&[7]), &kv, &mut halved).unwrap();
        let same = halved.row(0) == attend(&mut device, 0, &blocks, position, &kv);
        assert_eq!(same, position < 16, "{position}");
    }
}

/// Buffers too short, tables that do not cover, tokens outside: refused, never read past.
#[test]
fn launches_that_do_not_fit_are_refused() {
    let mut device = device();
    let kv = HashKv::new(SHAPE);
    let refused = |result: Result<(), DeviceError>| {
        assert!(matches!(result, Err(DeviceError::Launch(_))), "{result:?}");
    };
    let mut out = HashBuffer::unwritten(8192);
    let q = buffer(&[1]);
    let mut attend = |layout: &Layout, layer, out: &mut HashBuffer| {
        device.attention(LAUNCH, layer, HEADS, layout, &q, &kv, out)
    };
    refused(attend(&layout(&[1], 4, 1), 0, &mut out));
    refused(attend(&layout(&[12], 0, 1), 0, &mut out));
    refused(attend(&layout(&[1], 0, 1), 2, &mut out));
    refused(attend(&layout(&[1], 0, 1), 0, &mut HashBuffer::unwritten(63)));
    let embedding = device.upload_matrix(10, 16, &[1; 160]).unwrap();
    refused(device.embed(&embedding, &[10], &mut out));
    refused(device.embed(&embedding, &[1, 2], &mut HashBuffer::unwritten(31)));
    assert!(device.upload_matrix(10, 16, &[1; 159]).is_err());
    assert!(device.read_f32(&out, 1).is_err());
    assert!(device.sample(0, &out, &[]).unwrap().is_empty());
    assert!(device.digest_kv(0, &kv, &[1], 0, 5).is_err());
}

/// Goal: log-probabilities go through the contract's operator. Method: exp of all of them adds up to one.
#[test]
fn log_probabilities_add_up() {
    let mut device = device();
    let logits = buffer(&[11, 12]);
    let ids: Vec<u32> = (0..VOCAB as u32).chain(0..VOCAB as u32).collect();
    let rows: Vec<u32> = (0..2).flat_map(|row| [row; VOCAB]).collect();
    let all = device.logprobs(VOCAB, &logits, &rows, &ids).unwrap();
    for row in all.chunks(VOCAB) {
        let sum: f64 = row.iter().map(|x| f64::from(*x).exp()).sum();
        assert!((sum - 1.0).abs() < 1e-5, "{sum}");
    }
    assert_ne!(all[..VOCAB], all[VOCAB..]);
}

/// Poison lands on the rows that have an element in the range, and on no other; a copied block is its original.
#[test]
fn poison_and_copies_land_where_they_are_asked_to() {
    let mut device = device();
    let mut x = buffer(&[1, 2, 3, 4]);
    device.poison_f32(&mut x, 2 * 64..3 * 64).unwrap();
    assert_eq!(x.rows(4).collect::<Vec<_>>(), [1, 2, POISON, 4]);
    device.poison_t16(&mut x, 63..64).unwrap();
    device.poison_t16(&mut x, 200..200).unwrap();
    assert_eq!(x.rows(4).collect::<Vec<_>>(), [POISON, 2, POISON, 4]);
    device.poison_f32(&mut x, 0..8192).unwrap();
    assert!(x.rows(4).all(|row| row == POISON));
    assert!(device.poison_f32(&mut x, 0..8193).is_err());
    device.poison_f32(&mut HashBuffer::unwritten(9), 0..9).unwrap();

    let rows: Vec<u64> = (100..111).collect();
    let mut kv = written(&mut device, &BLOCKS, &rows);
    let plain = attend(&mut device, 1, &BLOCKS, 10, &kv);
    device.copy_block(&mut kv, 2, 7).unwrap();
    assert_eq!(attend(&mut device, 1, &[5, 7, 9], 10, &kv), plain);
    device.poison_block(&mut kv, 2).unwrap();
    assert_eq!(attend(&mut device, 1, &[5, 7, 9], 10, &kv), plain);
    assert_eq!(attend(&mut device, 1, &BLOCKS, 10, &kv), POISON);
    assert_ne!(attend(&mut device, 1, &BLOCKS, 3, &kv), POISON);

    let mut swap = device.alloc_swap(KvShape { blocks: 3, ..SHAPE }).unwrap();
    device.swap_out(&kv, &[5, 7, 9], &mut swap, &[2, 0, 1]).unwrap();
    let mut other = HashKv::new(SHAPE);
    device.swap_in(&swap, &[2, 0, 1], &mut other, &[0, 1, 4]).unwrap();
    assert_eq!(attend(&mut device, 1, &[0, 1, 4], 10, &other), plain);
    assert!(device.swap_in(&swap, &[3], &mut other, &[0]).is_err());
    assert!(device.swap_out(&kv, &[1, 2], &mut swap, &[0]).is_err());
    assert!(device.copy_block(&mut kv, 0, 12).is_err());
    assert!(device.poison_block(&mut kv, 12).is_err());
}
