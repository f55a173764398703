//! The sampler of docs/contract.md section 11, written a second time: plainly, over sorted lists.

use sha2::{Digest as _, Sha256};

use crate::contract::sampler::SamplerParams;
use crate::contract::scalar::exp2;

/// log2(e) in f32.
const LOG2_E: f32 = f32::from_bits(0x3fb8_aa3b);

/// What is drawn for one sample of a request.
#[derive(Clone, Copy, Debug)]
pub struct Draws {
    params: SamplerParams,
    key: [u32; 2],
}

impl Draws {
    /// The draws of sample `sample` of request `uid`: by its seed, or else by the run's.
    pub fn new(
        params: SamplerParams,
        seed: Option<u64>,
        run_seed: u64,
        sample: u32,
        uid: u64,
    ) -> Draws {
        let mut bytes = b"lockstep/1".to_vec();
        bytes.push(u8::from(seed.is_none()));
        bytes.extend(seed.unwrap_or(run_seed).to_le_bytes());
        bytes.extend(sample.to_le_bytes());
        if seed.is_none() {
            bytes.extend(uid.to_le_bytes());
        }
        let digest: [u8; 32] = Sha256::digest(&bytes).into();
        let (words, _) = digest.as_chunks::<4>();
        Draws { params, key: [u32::from_le_bytes(words[0]), u32::from_le_bytes(words[1])] }
    }

    /// The token drawn at `position` after `seen` (prompt and output), or `None` if a logit is not finite.
    pub fn draw(&self, logits: &[f32], seen: &[u32], position: u32) -> Option<u32> {
        if logits.iter().any(|x| !x.is_finite()) {
            return None;
        }
        let params = &self.params;
        let penalty = params.repetition_penalty;
        let mut logits = logits.to_vec();
        for (id, x) in logits.iter_mut().enumerate() {
            if seen.contains(&(id as u32)) {
                *x = if *x > 0.0 { *x / penalty } else { *x * penalty };
            }
        }
        // Best first; of equal logits the lowest id. +0 stands before -0.
        let mut ids: Vec<usize> = (0..logits.len()).collect();
        ids.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
        if params.temperature < 1.0 / 65536.0 {
            return ids.first().map(|id| *id as u32);
        }
        let best = logits[*ids.first()?];
        let scale = (1.0 / params.temperature) * LOG2_E;
        let weight = |id: usize| {
            (f64::from(exp2((logits[id] - best) * scale)) * 2_f64.powi(32)).trunc() as u64
        };
        let least = (f64::from(params.min_p) * 2_f64.powi(32)).ceil() as u64;
        ids.retain(|id| weight(*id) >= least);
        if params.top_k > 0 {
            ids.truncate(params.top_k as usize);
        }
        if params.top_p < 1.0 {
            let total: u64 = ids.iter().map(|id| weight(*id)).sum();
            let share = (f64::from(params.top_p) * 2_f64.powi(24)).ceil() as u64;
            let (high, low) = (total >> 24, total & ((1 << 24) - 1));
            let mass = (high * share + ((low * share) >> 24)).max(1);
            let mut sum = 0;
            let kept = ids.iter().position(|id| {
                sum += weight(*id);
                sum >= mass
            });
            ids.truncate(kept.map_or(ids.len(), |last| last + 1));
        }
        ids.sort_unstable();
        let total: u64 = ids.iter().map(|id| weight(*id)).sum();
        let random = random(self.key, position);
        let target = ((u128::from(random) * u128::from(total)) >> 64) as u64;
        let mut sum = 0;
        let drawn = ids.iter().find(|id| {
            sum += weight(**id);
            sum > target
        });
        drawn.map(|id| *id as u32)
    }
}

/// 64 bits of Philox4x32-10 at counter (position, 0, 0, 0).
fn random(key: [u32; 2], position: u32) -> u64 {
    let mut x = [position, 0, 0, 0];
    let mut key = key;
    for _ in 0..10 {
        let (a, b) = (u64::from(x[0]) * 0xd251_1f53, u64::from(x[2]) * 0xcd9e_8d57);
        let high = |x: u64| (x >> 32) as u32;
        x = [high(b) ^ x[1] ^ key[0], b as u32, high(a) ^ x[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(0x9e37_79b9), key[1].wrapping_add(0xbb67_ae85)];
    }
    u64::from(x[0]) | u64::from(x[1]) << 32
}
