//! X1 over synthetic weights: those that a device makes in place are those that the host makes.

use super::{Key, Ledger, Pair};
use crate::device::{Device, DeviceError};
use crate::weights::Synthetic;

/// Which tensors of a model to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// Every one.
    All,
    /// The embedding, the final norm, the head, and the first, middle and last layer.
    Layers,
}

impl Sample {
    fn takes(self, name: &str, layers: usize) -> bool {
        let layer = name.strip_prefix("layer.").and_then(|rest| rest.split('.').next());
        match (self, layer.and_then(|l| l.parse::<usize>().ok())) {
            (Sample::Layers, Some(layer)) => [0, layers / 2, layers - 1].contains(&layer),
            _ => true,
        }
    }
}

/// Compares the tensors of a model, each made on both devices as a matrix, and norms also as a vector.
pub fn compare<A: Device, B: Device>(
    pair: &mut Pair<A, B>,
    synthetic: &Synthetic,
    sample: Sample,
) -> Result<Ledger, DeviceError> {
    let key = Key::new("weights", synthetic.preset.name(), synthetic.dtype);
    let layers = synthetic.config().layers;
    let mut ledger = Ledger::default();
    for (name, recipe) in synthetic.recipes() {
        if !sample.takes(&name, layers) {
            continue;
        }
        let matrix = pair.host.make_matrix(&recipe)?;
        let here = pair.host.read_matrix(&matrix)?;
        let matrix = pair.device.make_matrix(&recipe)?;
        let there = pair.device.read_matrix(&matrix)?;
        ledger.t16(&key, &here, &there, || name.clone());
        if recipe.n() == 1 {
            let vector = pair.device.make(&recipe)?;
            let there = pair.device.read_t16(&vector, recipe.k())?;
            ledger.t16(&key, &here, &there, || format!("{name} as a vector"));
        }
    }
    Ok(ledger)
}

#[cfg(test)]
mod tests {
    use super::super::contract;
    use super::*;
    use crate::contract::{Constants, Dtype, MatrixUnit};
    use crate::device::host::Host;
    use crate::weights::Preset;

    /// Goal: a matrix reads back as it was made, and every tensor is compared. Method: the host with itself.
    #[test]
    fn every_element_of_tiny_is_compared() {
        let host = || Host::new(contract(MatrixUnit::SM90, Dtype::Bf16, Constants::TINY));
        let mut pair = Pair { host: host(), device: host() };
        let synthetic = Synthetic { preset: Preset::Tiny, dtype: Dtype::Bf16, seed: 1 };
        let ledger = compare(&mut pair, &synthetic, Sample::All).unwrap();
        let model = synthetic.model();
        let elements: usize = model.tensors().map(|(_, values)| values.len()).sum();
        assert!(ledger.held() && ledger.fewest() > elements as u64, "{ledger}");
        for (name, recipe) in synthetic.recipes() {
            let matrix = pair.host.make_matrix(&recipe).unwrap();
            let values = pair.host.read_matrix(&matrix).unwrap();
            let (_, expected) = model.tensors().find(|(other, _)| *other == name).unwrap();
            assert_eq!(values, expected, "{name}");
        }
    }

    #[test]
    fn a_sample_leaves_out_layers_only() {
        assert!(Sample::Layers.takes("embedding", 28));
        assert!(Sample::Layers.takes("layer.27.qkv", 28));
        assert!(!Sample::Layers.takes("layer.7.qkv", 28));
        assert!(Sample::All.takes("layer.7.qkv", 28));
    }
}
