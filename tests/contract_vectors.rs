//! Goal: the host's matrix unit computes what an H200's computes. Method: every element of every vector file
//! that was read off the hardware (`tests/data/vectors`) is recomputed on every path of this machine.

use std::path::Path;

use lockstep::contract::matrix_unit::{COLUMNS, Decoded, GROUP, Job, PANEL_GROUP, Unit, oracle};
use lockstep::contract::simd::Simd;
use lockstep::contract::{Dtype, MatrixUnit};

const TILES: usize = 96;

/// A file's arrays, read one after the other.
struct Reader {
    name: String,
    bytes: Vec<u8>,
    at: usize,
}

impl Reader {
    fn open(name: &str) -> Reader {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/vectors").join(name);
        let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Reader { name: name.into(), bytes, at: 0 }
    }

    fn take<const N: usize>(&mut self, len: usize) -> Vec<[u8; N]> {
        let bytes = &self.bytes[self.at..self.at + len * N];
        self.at += len * N;
        bytes.as_chunks::<N>().0.to_vec()
    }

    fn u16s(&mut self, len: usize) -> Vec<u16> {
        self.take(len).into_iter().map(u16::from_le_bytes).collect()
    }

    fn u32s(&mut self, len: usize) -> Vec<u32> {
        self.take(len).into_iter().map(u32::from_le_bytes).collect()
    }

    fn done(self) {
        assert_eq!(self.at, self.bytes.len(), "{} has another length", self.name);
    }
}

/// `d[m][n] = c[m][n] + a[m][k] . b[n][k]` as chains over k, through panels of eight columns.
fn multiply(unit: &Unit, k: usize, a: &[u16], b: &[u16], c: &[u32]) -> Vec<u32> {
    let (m, n) = (a.len() / k, b.len() / k);
    let mut rows = Decoded::default();
    rows.reserve(a.len());
    let (values, exponents) = rows.slots(0..a.len());
    unit.decode_rows(a, values, exponents);
    let mut panels = Decoded::default();
    panels.reserve(b.len());
    for panel in 0..n / COLUMNS {
        let len = k * COLUMNS;
        let bits: Vec<u16> =
            (0..len).map(|i| b[(panel * COLUMNS + i % COLUMNS) * k + i / COLUMNS]).collect();
        let (values, exponents) = panels.slots(panel * len..(panel + 1) * len);
        unit.decode_panel(&bits, values, exponents);
    }
    let jobs: Vec<Job> = (0..m * n / COLUMNS)
        .map(|i| Job {
            row: (i / (n / COLUMNS) * k) as u32,
            panel: (i % (n / COLUMNS) * k / GROUP * PANEL_GROUP) as u32,
        })
        .collect();
    let mut sums: Vec<[f32; COLUMNS]> =
        c.as_chunks::<COLUMNS>().0.iter().map(|c| c.map(f32::from_bits)).collect();
    unit.chains(k / GROUP, rows.operand(), panels.operand(), &jobs, &mut sums);
    sums.as_flattened().iter().map(|x| x.to_bits()).collect()
}

fn check_steps(kind: &str) {
    for (name, dtype) in [("f16", Dtype::F16), ("bf16", Dtype::Bf16)] {
        let mut file = Reader::open(&format!("sm90-k16{kind}-{name}.bin"));
        let (a, b) = (file.u16s(TILES * 256), file.u16s(TILES * 128));
        let (c, d) = (file.u32s(TILES * 128), file.u32s(TILES * 128));
        file.done();
        for simd in Simd::all() {
            let unit = Unit::new(MatrixUnit::SM90, dtype, simd);
            for t in 0..TILES {
                let (a, b) = (&a[t * 256..][..256], &b[t * 128..][..128]);
                let (c, d) = (&c[t * 128..][..128], &d[t * 128..][..128]);
                assert_eq!(multiply(&unit, 16, a, b, c), d, "{kind} {name} {simd:?} tile {t}");
            }
        }
    }
}

#[test]
fn one_step_of_ordinary_values_is_the_hardwares() {
    check_steps("");
}

/// Signed zeros, subnormals, overflow, NaN and infinities, exact cancellation.
#[test]
fn one_step_at_the_edges_is_the_hardwares() {
    check_steps("-edge");
}

#[test]
fn one_step_with_subnormal_factors_is_the_hardwares() {
    check_steps("-subnormal");
}

/// 64 steps from +0: normal, wide-exponent and same-sign data.
#[test]
fn a_chain_of_steps_is_the_hardwares() {
    let mut file = Reader::open("sm90-chain-bf16.bin");
    for block in 0..3 {
        let (a, b, d) = (file.u16s(16 * 1024), file.u16s(16 * 1024), file.u32s(256));
        for simd in Simd::all() {
            let unit = Unit::new(MatrixUnit::SM90, Dtype::Bf16, simd);
            assert_eq!(multiply(&unit, 1024, &a, &b, &[0; 256]), d, "block {block} {simd:?}");
        }
    }
    file.done();
}

/// Goal: the comparison above can fail. Method: another unit must differ on ordinary data.
#[test]
fn another_matrix_unit_does_not_reproduce_the_hardware() {
    let mut file = Reader::open("sm90-k16-bf16.bin");
    let (a, b) = (file.u16s(TILES * 256), file.u16s(TILES * 128));
    let (c, d) = (file.u32s(TILES * 128), file.u32s(TILES * 128));
    for unit in [MatrixUnit::SM80, MatrixUnit { terms: 16, fraction_bits: 24 }] {
        let differ = (0..TILES * 128)
            .filter(|i| {
                let (t, m, n) = (i / 128, i / 8 % 16, i % 8);
                let (a, b) = (&a[t * 256 + m * 16..][..16], &b[t * 128 + n * 16..][..16]);
                oracle::chain(unit, Dtype::Bf16, c[*i], a, b) != d[*i]
            })
            .count();
        assert!(differ > 100, "{unit:?} differs in {differ} elements only");
    }
}
