//! The scheduler's whole state, written to the trajectory at every boundary.

use crate::record::{Finish, TrajectoryHasher};
use crate::workload::SampleId;

use super::flights::{Cargo, Flight};
use super::scheduler::Scheduler;
use super::sequence::State;

impl Scheduler {
    /// Writes the whole state to the trajectory.
    pub(super) fn hash_into(&self, hasher: &mut TrajectoryHasher) {
        hasher.tag("boundary");
        hasher.u64(self.boundary);
        for sequence in &self.sequences {
            hasher.tag("sequence");
            let state = match sequence.state {
                State::Future => 0,
                State::Waiting => 1,
                State::Running => 2,
                State::Finished(Finish::Eos) => 3,
                State::Finished(Finish::Length) => 4,
                State::Finished(Finish::Undecided) => 5,
                State::Finished(Finish::Aborted) => 6,
                State::Swapped => 7,
                State::Finished(Finish::Stop) => 8,
            };
            let numbers = [
                sequence.id.uid,
                sequence.id.sample.into(),
                state,
                sequence.computed as u64,
                sequence.indexed as u64,
                sequence.residency.into(),
                sequence.offers.into(),
                sequence.arrival,
                sequence.offer_at,
                sequence.step_at,
                sequence.rank.map_or(u64::MAX, u64::from),
                sequence.ranked_by.is_some().into(),
                sequence.victim.is_some().into(),
                sequence.row.map_or(u64::MAX, |r| r as u64),
                sequence.key[0].into(),
                sequence.key[1].into(),
                sequence.namespace.into(),
                sequence.forked.into(),
            ];
            hasher.list(numbers.into_iter());
            hasher.list(sequence.blocks.iter().copied());
            hasher.list(sequence.slots.iter().copied());
            hasher.list(sequence.evicted.iter().map(|j| *j as u64));
            hasher.list(sequence.tokens.iter().copied());
            hasher.list(sequence.text.iter().copied());
        }
        self.pool.hash_into(hasher);
        hasher.tag("swap");
        hasher.list(self.swap.free());
        hasher.tag("flights");
        for flight in &self.flights {
            let Flight { index, cargo, blocks, lands_at, left } = flight;
            let SampleId { uid, sample } = self.sequences[*index].id;
            hasher.list([uid, sample.into(), *lands_at, (*left).into()].into_iter());
            hasher.list(blocks.iter().copied());
            match cargo {
                Cargo::Chunk { slice, copy } => {
                    hasher.tag("chunk");
                    hasher.list([slice.start as u64, slice.len as u64].into_iter());
                    let copied = copy.map(|copy| [copy.from, copy.to]);
                    hasher.list(copied.into_iter().flatten().collect::<Vec<_>>().into_iter());
                }
                Cargo::SwapOut { slots } => {
                    hasher.tag("swap_out");
                    hasher.list(slots.iter().copied());
                }
                Cargo::SwapIn { slots } => {
                    hasher.tag("swap_in");
                    hasher.list(slots.iter().copied());
                }
            }
        }
        self.index.hash_into(hasher);
        hasher.tag("intents");
        hasher.list(self.deviations.state());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::explore::{carry_out, scheduler};
    use crate::schedule::{Act, Intent, Mark, PreemptKind, Schedule};
    use crate::workload::{Request, Workload};

    fn hash(scheduler: &Scheduler) -> String {
        let mut hasher = TrajectoryHasher::new(&[]);
        scheduler.hash_into(&mut hasher);
        hasher.close();
        hasher.finish().hash()
    }

    /// One request in host memory, one with a chunk in flight, one that waits.
    fn busy() -> Scheduler {
        let prompt = |uid| (0..9).map(|t| 10 * uid as u32 + t).collect::<Vec<u32>>();
        let request = |uid| Request::new(uid, prompt(uid), 4);
        let workload = Workload { requests: [1, 2, 3].map(request).into() };
        let at = |uid, tokens, act| Intent {
            uid,
            sample: 0,
            mark: Mark::Computed { residency: 1, tokens },
            act,
        };
        let schedule = Schedule {
            intents: vec![
                at(1, 9, Act::Preempt { kind: PreemptKind::Swap, away: 9 }),
                at(2, 9, Act::Land { late: 9 }),
                Intent {
                    uid: 3,
                    sample: 0,
                    mark: Mark::Offer { n: 1 },
                    act: Act::Hold { steps: 9 },
                },
            ],
        };
        let mut scheduler = scheduler([4, 12, 4], &workload, &schedule);
        for _ in 0..3 {
            let step = scheduler.boundary();
            carry_out(&mut scheduler, &step, None);
        }
        assert_eq!(scheduler.sequences[0].state, State::Swapped);
        assert_eq!((scheduler.flights.len(), scheduler.flights[0].index), (1, 1));
        assert_eq!(scheduler.sequences[2].state, State::Waiting);
        scheduler
    }

    /// Goal: a replay that goes another way in anything is seen. Method: any one component is altered, and the hash of
    /// the state is another one, different for each.
    #[test]
    fn any_one_component_of_the_state_changes_the_hash() {
        type Alter = (&'static str, fn(&mut Scheduler));
        let alterations: Vec<Alter> = vec![
            ("nothing", |_| ()),
            ("boundary", |s| s.boundary += 1),
            ("uid", |s| s.sequences[2].id.uid = 4),
            ("sample", |s| s.sequences[2].id.sample = 1),
            ("state", |s| s.sequences[2].state = State::Future),
            ("computed", |s| s.sequences[1].computed -= 1),
            ("indexed", |s| s.sequences[1].indexed += 1),
            ("residency", |s| s.sequences[1].residency += 1),
            ("offers", |s| s.sequences[2].offers += 1),
            ("arrival", |s| s.sequences[2].arrival += 1),
            ("next offer", |s| s.sequences[2].offer_at += 1),
            ("next step", |s| s.sequences[1].step_at += 1),
            ("rank", |s| s.sequences[1].rank = Some(0)),
            ("row", |s| s.sequences[1].row = Some(7)),
            ("key", |s| s.sequences[1].key[0] ^= 1),
            ("second word of the key", |s| s.sequences[1].key[1] ^= 1),
            ("namespace", |s| s.sequences[1].namespace += 1),
            ("forked", |s| s.sequences[1].forked = true),
            ("block table", |s| s.sequences[1].blocks.swap(0, 1)),
            ("slots", |s| s.sequences[0].slots.swap(0, 1)),
            ("evicted", |s| _ = s.sequences[1].evicted.insert(0)),
            ("tokens", |s| s.sequences[1].tokens[0] += 1),
            ("text", |s| s.sequences[1].text.push(0)),
            ("references", |s| assert!(s.pool.share(s.sequences[1].blocks[0]))),
            ("free list", |s| _ = s.pool.allocate(0)),
            ("free slots", |s| s.swap.give_back(&s.sequences[0].slots[..1])),
            ("no flight", |s| s.flights.clear()),
            ("blocks of a flight", |s| s.flights[0].blocks.swap(0, 1)),
            ("landing", |s| s.flights[0].lands_at += 1),
            ("left", |s| s.flights[0].left = true),
            ("chunk in flight", |s| match &mut s.flights[0].cargo {
                Cargo::Chunk { slice, .. } => slice.len += 1,
                other => panic!("{other:?}"),
            }),
            ("index", |s| assert!(s.index.remove(s.sequences[1].blocks[0]).is_some())),
        ];
        let mut seen = std::collections::BTreeMap::new();
        for (name, alter) in alterations {
            let mut scheduler = busy();
            alter(&mut scheduler);
            if let Some(other) = seen.insert(hash(&scheduler), name) {
                panic!("{name} hashes like {other}");
            }
        }
    }
}
