//! Which tensors a decoder has, and their shapes.

use super::config::{Family, ModelConfig};

/// Parts of a layer, in the order of their numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Norm before attention.
    AttentionNorm,
    /// Rows of q.
    Q,
    /// Rows of k.
    K,
    /// Rows of v.
    V,
    /// q norm (Qwen3).
    QNorm,
    /// k norm (Qwen3).
    KNorm,
    /// Output projection.
    O,
    /// Norm before the feed-forward.
    FfnNorm,
    /// Rows of gate.
    Gate,
    /// Rows of up.
    Up,
    /// Down projection.
    Down,
}

impl Part {
    /// The parts of a layer of this family.
    pub(super) fn all(family: Family) -> impl Iterator<Item = Part> {
        use Part::*;
        [AttentionNorm, Q, K, V, QNorm, KNorm, O, FfnNorm, Gate, Up, Down]
            .into_iter()
            .filter(move |part| family == Family::Qwen3 || !matches!(part, QNorm | KNorm))
    }
}

/// One tensor of a model, before fusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// Token embedding.
    Embedding,
    /// Norm before the head.
    FinalNorm,
    /// LM head of an untied model.
    Head,
    /// A part of a layer.
    Layer(usize, Part),
}

impl ModelConfig {
    /// Rows and columns of a tensor; a norm has no rows of its own.
    pub fn shape(&self, slot: Slot) -> (Option<usize>, usize) {
        let (q, kv) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        match slot {
            Slot::Embedding | Slot::Head => (Some(self.vocab), self.hidden),
            Slot::FinalNorm => (None, self.hidden),
            Slot::Layer(_, part) => match part {
                Part::AttentionNorm | Part::FfnNorm => (None, self.hidden),
                Part::QNorm | Part::KNorm => (None, self.head_dim),
                Part::Q => (Some(q), self.hidden),
                Part::K | Part::V => (Some(kv), self.hidden),
                Part::O => (Some(self.hidden), q),
                Part::Gate | Part::Up => (Some(self.ffn), self.hidden),
                Part::Down => (Some(self.hidden), self.ffn),
            },
        }
    }

    /// Multiply-adds of a token in the weights, LM head included; attention comes on top.
    pub fn multiply_adds(&self) -> usize {
        let matrices = self.slots(true).filter(|slot| *slot != Slot::Embedding);
        let shapes = matrices.chain([Slot::Head]).map(|slot| self.shape(slot));
        shapes.filter_map(|(rows, k)| Some(rows? * k)).sum()
    }

    /// All tensors of the model.
    pub(super) fn slots(&self, tied: bool) -> impl Iterator<Item = Slot> {
        let family = self.family;
        let layers = (0..self.layers)
            .flat_map(move |l| Part::all(family).map(move |part| Slot::Layer(l, part)));
        [Slot::Embedding, Slot::FinalNorm]
            .into_iter()
            .chain((!tied).then_some(Slot::Head))
            .chain(layers)
    }
}
