//! Launches of the split attention.

use super::compile::Program;
use super::context::{Arg, Buffer, Pool, Shape};
use super::rows::check_layout;
use super::{Cuda, CudaKv, require, require_len};
use crate::device::{AttentionLaunch, DeviceError, Heads, Layout, Splits};

/// Shared memory of a block without opting in to more, in bytes.
const SHARED_BYTES_MAX: usize = 48 << 10;

impl Cuda {
    /// See [`crate::device::Device::attention`].
    #[allow(clippy::too_many_arguments)]
    pub(super) fn attend(
        &mut self,
        launch: AttentionLaunch,
        layer: usize,
        heads: Heads,
        layout: &Layout,
        q: &Buffer<u16>,
        kv: &CudaKv,
        out: &Buffer<u16>,
    ) -> Result<(), DeviceError> {
        let tile = self.contract.constants.tile;
        let split = launch.split;
        check_layout("attention", layer, heads, layout, kv)?;
        require(
            tile > 0 && tile.is_multiple_of(16) && split > 0 && split.is_multiple_of(tile),
            || format!("attention: splits of {split} positions over tiles of {tile}"),
        )?;
        let shared = 4 * tile as usize * (heads.dim + 8);
        require(shared <= SHARED_BYTES_MAX, || {
            format!(
                "attention: tiles of {tile} x {} need {shared} bytes of shared memory",
                heads.dim
            )
        })?;
        let width = heads.q * heads.dim;
        require_len("attention", "q", q.len(), layout.rows() * width)?;
        require_len("attention", "out", out.len(), layout.rows() * width)?;
        if layout.rows() == 0 {
            return Ok(());
        }
        self.use_layout(layout)?;
        let counts = self.counters.arg(&self.context)?;
        let tap = self.tap(layout.rows(), width)?;
        let on_device = self.layout.as_mut().expect("just made");
        let splits = on_device.splits_max(split);
        let (works, blocks) = on_device.works(&self.context, (heads.q / heads.kv) as u32)?;
        let works = works.arg();
        let on_device = &*on_device;
        let (k, v) = kv.layer(layer);
        let pool = Pool {
            k: k.address(),
            v: v.address(),
            tables: on_device.tables.arg().address(),
            size: layout.block_size,
            heads: heads.kv as u32,
        };
        let program = Program::attention(self.contract.dtype, tile, heads.dim as u32);
        let q_heads = Arg::U32(heads.q as u32);
        let mut args = vec![
            q.arg(),
            Arg::Pool(pool),
            on_device.sequences.arg(),
            works,
            q_heads,
            Arg::U32(split),
        ];
        match launch.splits {
            Splits::Walk => {
                args.extend([out.arg(), tap.arg(), counts]);
                let shape = Shape::new((blocks, heads.kv, 1), 128);
                // SAFETY: attention_walk's parameters; the layout was checked against the pool, q, out and the
                // tap have a row for each of its rows.
                unsafe { self.context.launch(program, "attention_walk", shape, &args) }?;
            }
            Splits::Parallel => {
                let rows = layout.rows();
                let parked =
                    self.context.alloc::<f32>(rows * heads.q * splits * (heads.dim + 2))?;
                args.extend([Arg::U32(splits as u32), parked.arg(), counts]);
                let shape = Shape::new((blocks, heads.kv, splits), 128);
                // SAFETY: attention_parallel's parameters, as above; the workspace has an entry for each
                // (row, q head, split).
                unsafe { self.context.launch(program, "attention_parallel", shape, &args) }?;
                let args = [
                    parked.arg(),
                    on_device.rows.arg(),
                    q_heads,
                    Arg::U32(split),
                    Arg::U32(splits as u32),
                    out.arg(),
                    tap.arg(),
                    counts,
                ];
                let shape = Shape::new((rows, heads.q, 1), heads.dim as u32);
                // SAFETY: attention_fold's parameters; it reads what the kernel before it wrote.
                unsafe { self.context.launch(program, "attention_fold", shape, &args) }?;
            }
        }
        self.log_tap(tap)
    }
}
