//! Element types of GGUF tensors, and their values in f32.
//!
//! A block stores `block` values in `bytes` bytes. The scale times the integer is exact in f32 in every
//! type below, so a value has at most one rounding before `r16`: the addition of the block's minimum.

use half::{bf16, f16};

/// An element type, by its number in the format's specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quant {
    F32,
    F16,
    Bf16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q2K,
    Q3K,
    Q4K,
    Q5K,
    Q6K,
    Iq4Nl,
    Iq4Xs,
}

/// Most values in a block.
pub(super) const BLOCK_MAX: usize = 256;

impl Quant {
    pub(super) fn from_id(id: u32) -> Option<Quant> {
        Some(match id {
            0 => Quant::F32,
            1 => Quant::F16,
            2 => Quant::Q4_0,
            3 => Quant::Q4_1,
            6 => Quant::Q5_0,
            7 => Quant::Q5_1,
            8 => Quant::Q8_0,
            10 => Quant::Q2K,
            11 => Quant::Q3K,
            12 => Quant::Q4K,
            13 => Quant::Q5K,
            14 => Quant::Q6K,
            20 => Quant::Iq4Nl,
            23 => Quant::Iq4Xs,
            30 => Quant::Bf16,
            _ => return None,
        })
    }

    /// Values in a block.
    pub(super) fn block(self) -> usize {
        match self {
            Quant::F32 | Quant::F16 | Quant::Bf16 => 1,
            Quant::Q4_0 | Quant::Q4_1 | Quant::Q5_0 | Quant::Q5_1 | Quant::Q8_0 => 32,
            Quant::Iq4Nl => 32,
            Quant::Q2K | Quant::Q3K | Quant::Q4K | Quant::Q5K | Quant::Q6K => 256,
            Quant::Iq4Xs => 256,
        }
    }

    /// Bytes in a block.
    pub(super) fn bytes(self) -> usize {
        match self {
            Quant::F32 => 4,
            Quant::F16 | Quant::Bf16 => 2,
            Quant::Q4_0 | Quant::Iq4Nl => 18,
            Quant::Q4_1 => 20,
            Quant::Q5_0 => 22,
            Quant::Q5_1 => 24,
            Quant::Q8_0 => 34,
            Quant::Q2K => 84,
            Quant::Q3K => 110,
            Quant::Iq4Xs => 136,
            Quant::Q4K => 144,
            Quant::Q5K => 176,
            Quant::Q6K => 210,
        }
    }

    /// The values of one block: `b` has `bytes()`, `y` has `block()`.
    pub(super) fn dequantise(self, b: &[u8], y: &mut [f32]) {
        match self {
            Quant::F32 => y[0] = f32::from_le_bytes([b[0], b[1], b[2], b[3]]),
            Quant::F16 => y[0] = half_at(b, 0),
            Quant::Bf16 => y[0] = bf16::from_le_bytes([b[0], b[1]]).to_f32(),
            Quant::Q4_0 => {
                let d = half_at(b, 0);
                nibbles(&b[2..], |i, q| y[i] = (f32::from(q) - 8.0) * d);
            }
            Quant::Q4_1 => {
                let (d, m) = (half_at(b, 0), half_at(b, 2));
                nibbles(&b[4..], |i, q| y[i] = f32::from(q) * d + m);
            }
            Quant::Q5_0 => {
                let (d, high) = (half_at(b, 0), u32_at(b, 2));
                nibbles(&b[6..], |i, q| y[i] = (f32::from(fifth(q, high, i)) - 16.0) * d);
            }
            Quant::Q5_1 => {
                let (d, m, high) = (half_at(b, 0), half_at(b, 2), u32_at(b, 4));
                nibbles(&b[8..], |i, q| y[i] = f32::from(fifth(q, high, i)) * d + m);
            }
            Quant::Q8_0 => {
                let d = half_at(b, 0);
                for (y, q) in y.iter_mut().zip(&b[2..]) {
                    *y = f32::from(*q as i8) * d;
                }
            }
            Quant::Q2K => {
                let (d, least) = (half_at(b, 80), half_at(b, 82));
                for (i, y) in y.iter_mut().enumerate() {
                    let (scale, min) = (f32::from(b[i / 16] & 15), f32::from(b[i / 16] >> 4));
                    *y = d * scale * f32::from(pair_of_bits(&b[16..80], i)) - least * min;
                }
            }
            Quant::Q3K => {
                let d = half_at(b, 108);
                for (i, y) in y.iter_mut().enumerate() {
                    // The third bit is set where nothing is to be taken away.
                    let high = (b[i % 32] >> (i / 32)) & 1;
                    let q = f32::from(pair_of_bits(&b[32..96], i)) - f32::from(4 * (1 - high));
                    *y = d * scale_of_16(&b[96..108], i / 16) * q;
                }
            }
            Quant::Iq4Nl => {
                let d = half_at(b, 0);
                nibbles(&b[2..], |i, q| y[i] = d * STEPS[usize::from(q)]);
            }
            Quant::Iq4Xs => {
                let (d, high) = (half_at(b, 0), u16::from_le_bytes([b[2], b[3]]));
                for (j, y) in y.chunks_exact_mut(32).enumerate() {
                    let low = b[4 + j / 2] >> (4 * (j % 2)) & 15;
                    let scale = f32::from(low | ((high >> (2 * j) & 3) as u8) << 4) - 32.0;
                    nibbles(&b[8 + 16 * j..], |i, q| y[i] = d * scale * STEPS[usize::from(q)]);
                }
            }
            Quant::Q4K => {
                let (d, least) = (half_at(b, 0), half_at(b, 2));
                for (i, y) in y.iter_mut().enumerate() {
                    let (scale, min) = scale_min(&b[4..16], i / 32);
                    let q = nibble_of_32(&b[16..], i);
                    *y = d * scale * q - least * min;
                }
            }
            Quant::Q5K => {
                let (d, least) = (half_at(b, 0), half_at(b, 2));
                for (i, y) in y.iter_mut().enumerate() {
                    let (scale, min) = scale_min(&b[4..16], i / 32);
                    let high = (b[16 + i % 32] >> (i / 32)) & 1;
                    let q = nibble_of_32(&b[48..], i) + 16.0 * f32::from(high);
                    *y = d * scale * q - least * min;
                }
            }
            Quant::Q6K => {
                let d = half_at(b, 208);
                for (i, y) in y.iter_mut().enumerate() {
                    // Halves of 128 values; within one, four groups of 32 share bytes.
                    let (half, group, l) = (i / 128, i / 32 % 4, i % 32);
                    let low = b[64 * half + 32 * (group % 2) + l] >> (4 * (group / 2)) & 15;
                    let high = b[128 + 32 * half + l] >> (2 * group) & 3;
                    let q = f32::from(low | high << 4) - 32.0;
                    let scale = b[192 + 8 * half + 2 * group + l / 16] as i8;
                    *y = d * f32::from(scale) * q;
                }
            }
        }
    }
}

fn half_at(b: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([b[at], b[at + 1]]).to_f32()
}

fn u32_at(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

/// Blocks of 32: byte `j` holds value `j` in its low half and value `j + 16` in its high half.
fn nibbles(b: &[u8], mut each: impl FnMut(usize, u8)) {
    for (j, &byte) in b[..16].iter().enumerate() {
        each(j, byte & 15);
        each(j + 16, byte >> 4);
    }
}

/// The values that four bits stand for in the two types whose steps are not even.
const STEPS: [f32; 16] = [
    -127.0, -104.0, -83.0, -65.0, -49.0, -35.0, -22.0, -10.0, 1.0, 13.0, 25.0, 38.0, 53.0, 69.0,
    89.0, 113.0,
];

/// Two bits of value `i`: halves of 128 values in 32 bytes each, within one, four groups of 32 from the low bits up.
fn pair_of_bits(b: &[u8], i: usize) -> u8 {
    b[i / 128 * 32 + i % 32] >> (2 * (i / 32 % 4)) & 3
}

/// Six-bit signed scale of the `j`-th of sixteen groups: four low bits in the first eight bytes, two high ones in the last four.
fn scale_of_16(b: &[u8], j: usize) -> f32 {
    let low = b[j % 8] >> (4 * (j / 8)) & 15;
    let high = b[8 + j % 4] >> (2 * (j / 4)) & 3;
    f32::from(low | high << 4) - 32.0
}

/// Adds bit `i` of `high` to four bits.
fn fifth(q: u8, high: u32, i: usize) -> u8 {
    q | ((high >> i & 1) as u8) << 4
}

/// Blocks of 256: each 32 bytes hold 32 values in their low halves, then 32 in their high halves.
fn nibble_of_32(b: &[u8], i: usize) -> f32 {
    f32::from(b[i / 64 * 32 + i % 32] >> (4 * (i / 32 % 2)) & 15)
}

/// Six-bit scale and minimum of the `j`-th of eight groups, packed in 12 bytes.
fn scale_min(b: &[u8], j: usize) -> (f32, f32) {
    let (scale, min) = if j < 4 {
        (b[j] & 63, b[j + 4] & 63)
    } else {
        (b[j + 4] & 15 | b[j - 4] >> 6 << 4, b[j + 4] >> 4 | b[j] >> 6 << 4)
    };
    (f32::from(scale), f32::from(min))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block of 32 values: scales as f16, then the given bytes.
    fn block(quant: Quant, scales: &[f32], rest: &[u8]) -> Vec<f32> {
        let mut bytes: Vec<u8> =
            scales.iter().flat_map(|&s| f16::from_f32(s).to_le_bytes()).collect();
        bytes.extend(rest);
        bytes.resize(quant.bytes(), 0);
        let mut values = vec![f32::NAN; quant.block()];
        quant.dequantise(&bytes, &mut values);
        values
    }

    #[test]
    fn four_bit_blocks_hold_values_j_and_j_plus_16_in_one_byte() {
        // Byte 0 is 0x3a: value 0 has 10, value 16 has 3. All other integers are 0.
        let y = block(Quant::Q4_0, &[0.5], &[0x3a]);
        assert_eq!((y[0], y[16], y[1], y[31]), (1.0, -2.5, -4.0, -4.0));
        let y = block(Quant::Q4_1, &[0.5, -1.0], &[0x3a]);
        assert_eq!((y[0], y[16], y[1], y[31]), (4.0, 0.5, -1.0, -1.0));
    }

    #[test]
    fn five_bit_blocks_take_the_fifth_bit_from_a_word() {
        // The word has bits 0 and 31: value 0 has 16 + 10, value 31 has 16 + 0.
        let rest = [1, 0, 0, 0x80, 0x3a];
        let y = block(Quant::Q5_0, &[0.25], &rest);
        assert_eq!((y[0], y[16], y[31], y[1]), (2.5, -3.25, 0.0, -4.0));
        let y = block(Quant::Q5_1, &[0.25, 2.0], &rest);
        assert_eq!((y[0], y[16], y[31], y[1]), (8.5, 2.75, 6.0, 2.0));
    }

    #[test]
    fn eight_bit_blocks_hold_signed_bytes() {
        let y = block(Quant::Q8_0, &[0.5], &[0x80, 0x7f, 0xff]);
        assert_eq!(y[..4], [-64.0, 63.5, -0.5, 0.0]);
    }

    #[test]
    fn the_six_bit_type_joins_low_and_high_bits_and_scales_sixteen_values_alike() {
        let mut bytes = [0; 210];
        bytes[0] = 0x25; // value 0: low 5; value 64: low 2
        bytes[128] = 0b11_01_00_10; // value 0: high 2, 32: 0, 64: 1, 96: 3
        bytes[192] = 2; // values 0 to 15
        bytes[196] = 0xff; // values 64 to 79: -1
        bytes[198] = 1; // values 96 to 111
        bytes[208..].copy_from_slice(&f16::from_f32(0.5).to_le_bytes());
        let mut y = [0.0; 256];
        Quant::Q6K.dequantise(&bytes, &mut y);
        assert_eq!((y[0], y[1]), (5.0, -32.0)); // 0.5 * 2 * (37 - 32), 0.5 * 2 * -32
        assert_eq!((y[64], y[96], y[16]), (7.0, 8.0, 0.0)); // 0.5 * -1 * (18 - 32), 0.5 * (48 - 32)
    }

    #[test]
    fn the_scales_of_the_four_bit_k_type_are_six_bits_wide() {
        let mut bytes = [0; 144];
        bytes[..2].copy_from_slice(&f16::from_f32(1.0).to_le_bytes());
        bytes[2..4].copy_from_slice(&f16::from_f32(0.5).to_le_bytes());
        bytes[4] = 0b10_000011; // group 0: scale 3; high bits of group 4's scale: 2
        bytes[8] = 0b01_000100; // group 0: minimum 4; high bits of group 4's minimum: 1
        bytes[12] = 0x21; // group 4: low bits of the scale 1, of the minimum 2
        bytes[16] = 0x07; // value 0: 7
        bytes[16 + 64] = 0x05; // value 128: 5
        let mut y = [0.0; 256];
        Quant::Q4K.dequantise(&bytes, &mut y);
        assert_eq!((y[0], y[1]), (19.0, -2.0)); // 3 * 7 - 0.5 * 4
        assert_eq!((y[128], y[129]), (156.0, -9.0)); // 33 * 5 - 0.5 * 18
    }

    #[test]
    fn the_two_and_three_bit_types_share_bytes_between_four_groups() {
        let mut bytes = [0; 84];
        bytes[0] = 0x53; // values 0 to 15: scale 3, minimum 5
        bytes[2] = 0x02; // values 32 to 47: scale 2
        bytes[16] = 0b10_01; // value 0: 1; value 32: 2
        bytes[80..82].copy_from_slice(&f16::from_f32(0.5).to_le_bytes());
        bytes[82..].copy_from_slice(&f16::from_f32(0.25).to_le_bytes());
        let mut y = [0.0; 256];
        Quant::Q2K.dequantise(&bytes, &mut y);
        assert_eq!((y[0], y[1], y[32]), (0.25, -1.25, 2.0)); // 0.5 * 3 - 0.25 * 5, 0.5 * 2 * 2

        let mut bytes = [0; 110];
        bytes[0] = 1; // value 0: nothing taken away
        bytes[32] = 0b10_01; // value 0: 1; value 32: 2, less 4
        bytes[96] = 1; // values 0 to 15: low bits of the scale
        bytes[104] = 0b10; // the same: high bits, 33 in all
        bytes[108..].copy_from_slice(&f16::from_f32(0.5).to_le_bytes());
        Quant::Q3K.dequantise(&bytes, &mut y);
        assert_eq!((y[0], y[1], y[32]), (0.5, -2.0, 32.0)); // 0.5 * 1, 0.5 * -4, 0.5 * -32 * -2
    }

    /// Goal: every type agrees with another reader. Method: random blocks and their values from the `gguf`
    /// package for Python, made as the file says.
    #[test]
    fn random_blocks_have_the_values_that_another_reader_gives_them() {
        let json = include_str!("../../tests/data/weights/dequant.json");
        let json: serde_json::Value = serde_json::from_str(json).expect("well formed");
        let hex = |text: &str| -> Vec<u8> {
            let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("hex");
            (0..text.len()).step_by(2).map(digit).collect()
        };
        let cases = json["cases"].as_array().expect("a list");
        assert_eq!(cases.len(), 12);
        for case in cases {
            let quant = Quant::from_id(case["type"].as_u64().expect("a number") as u32);
            let quant = quant.expect("a known type");
            let bytes = hex(case["bytes"].as_str().expect("text"));
            let expected = hex(case["values"].as_str().expect("text"));
            let mut values = vec![0.0; bytes.len() / quant.bytes() * quant.block()];
            let blocks = bytes.chunks_exact(quant.bytes());
            for (b, y) in blocks.zip(values.chunks_exact_mut(quant.block())) {
                quant.dequantise(b, y);
            }
            let bits: Vec<u8> = values.iter().flat_map(|v| v.to_bits().to_be_bytes()).collect();
            assert!(bits == expected, "{quant:?}");
        }
    }
}
