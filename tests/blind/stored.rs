//! K and V, byte for byte, against an independent rotation: what is stored is what was computed.

use half::bf16;
use lockstep::contract::philox::philox4x32_10;
use lockstep::contract::{Dtype, MatrixUnit};
use lockstep::device::host::Host;
use lockstep::device::{Device, Heads, KvShape, Layout, Sequence};
use lockstep::engine::contract_of;
use lockstep::weights;

use super::altered::{Alteration, Altered};
use super::model_faults::HostFault;

/// Positions that are written.
const POSITIONS: usize = 13;
const HEADS: Heads = Heads { q: 4, kv: 2, dim: 16 };

/// Stored values that are wrong.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// Of V, which are stored as they come.
    v: usize,
    /// Of K, further than a rounding from the rotation in f64.
    k: usize,
    /// Of K, another rounding of it: f32 was between.
    k_rounded: usize,
    all: usize,
}

/// Writes random q, k and v through the operator, reads K and V back by the block table, and compares each value.
fn wrong<A: Alteration<Host>>(alteration: A) -> Wrong {
    let source = weights::source("tiny", Some(Dtype::Bf16)).unwrap();
    let config = source.config();
    let (contract, rope) = contract_of(&config, Dtype::Bf16, MatrixUnit::SM90, 64);
    let mut device = Altered::new(Host::new(contract), alteration);
    let columns = HEADS.qkv_columns();
    let random =
        |i: u32| philox4x32_10([i, 0, 0, 0], [17, 0])[0] as f32 / (1_u32 << 30) as f32 - 2.0;
    let values: Vec<u16> =
        (0..(POSITIONS * columns) as u32).map(|i| bf16::from_f32(random(i)).to_bits()).collect();
    let qkv = device.upload(&values).unwrap();
    let table = device.upload_rope(&rope).unwrap();
    let mut q = device.alloc_t16(POSITIONS * HEADS.q * HEADS.dim).unwrap();
    let shape =
        KvShape { layers: 1, blocks: 6, block_size: 4, kv_heads: HEADS.kv, head_dim: HEADS.dim };
    let mut kv = device.alloc_kv(shape).unwrap();
    let blocks = vec![5, 0, 3, 2];
    let sequence = Sequence { blocks: blocks.clone(), start: 0, len: POSITIONS as u32 };
    let layout = Layout { block_size: 4, sequences: vec![sequence] };
    device.rope_and_store(0, HEADS, &layout, &qkv, None, &table, &mut q, &mut kv).unwrap();
    let [k, v] = device.read_kv(0, &kv, &blocks, 0, POSITIONS as u32).unwrap();
    let width = HEADS.kv * HEADS.dim;
    let mut wrong = Wrong { v: 0, k: 0, k_rounded: 0, all: POSITIONS * width };
    for position in 0..POSITIONS {
        let row = &values[position * columns..(position + 1) * columns];
        let (own_k, own_v) = row[HEADS.q * HEADS.dim..].split_at(width);
        let stored = position * width..(position + 1) * width;
        wrong.v += own_v.iter().zip(&v[stored.clone()]).filter(|(a, b)| a != b).count();
        let exact = rotated(own_k, position, config.rope_base);
        for (exact, stored) in exact.into_iter().zip(&k[stored]) {
            let rounded = bf16::from_f64(exact);
            let near = (bf16::from_bits(*stored).to_f64() - exact).abs() <= exact.abs() / 128.0;
            wrong.k += usize::from(!near);
            wrong.k_rounded += usize::from(near && rounded.to_bits() != *stored);
        }
    }
    wrong
}

/// The heads of a row, rotated in f64 from the equations.
fn rotated(row: &[u16], position: usize, base: f64) -> Vec<f64> {
    let mut out = vec![0.0; row.len()];
    let half = HEADS.dim / 2;
    for (head, out) in row.chunks_exact(HEADS.dim).zip(out.chunks_exact_mut(HEADS.dim)) {
        for i in 0..half {
            let angle = position as f64 * base.powf(-2.0 * i as f64 / HEADS.dim as f64);
            let (sin, cos) = angle.sin_cos();
            let [a, b] = [head[i], head[i + half]].map(|x| bf16::from_bits(x).to_f64());
            out[i] = a * cos - b * sin;
            out[i + half] = b * cos + a * sin;
        }
    }
    out
}

/// A device without a fault.
#[derive(Clone)]
struct Sound;

impl Alteration<Host> for Sound {}

#[test]
fn stored_values_are_those_computed_and_shorter_ones_are_not() {
    let sound = wrong(Sound);
    println!("{sound:?}");
    assert_eq!((sound.v, sound.k), (0, 0));
    assert!(sound.k_rounded * 50 < sound.all, "{sound:?}");
    let short = wrong(HostFault::StoredShort);
    println!("{short:?}");
    assert!(short.v * 2 > short.all && short.k * 2 > short.all);
}
