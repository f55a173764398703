//! Answers alone with nothing of the prompt cached, where a prompt that was sent before can be kept from the cache: the
//! references of cold crowds.

use super::super::score::Score;
use super::super::wire::{Answer, Call};
use super::{Bench, is_cold, is_equal};

/// Asks each prompt cold, once more or twice: the first answer ever counts as one if it was cold. Whether they agree is part of
/// what is known then.
pub(crate) fn ask_alone(bench: &mut Bench<'_, '_>, score: &mut Score) {
    if bench.session.dialect.cold.is_none() {
        return;
    }
    for number in 0..bench.known.len() {
        let known = &bench.known[number];
        let first = known.first.iter().filter(|first| is_cold(first)).cloned();
        let mut cold: Vec<Answer> = first.collect();
        // A server that warms up gives its first answer otherwise; then two later ones must agree.
        while cold.len() < 2 || (cold.len() == 2 && !is_equal(&cold[0], &cold[1])) {
            let salt = bench.session.salt();
            let call = Call { cold: Some(salt), ..bench.known[number].call.clone() };
            match bench.ask(&call) {
                Ok(answer) if is_cold(&answer) => cold.push(answer),
                Ok(_) => {
                    score.void_for("a cold request got tokens from a cache".into());
                    break;
                }
                Err(error) => {
                    score.void(&error);
                    break;
                }
            }
        }
        let known = &mut bench.known[number];
        if let [first, second, third] = cold.as_slice()
            && is_equal(second, third)
            && !is_equal(first, second)
        {
            cold.remove(0);
        }
        known.cold_is_clean = cold.len() == 2 && is_equal(&cold[0], &cold[1]);
        known.cold = cold;
    }
}
