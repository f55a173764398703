//! Builds a [`Model`] from a file's tensors: checks every one before reading any, rounds each value once,
//! fuses, and puts q and k rows into the half-split order.

use std::collections::BTreeSet;

use super::layout::{Part, Slot};
use super::{Layer, Matrix16, Model, ModelConfig, Origin, WeightsError, digest, quoted};
use crate::contract::Dtype;

/// A file format with tensors by name.
pub(super) trait Source {
    /// The file that holds `tensor`, for messages.
    fn origin(&self, tensor: &str) -> &Origin;
    /// Names of all tensors.
    fn names(&self) -> Vec<String>;
    /// Name of a slot in this format.
    fn name(&self, slot: Slot) -> String;
    /// Row-major shape, `None` when there is no such tensor.
    fn shape(&self, tensor: &str) -> Option<Vec<u64>>;
    /// Hands the values of a tensor over in order, in slices of any length.
    fn read(
        &mut self,
        tensor: &str,
        each: &mut dyn FnMut(&[f32]) -> Result<(), WeightsError>,
    ) -> Result<(), WeightsError>;
    /// Whether q and k rows are stored in RoPE's interleaved order.
    fn interleaved(&self) -> bool;
}

/// Reads all tensors of `config`; `ignored` are names that may be there and mean nothing.
pub(super) fn assemble(
    source: &mut dyn Source,
    config: ModelConfig,
    dtype: Dtype,
    tied: bool,
    ignored: &[&str],
) -> Result<Model, WeightsError> {
    check(source, &config, tied, ignored)?;
    let mut layers = Vec::with_capacity(config.layers);
    for l in 0..config.layers {
        let mut get = |parts: &[Part]| {
            let slots: Vec<Slot> = parts.iter().map(|&p| Slot::Layer(l, p)).collect();
            matrix(source, &config, dtype, &slots)
        };
        let qk_norm = Part::all(config.family).any(|p| p == Part::QNorm);
        layers.push(Layer {
            attention_norm: get(&[Part::AttentionNorm])?.data,
            qkv: get(&[Part::Q, Part::K, Part::V])?,
            q_norm: if qk_norm { Some(get(&[Part::QNorm])?.data) } else { None },
            k_norm: if qk_norm { Some(get(&[Part::KNorm])?.data) } else { None },
            o: get(&[Part::O])?,
            ffn_norm: get(&[Part::FfnNorm])?.data,
            gate_up: get(&[Part::Gate, Part::Up])?,
            down: get(&[Part::Down])?,
        });
    }
    let mut get = |slot: Slot| matrix(source, &config, dtype, &[slot]);
    let embedding = get(Slot::Embedding)?;
    let final_norm = get(Slot::FinalNorm)?.data;
    let head = if tied { None } else { Some(get(Slot::Head)?) };
    let mut model =
        Model { config, dtype, embedding, layers, final_norm, head, digest: String::new() };
    model.digest = digest::of(&model);
    Ok(model)
}

/// Every tensor is there in its shape, and nothing is there that the forward pass would not use.
fn check(
    source: &dyn Source,
    config: &ModelConfig,
    tied: bool,
    ignored: &[&str],
) -> Result<(), WeightsError> {
    let mut used = BTreeSet::new();
    for slot in config.slots(tied) {
        let name = source.name(slot);
        let origin = source.origin(&name);
        let (rows, k) = config.shape(slot);
        let expected: Vec<u64> = rows.into_iter().chain([k]).map(|d| d as u64).collect();
        match source.shape(&name) {
            None => return Err(origin.tensor(&name, "missing")),
            Some(shape) if shape != expected => {
                let what = format!("shape {shape:?}, the configuration asks for {expected:?}");
                return Err(origin.tensor(&name, what));
            }
            Some(_) => used.insert(name),
        };
    }
    let unknown =
        |name: &&String| !used.contains(*name) && !ignored.iter().any(|end| name.ends_with(end));
    match source.names().iter().find(unknown) {
        Some(name) => Err(source.origin(name).unsupported(format!(
            "tensor {} is not part of a {:?} decoder",
            quoted(name),
            config.family
        ))),
        None => Ok(()),
    }
}

/// Stacks slots of equal width.
fn matrix(
    source: &mut dyn Source,
    config: &ModelConfig,
    dtype: Dtype,
    slots: &[Slot],
) -> Result<Matrix16, WeightsError> {
    let rows = |slot: Slot| config.shape(slot).0.unwrap_or(1);
    let n: usize = slots.iter().map(|&s| rows(s)).sum();
    let k = config.shape(slots[0]).1;
    let mut data: Vec<u16> = Vec::new();
    let first = source.name(slots[0]);
    data.try_reserve_exact(n * k)
        .map_err(|_| source.origin(&first).tensor(&first, format!("no memory for {n}x{k}")))?;
    for &slot in slots {
        let from = data.len();
        let name = source.name(slot);
        append(source, &name, dtype, &mut data)?;
        assert_eq!(data.len() - from, rows(slot) * k, "{name} was read in its checked shape");
        if source.interleaved() && matches!(slot, Slot::Layer(_, Part::Q | Part::K)) {
            half_split(&mut data[from..], config.head_dim, k);
        }
    }
    Ok(Matrix16 { n, k, data })
}

/// `r16` of every value; all must be finite before and after.
fn append(
    source: &mut dyn Source,
    name: &str,
    dtype: Dtype,
    data: &mut Vec<u16>,
) -> Result<(), WeightsError> {
    let origin = source.origin(name).clone();
    let from = data.len();
    source.read(name, &mut |values| {
        for &value in values {
            let bits = dtype.round(value);
            if !dtype.widen(bits).is_finite() {
                let e = data.len() - from;
                let what = if value.is_finite() {
                    format!("element {e} is {value:e}, too large for {}", dtype.name())
                } else {
                    format!("element {e} is not finite")
                };
                return Err(origin.tensor(name, what));
            }
            data.push(bits);
        }
        Ok(())
    })
}

/// Rows of each head from interleaved to half-split: row `j d/2 + i` is the file's row `2i + j`.
fn half_split(rows: &mut [u16], head_dim: usize, k: usize) {
    let mut from = vec![0; head_dim * k];
    for head in rows.chunks_exact_mut(head_dim * k) {
        from.copy_from_slice(head);
        for (row, to) in head.chunks_exact_mut(k).enumerate() {
            let (j, i) = (row / (head_dim / 2), row % (head_dim / 2));
            to.copy_from_slice(&from[(2 * i + j) * k..][..k]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interleaved_rows_become_half_split_within_each_head() {
        // Two heads of four rows, two columns; each value names its row in the file.
        let mut rows: Vec<u16> = (0..8).flat_map(|r| [r, r]).collect();
        half_split(&mut rows, 4, 2);
        let order: Vec<u16> = rows.chunks(2).map(|r| r[0]).collect();
        assert_eq!(order, [0, 2, 1, 3, 4, 6, 5, 7]);
    }
}
