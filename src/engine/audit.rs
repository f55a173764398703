//! Audits: what must be true of ledger, lists, tables and index, whatever the schedule. One function a rule.
//!
//! They look at the scheduler from outside, before each launch and after each step, and keep one thing of their own: how
//! many slots of each block were written since it was handed out. They decide nothing and change no result; a run that
//! breaks a rule ends with the rule's name.

use std::collections::BTreeMap;

use super::blocks::BlockId;
use super::deeds::Deed;
use super::flights::{Cargo, Flight};
use super::fork::BlockCopy;
use super::scheduler::{Scheduler, Slice};
use super::sequence::State;
use super::swap::SlotId;

/// A broken rule: its name, and the numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    rule: &'static str,
    detail: String,
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "audit \"{}\": {}", self.rule, self.detail)
    }
}

type Audited = Result<(), Finding>;

/// Refuses unless `condition` holds.
fn require(condition: bool, rule: &'static str, detail: impl FnOnce() -> String) -> Audited {
    if condition { Ok(()) } else { Err(Finding { rule, detail: detail() }) }
}

/// A launch as the audits see it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launch<'a> {
    pub(super) slices: &'a [Slice],
    /// The block tables that go to the device, one a slice.
    pub(super) tables: &'a [Vec<BlockId>],
    /// Whether it is a flight whose sequence has left: its blocks are in no table.
    pub(super) left: bool,
}

/// What the audits remember between boundaries.
#[derive(Clone, Debug)]
pub(super) struct Auditor {
    block_size: usize,
    /// Leading slots of each block that were written since it was handed out.
    written: Vec<usize>,
    /// The same of the blocks in host memory, by slot.
    swapped: BTreeMap<SlotId, usize>,
    /// References that the tables account for, reused.
    counted: Vec<u32>,
}

impl Auditor {
    /// Audits of a pool in which nothing was written.
    pub(super) fn new(blocks: u32, block_size: u32) -> Auditor {
        Auditor {
            block_size: block_size as usize,
            written: vec![0; blocks as usize],
            swapped: BTreeMap::new(),
            counted: vec![0; blocks as usize],
        }
    }

    /// Audits a launch, and notes what it writes.
    pub(super) fn before_launch(&mut self, s: &Scheduler, launch: Launch<'_>) -> Audited {
        for (slice, table) in launch.slices.iter().zip(launch.tables) {
            covered(s, slice, table, self.block_size)?;
            own_table(s, slice, table, launch.left)?;
            self.only_writer(s, slice, table)?;
            self.reads_written(s, slice, table)?;
            self.note_written(slice, table);
        }
        Ok(())
    }

    /// Audits the state after a step.
    pub(super) fn after_step(&mut self, s: &Scheduler) -> Audited {
        tables(s, self.block_size)?;
        self.ledger(s)?;
        swap_ledger(s)?;
        self.lists(s)?;
        self.published(s)
    }

    /// Follows what happens to blocks between two launches.
    pub(super) fn follow(&mut self, deed: &Deed) -> Audited {
        match deed {
            Deed::Poison { .. } => {}
            Deed::Read(read) => {
                for (j, block) in read.blocks.iter().enumerate() {
                    let needed = read.positions.saturating_sub(j * self.block_size);
                    self.stands(*block, needed.min(self.block_size), "a look")?;
                }
            }
            Deed::HandOut { block, .. } => self.written[*block as usize] = 0,
            Deed::Copy(BlockCopy { from, to }) => {
                self.stands(*from, 1, "a copy")?;
                self.written[*to as usize] = self.written[*from as usize];
            }
            Deed::SwapOut { blocks, slots } => {
                for block in blocks {
                    self.stands(*block, 1, "a swap")?;
                }
                let written = blocks.iter().map(|block| self.written[*block as usize]);
                self.swapped.extend(slots.iter().copied().zip(written));
            }
            Deed::SwapIn { slots, blocks } => {
                for (slot, block) in slots.iter().zip(blocks) {
                    let written = self.swapped.remove(slot);
                    require(written.is_some(), "unwritten read", || {
                        format!("a swap reads slot {slot}, to which nothing was written")
                    })?;
                    self.written[*block as usize] = written.unwrap_or(0);
                }
            }
        }
        Ok(())
    }

    /// The leading `needed` slots of a block were written before somebody reads them.
    fn stands(&self, block: BlockId, needed: usize, reader: &str) -> Audited {
        let written = self.written[block as usize];
        require(written >= needed, "unwritten read", || {
            format!("{reader} reads {needed} slots of block {block}, {written} are written")
        })
    }

    /// Audits what is written when copies land: it belongs to the flight's sequence alone or, if that has left, to the
    /// flight alone; what it is read from belongs to somebody still.
    pub(super) fn before_landing(&self, s: &Scheduler, flight: &Flight) -> Audited {
        let id = s.sequences[flight.index].id;
        let written = match &flight.cargo {
            Cargo::Chunk { copy, .. } => copy.iter().map(|copy| copy.to).collect(),
            Cargo::SwapIn { .. } => flight.blocks.clone(),
            Cargo::SwapOut { .. } => Vec::new(),
        };
        for block in written {
            let references = s.pool.references(block);
            require(references == 1 && !s.index.contains(block), "shared writer", || {
                format!("block {block} lands for {id}, with {references} references")
            })?;
            let owner = s.sequences.iter().position(|q| q.blocks.contains(&block));
            let expected = (!flight.left).then_some(flight.index);
            require(owner == expected, "write set", || {
                format!("block {block} lands for {id}, and is in the table of sequence {owner:?}")
            })?;
        }
        for block in flight.held() {
            require(s.pool.references(block) > 0, "ledger", || {
                format!("a flight of {id} holds block {block}, which is free")
            })?;
        }
        Ok(())
    }

    fn note_written(&mut self, slice: &Slice, table: &[BlockId]) {
        let end = slice.start + slice.len;
        let first = slice.start / self.block_size;
        for (j, block) in table.iter().enumerate().skip(first) {
            let slots = end.saturating_sub(j * self.block_size).min(self.block_size);
            let written = &mut self.written[*block as usize];
            *written = (*written).max(slots);
        }
    }

    /// A block that is written belongs to its writer alone, and nobody can find it.
    fn only_writer(&self, s: &Scheduler, slice: &Slice, table: &[BlockId]) -> Audited {
        let end = slice.start + slice.len;
        for &block in &table[slice.start / self.block_size..end.div_ceil(self.block_size)] {
            let references = s.pool.references(block);
            require(references == 1, "shared writer", || {
                format!(
                    "{} writes block {block}, which has {references} references",
                    name(s, slice)
                )
            })?;
            require(!s.index.contains(block), "shared writer", || {
                format!("{} writes block {block}, which can be found", name(s, slice))
            })?;
        }
        Ok(())
    }

    /// Every position that a launch reads was written before.
    fn reads_written(&self, s: &Scheduler, slice: &Slice, table: &[BlockId]) -> Audited {
        for (j, &block) in table[..slice.start.div_ceil(self.block_size)].iter().enumerate() {
            let needed = (slice.start - j * self.block_size).min(self.block_size);
            let written = self.written[block as usize];
            require(written >= needed, "unwritten read", || {
                format!(
                    "{} reads {needed} slots of block {block}, {written} are written",
                    name(s, slice)
                )
            })?;
        }
        Ok(())
    }

    /// References are those of the tables and of flights.
    fn ledger(&mut self, s: &Scheduler) -> Audited {
        self.counted.fill(0);
        let tables = s.sequences.iter().flat_map(|q| q.blocks.iter().copied());
        for block in tables.chain(s.flights.iter().flat_map(Flight::held)) {
            self.counted[block as usize] += 1;
        }
        for (block, counted) in self.counted.iter().enumerate() {
            let references = s.pool.references(block as BlockId);
            require(references == *counted, "ledger", || {
                format!("block {block} has {references} references, tables account for {counted}")
            })?;
        }
        Ok(())
    }

    /// Every block that nobody uses stands in one list, once: findable ones in the cache, the others in the free list.
    fn lists(&mut self, s: &Scheduler) -> Audited {
        self.counted.fill(0);
        for (list, cached) in s.pool.lists().into_iter().zip([false, true]) {
            for &block in list {
                self.counted[block as usize] += 1;
                require(s.index.contains(block) == cached, "free list", || {
                    let lists =
                        if cached { "cached but not findable" } else { "free but findable" };
                    format!("block {block} is {lists}")
                })?;
            }
        }
        for (block, stands) in self.counted.iter().enumerate() {
            let references = s.pool.references(block as BlockId);
            require(*stands == u32::from(references == 0), "free list", || {
                format!("block {block} has {references} references and stands {stands} times")
            })?;
        }
        Ok(())
    }

    /// What can be found was written to its last slot.
    fn published(&self, s: &Scheduler) -> Audited {
        for (block, written) in self.written.iter().enumerate() {
            let is_findable = s.index.contains(block as BlockId);
            require(!is_findable || *written == self.block_size, "published", || {
                format!("block {block} can be found, {written} of its slots are written")
            })?;
        }
        Ok(())
    }
}

fn name(s: &Scheduler, slice: &Slice) -> String {
    s.sequences[slice.index].id.to_string()
}

/// A table that goes to the device covers what is launched with blocks of the pool.
fn covered(s: &Scheduler, slice: &Slice, table: &[BlockId], block_size: usize) -> Audited {
    let blocks = s.pool.len();
    let stray = table.iter().find(|block| **block as usize >= blocks);
    require(stray.is_none(), "block table", || {
        format!("{} has block {stray:?} of {blocks}", name(s, slice))
    })?;
    let end = slice.start + slice.len;
    require(table.len() == end.div_ceil(block_size), "block table", || {
        format!("{} has {} blocks for {end} positions", name(s, slice), table.len())
    })
}

/// What is written belongs to the sequence that writes it; or, if that has left, to no sequence.
fn own_table(s: &Scheduler, slice: &Slice, table: &[BlockId], left: bool) -> Audited {
    if !left {
        let own = &s.sequences[slice.index].blocks;
        return require(own == table, "write set", || {
            format!("{} is launched with blocks {table:?}, its own are {own:?}", name(s, slice))
        });
    }
    let first = slice.start / s.block_size;
    for block in &table[first..] {
        let owner = s.sequences.iter().find(|q| q.blocks.contains(block));
        require(owner.is_none(), "write set", || {
            let owner = owner.map(|q| q.id.to_string()).unwrap_or_default();
            format!("{} has left and writes block {block} of {owner}", name(s, slice))
        })?;
    }
    Ok(())
}

/// Tables hold blocks of the pool, each once, and none past what was launched; who is not resident has none.
fn tables(s: &Scheduler, block_size: usize) -> Audited {
    let blocks = s.pool.len();
    for (i, q) in s.sequences.iter().enumerate() {
        let launched = if q.state == State::Running { s.launched(i) } else { 0 };
        require(q.blocks.len() == launched.div_ceil(block_size), "block table", || {
            let have = q.blocks.len();
            format!("{} has {have} blocks for {launched} positions", q.id)
        })?;
        for (j, block) in q.blocks.iter().enumerate() {
            let is_new = (*block as usize) < blocks && !q.blocks[..j].contains(block);
            require(is_new, "block table", || {
                format!("{} has blocks {:?} of {blocks}", q.id, q.blocks)
            })?;
        }
    }
    Ok(())
}

/// Each slot of host memory is taken if and only if one swapped sequence holds it, once, or what comes back from it is in
/// flight.
fn swap_ledger(s: &Scheduler) -> Audited {
    let mut held = s.sequences.iter().map(|q| q.slots.len()).sum::<usize>();
    let taken = s.swap.taken();
    for flight in &s.flights {
        let Cargo::SwapIn { slots } = &flight.cargo else { continue };
        held += slots.len();
        let free = slots.iter().find(|slot| taken.get(**slot as usize) != Some(&true));
        require(free.is_none(), "swap ledger", || {
            let id = s.sequences[flight.index].id;
            format!("{id} comes back from slot {free:?}, which is free")
        })?;
    }
    let count = taken.iter().filter(|taken| **taken).count();
    require(held == count, "swap ledger", || {
        format!("{count} slots are taken, requests account for {held}")
    })?;
    for q in s.sequences.iter().filter(|q| !q.slots.is_empty()) {
        let free = q.slots.iter().find(|slot| taken.get(**slot as usize) != Some(&true));
        require(free.is_none(), "swap ledger", || {
            format!("{} holds slot {free:?}, which is free", q.id)
        })?;
        require(q.state == State::Swapped, "swap ledger", || {
            format!("{} holds {} slots and is not swapped", q.id, q.slots.len())
        })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
