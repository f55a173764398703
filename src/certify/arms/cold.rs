//! Answers alone with nothing of the prompt cached, where a prompt that was sent before can be kept from the cache: the
//! references of cold crowds.

use super::super::wire::{Answer, Call};
use super::{Bench, is_cold, is_equal};

/// Answers of a prompt that must agree.
const AGREE: usize = 2;
/// The same where warm answers differ: two of a few replicas often agree by chance.
const AGREE_IN_DOUBT: usize = 4;

/// Asks each prompt cold, as often as it takes for enough answers that agree: the first answer ever counts as one if it was cold.
/// Whether they agree is part of what is known then.
pub(crate) fn ask_alone(bench: &mut Bench<'_, '_>) {
    if bench.session.dialect.cold.is_none() {
        return;
    }
    let needed = if bench.warm_differs() { AGREE_IN_DOUBT } else { AGREE };
    for number in 0..bench.known.len() {
        let known = &bench.known[number];
        let first = known.first.iter().filter(|first| is_cold(first)).cloned();
        let mut cold: Vec<Answer> = first.collect();
        let mut lacks = None;
        // A server that warms up gives its first answer otherwise; then later ones must agree.
        while cold.len() < needed || (cold.len() == needed && is_first_another(&cold)) {
            let salt = bench.session.salt();
            let call = Call { cold: Some(salt), ..bench.known[number].call.clone() };
            match bench.ask(&call) {
                Ok(answer) if is_cold(&answer) => cold.push(answer),
                Ok(_) => {
                    lacks = Some("a cold request got tokens from a cache".to_owned());
                    break;
                }
                Err(error) => {
                    lacks = Some(error.to_string());
                    break;
                }
            }
        }
        // Where a further answer did not come, it is not known whether the first one alone was another.
        let is_known = lacks.is_none();
        if is_first_another(&cold) && cold.len() > 2 {
            cold.remove(0);
        }
        let agree = cold.iter().all(|answer| is_equal(&cold[0], answer));
        let known = &mut bench.known[number];
        known.cold_is_clean = cold.len() >= needed && agree;
        known.cold_differs = is_known && !agree;
        known.cold = cold;
        known.cold_lacks = lacks;
    }
}

/// Whether the first differs from those after it, which are equal.
fn is_first_another(cold: &[Answer]) -> bool {
    match cold {
        [first, second, rest @ ..] => {
            !is_equal(first, second) && rest.iter().all(|answer| is_equal(second, answer))
        }
        _ => false,
    }
}
