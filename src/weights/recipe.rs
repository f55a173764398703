//! Recipes: what a device needs to make the buffers of a synthetic model in place, so that no host holds them.

use super::config::{Family, ModelConfig};
use super::layout::{Part, Slot};
use super::synthetic::{Preset, Tensor, tensors};
use super::{Layer, Matrix16, Model, digest};
use crate::contract::Dtype;
use crate::contract::philox::key_of;

/// A preset with dtype and seed: a model that follows from these alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Synthetic {
    /// Shapes and gains.
    pub preset: Preset,
    /// Storage dtype.
    pub dtype: Dtype,
    /// Seed of the weights.
    pub seed: u64,
}

/// One buffer of a model: tensors of equal width, stacked.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// The tensors, first rows first.
    pub parts: Vec<Tensor>,
    /// Storage dtype.
    pub dtype: Dtype,
    /// Philox key: the seed.
    pub key: [u32; 2],
    /// The row of the tensor that each row is, where that is not itself; only with one part.
    pub rows: Option<Vec<u32>>,
}

impl Recipe {
    /// Rows.
    pub fn n(&self) -> usize {
        self.parts.iter().map(|p| p.n).sum()
    }

    /// Columns.
    pub fn k(&self) -> usize {
        self.parts.first().map_or(0, |p| p.k)
    }

    /// Makes all values on the host, row-major.
    pub fn values(&self) -> Vec<u16> {
        let mut data = Vec::with_capacity(self.n() * self.k());
        for part in &self.parts {
            part.append(self.dtype, self.key, &mut data);
        }
        if let Some(rows) = &self.rows {
            let k = self.k();
            let original = data.clone();
            for (to, from) in data.chunks_exact_mut(k).zip(rows) {
                to.copy_from_slice(&original[*from as usize * k..][..k]);
            }
        }
        data
    }

    /// The first values of [`Recipe::values`], at most a row of them.
    pub fn first(&self, count: usize) -> Vec<u16> {
        let Some(part) = self.parts.first() else { return Vec::new() };
        let row = self.rows.as_ref().map_or(0, |rows| rows[0] as usize);
        part.slice(self.dtype, self.key, row * part.k, count.min(part.k))
    }

    fn matrix(&self) -> Matrix16 {
        Matrix16 { n: self.n(), k: self.k(), data: self.values() }
    }
}

/// Recipes of a decoder layer: the fields of [`Layer`].
#[derive(Clone, Debug, PartialEq)]
pub struct LayerRecipes {
    /// Norm before attention.
    pub attention_norm: Recipe,
    /// `[q;k;v]`.
    pub qkv: Recipe,
    /// q norm (Qwen3).
    pub q_norm: Option<Recipe>,
    /// k norm (Qwen3).
    pub k_norm: Option<Recipe>,
    /// Output projection.
    pub o: Recipe,
    /// Norm before the feed-forward.
    pub ffn_norm: Recipe,
    /// `[gate;up]`.
    pub gate_up: Recipe,
    /// Down projection.
    pub down: Recipe,
}

impl Synthetic {
    /// Shapes and constants.
    pub fn config(&self) -> ModelConfig {
        self.preset.config()
    }

    fn recipe(&self, slots: &[Slot]) -> Recipe {
        let list = tensors(self.preset);
        Recipe {
            parts: slots.iter().map(|slot| list.tensor(*slot)).collect(),
            dtype: self.dtype,
            key: key_of(self.seed),
            rows: None,
        }
    }

    /// The embedding.
    pub fn embedding(&self) -> Recipe {
        self.recipe(&[Slot::Embedding])
    }

    /// The norm before the head.
    pub fn final_norm(&self) -> Recipe {
        self.recipe(&[Slot::FinalNorm])
    }

    /// The head, unless it is the embedding.
    pub fn head(&self) -> Option<Recipe> {
        if self.preset.tied() {
            return None;
        }
        let mut recipe = self.recipe(&[Slot::Head]);
        let rows: Vec<u32> = (0..recipe.n()).map(|id| self.preset.head_row(id) as u32).collect();
        let copies = rows.iter().enumerate().any(|(id, from)| id != *from as usize);
        recipe.rows = copies.then_some(rows);
        Some(recipe)
    }

    /// The buffers of a layer.
    pub fn layer(&self, layer: usize) -> LayerRecipes {
        let of = |parts: &[Part]| {
            let slots: Vec<Slot> = parts.iter().map(|p| Slot::Layer(layer, *p)).collect();
            self.recipe(&slots)
        };
        let head_norms = self.config().family == Family::Qwen3;
        LayerRecipes {
            attention_norm: of(&[Part::AttentionNorm]),
            qkv: of(&[Part::Q, Part::K, Part::V]),
            q_norm: head_norms.then(|| of(&[Part::QNorm])),
            k_norm: head_norms.then(|| of(&[Part::KNorm])),
            o: of(&[Part::O]),
            ffn_norm: of(&[Part::FfnNorm]),
            gate_up: of(&[Part::Gate, Part::Up]),
            down: of(&[Part::Down]),
        }
    }

    /// Every recipe with a name of its own: those of [`Model::tensors`], in another fixed order.
    pub fn recipes(&self) -> Vec<(String, Recipe)> {
        let mut all = vec![
            ("embedding".to_owned(), self.embedding()),
            ("final_norm".to_owned(), self.final_norm()),
        ];
        all.extend(self.head().map(|r| ("head".to_owned(), r)));
        for index in 0..self.config().layers {
            let l = self.layer(index);
            let layer = [
                ("attention_norm", Some(l.attention_norm)),
                ("qkv", Some(l.qkv)),
                ("q_norm", l.q_norm),
                ("k_norm", l.k_norm),
                ("o", Some(l.o)),
                ("ffn_norm", Some(l.ffn_norm)),
                ("gate_up", Some(l.gate_up)),
                ("down", Some(l.down)),
            ];
            let named =
                |(name, r): (&str, Option<Recipe>)| r.map(|r| (format!("layer.{index}.{name}"), r));
            all.extend(layer.into_iter().filter_map(named));
        }
        all
    }

    /// The digest that names the model in every artifact. For the small presets it is over the values, as for models
    /// from files; for those too large to make for a digest's sake it is over configuration and recipes, from which
    /// the values follow.
    pub fn digest(&self) -> String {
        if self.preset.is_large() {
            digest::of_recipes(&self.config(), self.dtype, &self.recipes())
        } else {
            self.model().digest
        }
    }

    /// Makes the model in host memory.
    pub fn model(&self) -> Model {
        let vector = |recipe: &Recipe| recipe.values();
        let config = self.config();
        let layers = (0..config.layers).map(|index| {
            let l = self.layer(index);
            Layer {
                attention_norm: vector(&l.attention_norm),
                qkv: l.qkv.matrix(),
                q_norm: l.q_norm.as_ref().map(vector),
                k_norm: l.k_norm.as_ref().map(vector),
                o: l.o.matrix(),
                ffn_norm: vector(&l.ffn_norm),
                gate_up: l.gate_up.matrix(),
                down: l.down.matrix(),
            }
        });
        let mut model = Model {
            embedding: self.embedding().matrix(),
            layers: layers.collect(),
            final_norm: vector(&self.final_norm()),
            head: self.head().map(|r| r.matrix()),
            config,
            dtype: self.dtype,
            digest: String::new(),
        };
        model.digest = if self.preset.is_large() { self.digest() } else { digest::of(&model) };
        model
    }
}

/// A model to put on a device: to be made there, or in host memory.
#[derive(Clone, Debug, PartialEq)]
pub enum Source<'m> {
    /// To be made in place.
    Synthetic(Synthetic),
    /// To be uploaded.
    Loaded(Box<Model>),
    /// The same, lent.
    Borrowed(&'m Model),
}

impl Source<'_> {
    /// Shapes and constants.
    pub fn config(&self) -> ModelConfig {
        match self {
            Source::Synthetic(synthetic) => synthetic.config(),
            Source::Loaded(model) => model.config.clone(),
            Source::Borrowed(model) => model.config.clone(),
        }
    }

    /// Storage dtype.
    pub fn dtype(&self) -> Dtype {
        match self {
            Source::Synthetic(synthetic) => synthetic.dtype,
            Source::Loaded(model) => model.dtype,
            Source::Borrowed(model) => model.dtype,
        }
    }

    /// Digest of configuration and weights.
    pub fn digest(&self) -> String {
        match self {
            Source::Synthetic(synthetic) => synthetic.digest(),
            Source::Loaded(model) => model.digest.clone(),
            Source::Borrowed(model) => model.digest.clone(),
        }
    }
}

impl<'m> From<&'m Model> for Source<'m> {
    fn from(model: &'m Model) -> Source<'m> {
        Source::Borrowed(model)
    }
}

impl From<Synthetic> for Source<'_> {
    fn from(synthetic: Synthetic) -> Self {
        Source::Synthetic(synthetic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recipes and tensors have the same names, and a recipe's values are the tensor's.
    #[test]
    fn recipes_are_those_of_the_tensors() {
        for preset in [Preset::Tiny, Preset::Small] {
            let synthetic = Synthetic { preset, dtype: Dtype::Bf16, seed: 3 };
            let model = synthetic.model();
            let mut recipes = synthetic.recipes();
            recipes.sort_by(|a, b| a.0.cmp(&b.0));
            let mut tensors: Vec<_> = model.tensors().collect();
            tensors.sort_by(|a, b| a.0.cmp(&b.0));
            assert_eq!(recipes.len(), tensors.len());
            for ((name, recipe), (other, values)) in recipes.iter().zip(tensors) {
                assert_eq!((name, &recipe.values()[..]), (&other, values), "{name}");
                assert_eq!(recipe.first(9), values[..9], "{name}");
            }
            assert_eq!(synthetic.digest(), model.digest);
        }
    }

    #[test]
    fn the_digest_of_a_large_preset_follows_dtype_and_seed() {
        let preset = Preset::Qwen3_06B;
        let of = |dtype, seed| Synthetic { preset, dtype, seed }.digest();
        let base = of(Dtype::Bf16, 1);
        assert_eq!(base, of(Dtype::Bf16, 1));
        assert_ne!(base, of(Dtype::F16, 1));
        assert_ne!(base, of(Dtype::Bf16, 1 << 32 | 1));
    }
}
