//! Turns: which case a thread judges next, and results folded in the order of case numbers.
//!
//! The sum is the one that a single thread gives, whatever the order in which threads finish: everything after the first
//! result that ends the turns is left out. Results that are done wait for those before them; a thread that is
//! [`AHEAD_MAX`] ahead waits too, so that a slow case holds up a bounded amount of memory.

use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex};

/// Most numbers that are taken and not folded.
const AHEAD_MAX: u64 = 64;

const LOCK: &str = "nobody panics while holding the lock";

/// Numbers handed out in order, and what came of them folded in order into `S`.
pub(super) struct Turns<S, T> {
    state: Mutex<State<S, T>>,
    /// Something was folded, or there is nothing more to take.
    moved: Condvar,
    /// Takes in the next result.
    fold: fn(&mut S, T),
}

struct State<S, T> {
    sum: S,
    /// The next number to hand out.
    next: u64,
    /// The next number to fold.
    folded: u64,
    /// Nothing from this number on is handed out or folded.
    end: u64,
    /// Results that wait for one before them.
    waiting: BTreeMap<u64, T>,
}

/// A number that was taken.
pub(super) struct Turn<'t, S, T> {
    turns: &'t Turns<S, T>,
    index: u64,
    is_done: bool,
}

impl<S, T> Turns<S, T> {
    /// Numbers from 0 to below `end`.
    pub(super) fn new(sum: S, end: u64, fold: fn(&mut S, T)) -> Turns<S, T> {
        let state = State { sum, next: 0, folded: 0, end, waiting: BTreeMap::new() };
        Turns { state: Mutex::new(state), moved: Condvar::new(), fold }
    }

    /// The next number, once it is not too far ahead. None if there are no more, or if `is_over`: that is asked before a
    /// number is taken, so that what is folded has no gap.
    pub(super) fn take(&self, is_over: impl Fn() -> bool) -> Option<Turn<'_, S, T>> {
        let mut state = self.state.lock().expect(LOCK);
        loop {
            if state.next >= state.end || is_over() {
                return None;
            }
            if state.next - state.folded < AHEAD_MAX {
                let index = state.next;
                state.next += 1;
                return Some(Turn { turns: self, index, is_done: false });
            }
            state = self.moved.wait(state).expect(LOCK);
        }
    }

    /// Everything folded.
    pub(super) fn finish(self) -> S {
        self.state.into_inner().expect(LOCK).sum
    }
}

impl<S, T> Turn<'_, S, T> {
    /// The number.
    pub(super) fn index(&self) -> u64 {
        self.index
    }

    /// Hands in the result; if it `ends` the turns, nothing after it counts. Shows the sum so far to `see`.
    pub(super) fn done(mut self, result: T, ends: bool, see: impl FnOnce(&S)) {
        self.is_done = true;
        let mut state = self.turns.state.lock().expect(LOCK);
        if ends {
            state.end = state.end.min(self.index + 1);
        }
        state.waiting.insert(self.index, result);
        while state.folded < state.end {
            let at = state.folded;
            let Some(result) = state.waiting.remove(&at) else { break };
            (self.turns.fold)(&mut state.sum, result);
            state.folded += 1;
        }
        see(&state.sum);
        self.turns.moved.notify_all();
    }
}

impl<S, T> Drop for Turn<'_, S, T> {
    /// Without a result, as when its thread panics, nothing after it can be folded: nobody may wait for that.
    fn drop(&mut self) {
        if let (false, Ok(mut state)) = (self.is_done, self.turns.state.lock()) {
            state.end = state.end.min(self.index);
        }
        self.turns.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn list(end: u64) -> Turns<Vec<u64>, u64> {
        Turns::new(Vec::new(), end, Vec::push)
    }

    /// Goal: the sum does not depend on who is slow. Method: four threads, of which one sleeps at some numbers, and a
    /// result in the middle that ends the turns.
    #[test]
    fn results_are_folded_in_order_up_to_the_first_that_ends_the_turns() {
        for (last, slow) in [(500, 7), (90, 13), (90, 90), (0, 3)] {
            let turns = list(300);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        while let Some(turn) = turns.take(|| false) {
                            if turn.index().is_multiple_of(slow) {
                                std::thread::sleep(std::time::Duration::from_millis(1));
                            }
                            let index = turn.index();
                            turn.done(index, index == last || index == last + 20, |_| ());
                        }
                    });
                }
            });
            let folded: Vec<u64> = (0..=last.min(299)).collect();
            assert_eq!(turns.finish(), folded, "last {last}, slow {slow}");
        }
    }

    /// The first number is held until all that may be taken beside it are done.
    #[test]
    fn a_slow_result_holds_up_a_bounded_number_of_others() {
        let turns = list(10 * AHEAD_MAX);
        let taken = AtomicU64::new(0);
        let first = turns.take(|| false).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while let Some(turn) = turns.take(|| false) {
                    taken.fetch_add(1, Ordering::SeqCst);
                    let index = turn.index();
                    turn.done(index, false, |_| ());
                }
            });
            while taken.load(Ordering::SeqCst) < AHEAD_MAX - 1 {
                std::thread::yield_now();
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert_eq!(turns.state.lock().unwrap().waiting.len() as u64, AHEAD_MAX - 1);
            first.done(0, false, |_| ());
        });
        assert_eq!(turns.finish().len() as u64, 10 * AHEAD_MAX);
    }

    /// Else a campaign in which a thread panics would never end.
    #[test]
    fn nobody_waits_for_a_thread_that_panicked() {
        let turns = list(10 * AHEAD_MAX);
        let held = turns.take(|| false).unwrap();
        std::thread::scope(|scope| {
            let others = scope.spawn(|| {
                while let Some(turn) = turns.take(|| false) {
                    let index = turn.index();
                    turn.done(index, false, |_| ());
                }
            });
            let panics = scope.spawn(move || {
                let _held = held;
                std::thread::sleep(std::time::Duration::from_millis(20));
                std::panic::resume_unwind(Box::new("on purpose"));
            });
            assert!(panics.join().is_err());
            others.join().unwrap();
        });
        assert!(turns.finish().is_empty());
    }

    #[test]
    fn no_number_is_taken_once_time_is_over() {
        let turns = list(9);
        let turn = turns.take(|| false).unwrap();
        turn.done(0, false, |sum| assert_eq!(sum, &[0]));
        assert!(turns.take(|| true).is_none());
        assert_eq!(turns.finish(), [0]);
    }
}
