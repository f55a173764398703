//! Each operator of a row in f64, on the inputs that the engine had: how far a single operator is from its equation (F1).
//!
//! The engine's f32 results before they are rounded are given; rounding them to 16 bits gives what its next operator read. So no error of one operator reaches the next, and what is left is the error of f32 sums:
//! small enough to see a wrong constant by.

use super::operators::Operators;
use crate::record::sites::{Site, Stage};
use crate::weights::Model;

/// The operators of one model.
pub struct Stepwise<'m> {
    operators: Operators<'m>,
}

/// K and V of one sequence as attention reads them, in one layer: `[position][kv head][dim]`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stored {
    /// K.
    pub k: Vec<f64>,
    /// V.
    pub v: Vec<f64>,
}

impl<'m> Stepwise<'m> {
    /// Of a model.
    pub fn new(model: &'m Model) -> Stepwise<'m> {
        Stepwise { operators: Operators::new(model) }
    }

    /// Sites of the model.
    pub fn sites(&self) -> usize {
        Site::count(self.operators.model.config.layers)
    }

    /// Appends what a row's K and V were stored as to those of the positions before it, one entry a layer. `site(i)` are
    /// the row's f32 results at site i before they are rounded.
    pub fn store<'v>(&self, site: impl Fn(usize) -> &'v [f32], layers: &mut [Stored]) {
        for (layer, stored) in layers.iter_mut().enumerate() {
            let at = |stage| self.rounded(site(self.index(layer, stage)));
            let qkv = at(Stage::Qkv);
            stored.k.extend(at(Stage::K));
            stored.v.extend(&qkv[qkv.len() - self.stored_width()..]);
        }
    }

    /// What site `index` should hold for a row with this token and position. `past` holds K and V of the layer at all
    /// positions up to the row's own, or further; only attention reads them.
    ///
    /// # Panics
    /// If the model has no such site, or the row's results have other widths than the model's.
    pub fn expected<'v>(
        &self,
        index: usize,
        token: u32,
        position: u32,
        site: impl Fn(usize) -> &'v [f32],
        past: &Stored,
    ) -> Vec<f64> {
        let ops = &self.operators;
        let model = ops.model;
        let Site { layer, stage } = Site::nth(index, self.sites());
        // h before the layer: after the embedding, or after the layer before.
        let before = |layer: usize| match layer.checked_sub(1) {
            None => wide(site(0)),
            Some(last) => wide(site(self.index(last, Stage::Down))),
        };
        let Some(number) = layer else {
            return match stage {
                Stage::Embed => ops.embed(token),
                _ => ops.norm(&before(model.config.layers), &model.final_norm),
            };
        };
        let layer = &model.layers[number];
        let at = |stage| site(self.index(number, stage));
        let rounded = |stage| self.rounded(at(stage));
        let product = |matrix, stage| one(ops.multiply(matrix, &[rounded(stage)]));
        match stage {
            Stage::AttentionNorm => ops.norm(&before(number), &layer.attention_norm),
            Stage::Qkv => product(&layer.qkv, Stage::AttentionNorm),
            Stage::Q => {
                // q' carries the scale of the scores, and that of exp2 instead of exp.
                let scale = std::f64::consts::LOG2_E / (model.config.head_dim as f64).sqrt();
                let [q, _] = ops.rotated(layer, &rounded(Stage::Qkv), position as usize);
                q.into_iter().map(|q| q * scale).collect()
            }
            Stage::K => {
                let [_, k] = ops.rotated(layer, &rounded(Stage::Qkv), position as usize);
                k
            }
            Stage::Attention => {
                let end = (position as usize + 1) * self.stored_width();
                let (k, v) = (&past.k[..end], &past.v[..end]);
                ops.attention(&rounded(Stage::Q), k, v, std::f64::consts::LN_2, |weight| weight)
            }
            Stage::Output => sum(before(number), product(&layer.o, Stage::Attention)),
            Stage::FfnNorm => ops.norm(&wide(at(Stage::Output)), &layer.ffn_norm),
            Stage::GateUp => product(&layer.gate_up, Stage::FfnNorm),
            Stage::Swiglu => ops.swiglu(&rounded(Stage::GateUp)),
            Stage::Down => sum(wide(at(Stage::Output)), product(&layer.down, Stage::Swiglu)),
            Stage::Embed | Stage::FinalNorm => unreachable!("{stage:?} is in no layer"),
        }
    }

    /// The logits that follow from a row's final norm.
    pub fn logits(&self, final_norm: &[f32]) -> Vec<f64> {
        one(self.operators.head(&[self.rounded(final_norm)]))
    }

    /// Elements of K, and of V, that a position has in a layer.
    fn stored_width(&self) -> usize {
        self.operators.model.config.kv_heads * self.operators.model.config.head_dim
    }

    fn index(&self, layer: usize, stage: Stage) -> usize {
        Site { layer: Some(layer), stage }.index(self.sites())
    }

    /// The values as 16 bits hold them.
    fn rounded(&self, values: &[f32]) -> Vec<f64> {
        values.iter().map(|x| self.operators.round(f64::from(*x))).collect()
    }
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|x| f64::from(*x)).collect()
}

/// The only row.
fn one(rows: Vec<Vec<f64>>) -> Vec<f64> {
    rows.into_iter().next().expect("one row went in")
}

fn sum(h: Vec<f64>, y: Vec<f64>) -> Vec<f64> {
    h.into_iter().zip(y).map(|(h, y)| h + y).collect()
}
