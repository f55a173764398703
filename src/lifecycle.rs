//! The lifecycle of a sequence: the one declared table of states, events and transitions.
//!
//! A *sequence* is a sample of a request. The engine reports each event of each sequence with the state after it
//! ([`record::life`](crate::record::life)); coverage counts transitions and n-grams of events against what a search over
//! this table calls feasible. The table is checked both ways against exhaustive exploration of the real scheduler
//! (`engine/explore`): what the scheduler does is in the table, and what the table allows, the scheduler does.
//!
//! The field's coarse states (waiting, prefilling, decoding, preempted, swapped, finished, aborted) are split where a coarse
//! one would make impossible n-grams look feasible: blocks are published and outputs finished only right after a
//! computation, a prefix is served only right after an admission, a sequence that has begun to make room computes next,
//! or goes itself, and a block that was begun by a decode is shared with nobody, so that no write to it copies it.

use serde::{Deserialize, Serialize};

/// Where a sequence stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum State {
    /// Not arrived: no event yet.
    Absent,
    /// Arrived, never admitted.
    Waiting,
    /// Waiting, being offered: a block of its prefix was evicted, and it is admitted next.
    Offered,
    /// Resident; the prefix cache has not answered and nothing was computed in this residency.
    Admitted,
    /// The same, and no sibling was there to be forked from.
    Searched,
    /// Resident with nothing computed, after the schedule refused a prefix hit.
    Cold,
    /// Resident with cached blocks, nothing computed in this residency.
    Attached,
    /// Resident, its known tokens not all computed; nothing to publish.
    Prefilling,
    /// The same, right after a chunk.
    Chunked,
    /// Resident with nothing computed, having taken blocks for its first chunk.
    ColdRoom,
    /// Resident, having taken a block to copy the one that it is about to write to.
    PrefillClaim,
    /// Resident, having taken blocks for its next chunk.
    PrefillRoom,
    /// Resident, right after a computation that drew a token and did not begin a block by a decode.
    Drawn,
    /// Resident, right after a decode that began a block. No fork attaches that block, which holds nothing of the prompt.
    Begun,
    /// Resident, after the full blocks of a computation that drew a token were published.
    Published,
    /// Resident, every known token but the last computed; swapped in since it drew.
    Decoding,
    /// Decoding, having taken a block to copy the one that it is about to write to.
    DecodeClaim,
    /// Decoding, having copied the block that it is about to write to.
    DecodeCopied,
    /// Decoding, having taken the block that its next token begins.
    DecodeRoom,
    /// Lost its residency; will compute its tokens again.
    Preempted,
    /// Preempted, being offered: a block of its prefix was evicted, and it is admitted next.
    Reoffered,
    /// In host memory, its known tokens not all computed.
    SwappedPrefill,
    /// The same, taking blocks to come back to.
    ReturningPrefill,
    /// In host memory, every known token but the last computed.
    SwappedDecode,
    /// The same, taking blocks to come back to.
    ReturningDecode,
    /// Done.
    Finished,
    /// Ended by the schedule.
    Aborted,
}

/// What happens to a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Event {
    /// It is waiting for admission from now on.
    Arrive,
    /// It becomes resident for the first time.
    Admit,
    /// The schedule refuses an admission that would have been granted.
    AdmitRefused,
    /// Cached blocks were attached.
    CacheHit,
    /// Blocks were findable, and the schedule let it have none of them.
    CacheRefused,
    /// A chunk of its known tokens was computed.
    Chunk,
    /// Its newest token was computed, all others being there.
    Decode,
    /// It lost its residency and its blocks.
    PreemptRecompute,
    /// Its blocks moved to host memory.
    PreemptSwap,
    /// It becomes resident again, to compute its tokens again.
    Resume,
    /// Its blocks came back from host memory.
    SwapIn,
    /// A cached block was evicted for it.
    Evict,
    /// A shared block was copied before its first write to it.
    CowCopy,
    /// It attached a sibling's blocks.
    Fork,
    /// Blocks of it became findable.
    Publish,
    /// It drew an end-of-sequence token.
    FinishEos,
    /// It produced a stop token or stop string.
    FinishStop,
    /// It generated all that was asked for.
    FinishLength,
    /// The schedule ended it.
    Abort,
}

/// All states with the names that reports show.
pub const STATES: [(State, &str); 27] = {
    use State::*;
    [
        (Absent, "absent"),
        (Waiting, "waiting"),
        (Offered, "offered"),
        (Admitted, "admitted"),
        (Searched, "searched"),
        (Cold, "cold"),
        (Attached, "attached"),
        (Prefilling, "prefilling"),
        (Chunked, "chunked"),
        (ColdRoom, "cold_room"),
        (PrefillClaim, "prefill_claim"),
        (PrefillRoom, "prefill_room"),
        (Drawn, "drawn"),
        (Begun, "begun"),
        (Published, "published"),
        (Decoding, "decoding"),
        (DecodeClaim, "decode_claim"),
        (DecodeCopied, "decode_copied"),
        (DecodeRoom, "decode_room"),
        (Preempted, "preempted"),
        (Reoffered, "reoffered"),
        (SwappedPrefill, "swapped_prefill"),
        (ReturningPrefill, "returning_prefill"),
        (SwappedDecode, "swapped_decode"),
        (ReturningDecode, "returning_decode"),
        (Finished, "finished"),
        (Aborted, "aborted"),
    ]
};

/// All events with the names that reports show.
pub const EVENTS: [(Event, &str); 19] = {
    use Event::*;
    [
        (Arrive, "arrive"),
        (Admit, "admit"),
        (AdmitRefused, "admit_refused"),
        (CacheHit, "cache_hit"),
        (CacheRefused, "cache_refused"),
        (Chunk, "chunk"),
        (Decode, "decode"),
        (PreemptRecompute, "preempt_recompute"),
        (PreemptSwap, "preempt_swap"),
        (Resume, "resume"),
        (SwapIn, "swap_in"),
        (Evict, "evict"),
        (CowCopy, "cow_copy"),
        (Fork, "fork"),
        (Publish, "publish"),
        (FinishEos, "finish_eos"),
        (FinishStop, "finish_stop"),
        (FinishLength, "finish_length"),
        (Abort, "abort"),
    ]
};

impl State {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        STATES[self as usize].1
    }
}

impl Event {
    /// Name in reports and JSON.
    pub fn name(self) -> &'static str {
        EVENTS[self as usize].1
    }
}

/// A row of the table: from any of these states, by this event, to that state.
struct Row(&'static [State], Event, State);

/// Resident with at least one position computed, in a prefill.
const PREFILL: &[State] = &[State::Attached, State::Prefilling, State::Chunked, State::PrefillRoom];
/// Resident with nothing computed.
const COLD: &[State] = &[State::Admitted, State::Searched, State::Cold, State::ColdRoom];
/// Resident, decoding. What a claim is made for follows at once, so claims are left out.
const DECODE: &[State] = &[
    State::Drawn,
    State::Begun,
    State::Published,
    State::Decoding,
    State::DecodeCopied,
    State::DecodeRoom,
];

/// Every transition there is. A state may have two rows for one event: a chunk may leave more to compute, or draw. A
/// resident sequence whose chunk is in flight keeps its state until the chunk lands, or it leaves.
const TABLE: &[Row] = {
    use Event::*;
    use State::*;
    &[
        // In: from outside, with what the prefix cache or a sibling has.
        Row(&[Absent], Arrive, Waiting),
        Row(&[Waiting], AdmitRefused, Waiting),
        Row(&[Waiting, Offered], Evict, Offered),
        Row(&[Waiting], Admit, Admitted),
        Row(&[Offered], Admit, Searched),
        Row(&[Preempted], AdmitRefused, Preempted),
        Row(&[Preempted, Reoffered], Evict, Reoffered),
        Row(&[Preempted], Resume, Admitted),
        Row(&[Reoffered], Resume, Searched),
        Row(&[Admitted, Searched], CacheHit, Attached),
        Row(&[Admitted, Searched], CacheRefused, Cold),
        Row(&[Admitted], Fork, Prefilling),
        Row(&[SwappedPrefill], AdmitRefused, SwappedPrefill),
        Row(&[SwappedPrefill, ReturningPrefill], Evict, ReturningPrefill),
        Row(&[SwappedPrefill, ReturningPrefill], SwapIn, Prefilling),
        Row(&[SwappedDecode], AdmitRefused, SwappedDecode),
        Row(&[SwappedDecode, ReturningDecode], Evict, ReturningDecode),
        Row(&[SwappedDecode, ReturningDecode], SwapIn, Decoding),
        // Room for a chunk, then the chunk.
        Row(COLD, Evict, ColdRoom),
        Row(&[Prefilling, Chunked], Evict, PrefillClaim),
        Row(&[Prefilling, Chunked, PrefillClaim], CowCopy, PrefillRoom),
        Row(PREFILL, Evict, PrefillRoom),
        Row(COLD, Chunk, Chunked),
        Row(COLD, Chunk, Drawn),
        Row(PREFILL, Chunk, Chunked),
        Row(PREFILL, Chunk, Drawn),
        Row(&[Chunked], Publish, Prefilling),
        // Room for a token, then the token.
        Row(&[Drawn, Published, Decoding], Evict, DecodeClaim),
        Row(&[Drawn, Published, Decoding, DecodeClaim], CowCopy, DecodeCopied),
        Row(&[Drawn, Begun, Published, Decoding], Evict, DecodeRoom),
        Row(&[Drawn, Begun, Published, Decoding, DecodeCopied], Decode, Drawn),
        Row(&[Drawn, Begun, Published, Decoding, DecodeRoom], Decode, Begun),
        Row(&[Drawn, Begun], Publish, Published),
        Row(&[Drawn, Begun, Published], FinishEos, Finished),
        Row(&[Drawn, Begun, Published], FinishStop, Finished),
        Row(&[Drawn, Begun, Published], FinishLength, Finished),
        // Out.
        Row(COLD, PreemptRecompute, Preempted),
        Row(PREFILL, PreemptRecompute, Preempted),
        Row(DECODE, PreemptRecompute, Preempted),
        Row(PREFILL, PreemptSwap, SwappedPrefill),
        Row(DECODE, PreemptSwap, SwappedDecode),
        Row(COLD, Abort, Aborted),
        Row(PREFILL, Abort, Aborted),
        Row(DECODE, Abort, Aborted),
        Row(&[Waiting, Preempted, SwappedPrefill, SwappedDecode], Abort, Aborted),
    ]
};

/// One transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Transition {
    /// State before.
    pub from: State,
    /// Event.
    pub event: Event,
    /// State after.
    pub to: State,
}

impl std::fmt::Display for Transition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.from.name(), self.event.name(), self.to.name())
    }
}

/// All transitions of the table, each once, ascending.
pub fn transitions() -> Vec<Transition> {
    let each =
        |row: &'static Row| row.0.iter().map(|&from| Transition { from, event: row.1, to: row.2 });
    let mut all: Vec<Transition> = TABLE.iter().flat_map(each).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Transitions that can be reached from [`State::Absent`] by events that satisfy `has`, ascending.
pub fn reachable(has: impl Fn(Event) -> bool) -> Vec<Transition> {
    let all = transitions();
    let mut states = vec![State::Absent];
    let mut at = 0;
    while let Some(&state) = states.get(at) {
        for t in all.iter().filter(|t| t.from == state && has(t.event)) {
            if !states.contains(&t.to) {
                states.push(t.to);
            }
        }
        at += 1;
    }
    all.into_iter().filter(|t| states.contains(&t.from) && has(t.event)).collect()
}

/// Runs of `N` consecutive events of one sequence that are feasible, given the feasible transitions; ascending.
pub fn grams<const N: usize>(transitions: &[Transition]) -> Vec<[Event; N]> {
    let mut found = Vec::new();
    let mut run = Vec::with_capacity(N);
    for t in transitions {
        extend(transitions, t, &mut run, &mut found);
    }
    found.sort_unstable();
    found.dedup();
    found
}

fn extend<const N: usize>(
    transitions: &[Transition],
    t: &Transition,
    run: &mut Vec<Event>,
    found: &mut Vec<[Event; N]>,
) {
    run.push(t.event);
    match <[Event; N]>::try_from(&run[..]) {
        Ok(gram) => found.push(gram),
        Err(_) => {
            for next in transitions.iter().filter(|next| next.from == t.to) {
                extend(transitions, next, run, found);
            }
        }
    }
    run.pop();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_and_event_stands_at_its_own_index() {
        for (i, (state, name)) in STATES.iter().enumerate() {
            assert_eq!((*state as usize, state.name()), (i, *name));
        }
        for (i, (event, name)) in EVENTS.iter().enumerate() {
            assert_eq!((*event as usize, event.name()), (i, *name));
        }
    }

    #[test]
    fn every_state_is_reachable_and_only_the_ends_are_dead() {
        let all = transitions();
        assert_eq!(reachable(|_| true), all);
        for (state, _) in STATES {
            assert!(state == State::Absent || all.iter().any(|t| t.to == state), "{state:?}");
            let is_end = matches!(state, State::Finished | State::Aborted);
            assert_eq!(all.iter().all(|t| t.from != state), is_end, "{state:?}");
        }
        for (event, name) in EVENTS {
            assert!(all.iter().any(|t| t.event == event), "{name}");
        }
    }

    #[test]
    fn grams_are_paths_of_the_table() {
        let all = transitions();
        let pairs = grams::<2>(&all);
        assert!(pairs.contains(&[Event::Arrive, Event::Admit]));
        assert!(!pairs.contains(&[Event::Evict, Event::Publish]));
        // A subject without swap has none of its grams.
        let less = reachable(|e| e != Event::PreemptSwap);
        assert!(less.iter().all(|t| t.event != Event::SwapIn));
        assert!(grams::<3>(&less).len() < grams::<3>(&all).len());
        assert_eq!(grams::<1>(&all).len(), EVENTS.len());
    }
}
