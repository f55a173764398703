//! Weight matrices: panels of eight output columns, k-major, two bytes a weight. A small matrix also keeps its
//! decoded panels, six bytes a weight more: a single row would spend half its time on decoding.

use super::{DeviceError, allocate, require};
use crate::contract::matrix_unit::{COLUMNS, Decoded, GROUP, Unit};

/// Most weights of a matrix that keeps its decoded panels: all of `tiny`, which then fits a core's L2.
const RESIDENT_MAX: usize = 1 << 15;

/// A weight matrix `[n][k]`, stored as `[n/8][k][8]`; n is padded to 8 and k to 16 with +0.
#[derive(Clone, Debug)]
pub struct HostMatrix {
    n: usize,
    k: usize,
    k_padded: usize,
    data: Vec<u16>,
    resident: Option<Decoded>,
}

impl HostMatrix {
    /// Stores row-major `values`.
    pub(super) fn new(
        unit: &Unit,
        n: usize,
        k: usize,
        values: &[u16],
    ) -> Result<HostMatrix, DeviceError> {
        require(n > 0 && k > 0 && values.len() == n * k, || {
            format!("upload_matrix: {} values for {n} x {k}", values.len())
        })?;
        let k_padded = k.next_multiple_of(GROUP);
        let mut data = allocate(n.next_multiple_of(COLUMNS) * k_padded, 0)?;
        for (i, row) in values.chunks_exact(k).enumerate() {
            let panel = &mut data[i / COLUMNS * COLUMNS * k_padded..][..COLUMNS * k_padded];
            for (slots, value) in panel.chunks_exact_mut(COLUMNS).zip(row) {
                slots[i % COLUMNS] = *value;
            }
        }
        let resident = (data.len() <= RESIDENT_MAX).then(|| {
            let mut decoded = Decoded::default();
            decoded.reserve(data.len());
            let (values, exponents) = decoded.slots(0..data.len());
            unit.decode_panel(&data, values, exponents);
            decoded
        });
        Ok(HostMatrix { n, k, k_padded, data, resident })
    }

    /// Output features.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Input features, without padding.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Input features, padded to 16.
    pub(super) fn k_padded(&self) -> usize {
        self.k_padded
    }

    /// Number of panels.
    pub(super) fn panels(&self) -> usize {
        self.n.div_ceil(COLUMNS)
    }

    /// Elements `k` of a panel, `[k][8]`.
    pub(super) fn panel(&self, panel: usize, k: std::ops::Range<usize>) -> &[u16] {
        let start = panel * COLUMNS * self.k_padded;
        &self.data[start + k.start * COLUMNS..start + k.end * COLUMNS]
    }

    /// All panels decoded, one after the other, if the matrix is small.
    pub(super) fn resident(&self) -> Option<&Decoded> {
        self.resident.as_ref()
    }

    /// Row `i` of `[n][k]`, element by element.
    pub(super) fn row(&self, i: usize) -> impl Iterator<Item = u16> + '_ {
        self.panel(i / COLUMNS, 0..self.k).chunks_exact(COLUMNS).map(move |c| c[i % COLUMNS])
    }
}
