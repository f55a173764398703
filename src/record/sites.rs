//! Sites: the places of a forward pass whose f32 results are digested before they are rounded (layer digests).

use std::fmt;

/// An operator of a decoder, by what it computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// h after the embedding.
    Embed,
    /// The norm before attention.
    AttentionNorm,
    /// The fused q, k, v projection.
    Qkv,
    /// q', after norm, RoPE and the softmax scale.
    Q,
    /// K, after norm and RoPE.
    K,
    /// Attention, after the fold over splits.
    Attention,
    /// h after the output projection was added.
    Output,
    /// The norm before the feed-forward part.
    FfnNorm,
    /// The fused gate and up projection.
    GateUp,
    /// SwiGLU.
    Swiglu,
    /// h after the down projection was added.
    Down,
    /// The norm before the LM head.
    FinalNorm,
}

/// Stages of a decoder layer, in order.
const LAYER: [Stage; 10] = [
    Stage::AttentionNorm,
    Stage::Qkv,
    Stage::Q,
    Stage::K,
    Stage::Attention,
    Stage::Output,
    Stage::FfnNorm,
    Stage::GateUp,
    Stage::Swiglu,
    Stage::Down,
];

impl Stage {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Embed => "embed",
            Stage::AttentionNorm => "attention norm",
            Stage::Qkv => "qkv projection",
            Stage::Q => "q after RoPE",
            Stage::K => "k after RoPE",
            Stage::Attention => "attention",
            Stage::Output => "output projection",
            Stage::FfnNorm => "ffn norm",
            Stage::GateUp => "gate and up projection",
            Stage::Swiglu => "swiglu",
            Stage::Down => "down projection",
            Stage::FinalNorm => "final norm",
        }
    }
}

/// A place of a forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// Decoder layer, if it belongs to one.
    pub layer: Option<usize>,
    /// Operator.
    pub stage: Stage,
}

impl Site {
    /// Number of sites of a model with this many layers.
    pub fn count(layers: usize) -> usize {
        layers * LAYER.len() + 2
    }

    /// The number of a layer's site in the order of computation; `None` for a stage that no layer has.
    pub fn in_layer(layer: usize, stage: Stage) -> Option<usize> {
        let at = LAYER.iter().position(|s| *s == stage)?;
        Some(1 + layer * LAYER.len() + at)
    }

    /// Its number in the order of computation, of `count` in all.
    pub fn index(self, count: usize) -> usize {
        let in_layer = self.layer.and_then(|layer| Site::in_layer(layer, self.stage));
        in_layer.unwrap_or(if self.stage == Stage::Embed { 0 } else { count - 1 })
    }

    /// Site `index` in the order of computation, of `count` in all.
    pub fn nth(index: usize, count: usize) -> Site {
        match index.checked_sub(1) {
            None => Site { layer: None, stage: Stage::Embed },
            Some(_) if index + 1 == count => Site { layer: None, stage: Stage::FinalNorm },
            Some(i) => Site { layer: Some(i / LAYER.len()), stage: LAYER[i % LAYER.len()] },
        }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(layer) = self.layer {
            write!(f, "layer {layer}, ")?;
        }
        f.write_str(self.stage.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_are_numbered_in_the_order_of_computation() {
        let count = Site::count(2);
        let sites: Vec<Site> = (0..count).map(|i| Site::nth(i, count)).collect();
        assert_eq!(sites[0], Site { layer: None, stage: Stage::Embed });
        assert_eq!(sites[1], Site { layer: Some(0), stage: Stage::AttentionNorm });
        assert_eq!(sites[10], Site { layer: Some(0), stage: Stage::Down });
        assert_eq!(sites[11], Site { layer: Some(1), stage: Stage::AttentionNorm });
        assert_eq!(sites[21], Site { layer: None, stage: Stage::FinalNorm });
        assert_eq!(count, 22);
        assert_eq!(sites[5].to_string(), "layer 0, attention");
        assert!((0..count).all(|i| sites[i].index(count) == i));
    }
}
