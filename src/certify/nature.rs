//! Drift or state fault? What the first difference says about its kind, and what it does not.
//!
//! Numerics move many values a little, and change a token only where two were nearly tied. A fault of state, such as another
//! request's cache, moves values a lot at once. Text alone tells the two never apart.

use serde::{Deserialize, Serialize};

use super::compare::{Difference, Observable};

/// Largest difference of a log-probability that rounding of 16-bit values is commonly seen to make.
const DRIFT_MAX: f64 = 0.25;
/// Smallest one that is taken for something else.
const JUMP_MIN: f64 = 2.0;
/// Gap between best and second that no drift is taken to close.
const MARGIN_LARGE: f64 = 1.0;

/// Kind of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nature {
    /// Values drift a little.
    Drift,
    /// A jump that rounding does not make.
    LikelyStateFault,
    /// What was received does not say.
    Unclear,
}

impl Nature {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Nature::Drift => "numeric drift",
            Nature::LikelyStateFault => "likely a state fault",
            Nature::Unclear => "drift or state fault: unclear",
        }
    }
}

/// How the tokens that differ were picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Picked {
    /// The most probable ones.
    Greedy,
    /// Drawn.
    Drawn,
}

/// The kind of a difference, and why.
pub(crate) fn judge(difference: &Difference, picked: Picked) -> (Nature, String) {
    if difference.observable == Observable::PromptTokens {
        return (Nature::Unclear, "to the server these were two prompts".into());
    }
    let earlier = difference.earlier_drift.unwrap_or(0.0);
    let there = difference.drift_there;
    if difference.token_position.is_none() {
        return match difference.observable {
            Observable::Logprob | Observable::Alternative if earlier <= DRIFT_MAX => {
                let n = difference.drifted;
                (
                    Nature::Drift,
                    format!("{n} positions drift, by at most {earlier:.3e}; no token changes"),
                )
            }
            Observable::Logprob | Observable::Alternative if earlier >= JUMP_MIN => {
                (Nature::LikelyStateFault, format!("a log-probability jumps by {earlier:.3}"))
            }
            Observable::Logprob | Observable::Alternative => {
                (Nature::Unclear, format!("a log-probability moves by {earlier:.3}"))
            }
            _ => (Nature::Unclear, "tokens and log-probabilities that were received agree".into()),
        };
    }
    let Some(margin) = difference.margin else {
        return (Nature::Unclear, "without log-probabilities there is no telling".into());
    };
    let drift = there.unwrap_or(0.0).max(earlier);
    if drift >= JUMP_MIN {
        let why = format!("log-probabilities jump by {drift:.3} where the token changes");
        return (Nature::LikelyStateFault, why);
    }
    if picked == Picked::Drawn {
        // The gap of the two best says nothing of a draw.
        return match (there, drift > 0.0) {
            (Some(_), false) => {
                let why = "another token was drawn from equal log-probabilities";
                (Nature::LikelyStateFault, why.into())
            }
            _ => {
                (Nature::Unclear, format!("another token was drawn, after a drift of {drift:.3e}"))
            }
        };
    }
    // Exactly equal until there: what drifts does not begin with a jump.
    if difference.earlier_drift == Some(0.0) && drift > DRIFT_MAX {
        let why = format!("log-probabilities jump by at least {drift:.3}, equal until there");
        return (Nature::LikelyStateFault, why);
    }
    // A drift of d moves the gap of two values by at most 2 d.
    if drift > 0.0 && drift <= DRIFT_MAX && margin <= 2.0 * drift {
        let why = format!("a gap of {margin:.3e} is within the drift of {drift:.3e}");
        return (Nature::Drift, why);
    }
    if margin >= MARGIN_LARGE && earlier <= DRIFT_MAX {
        let why =
            format!("another token over a gap of {margin:.3}, after a drift of {earlier:.3e}");
        return (Nature::LikelyStateFault, why);
    }
    (Nature::Unclear, format!("a gap of {margin:.3e} and a drift of {drift:.3e}"))
}

#[cfg(test)]
mod tests {
    use super::super::compare::tests::answer;
    use super::super::compare::{Parts, compare};
    use super::*;
    use crate::certify::wire::Answer;

    fn nature(a: &Answer, b: &Answer) -> Nature {
        judge(&compare(a, b, Parts::All).difference.unwrap(), Picked::Greedy).0
    }

    /// A draw is no argmax: equal values and another token point at the draw, drifting values at nothing.
    #[test]
    fn another_draw_from_equal_values_is_a_likely_state_fault() {
        let drawn = |value: &str| {
            let a = answer(&[(2, "-0.70", &[(2, "-0.70"), (3, "-0.71")])]);
            let b = answer(&[(3, "-0.71", &[(2, value), (3, "-0.71")])]);
            judge(&compare(&a, &b, Parts::All).difference.unwrap(), Picked::Drawn).0
        };
        assert_eq!(drawn("-0.70"), Nature::LikelyStateFault);
        assert_eq!(drawn("-0.701"), Nature::Unclear);
    }

    #[test]
    fn a_flip_within_the_drift_is_drift() {
        let a = answer(&[(1, "-0.5", &[(1, "-0.5")]), (2, "-0.70", &[(2, "-0.70"), (3, "-0.71")])]);
        let b =
            answer(&[(1, "-0.51", &[(1, "-0.51")]), (3, "-0.70", &[(2, "-0.71"), (3, "-0.70")])]);
        assert_eq!(nature(&a, &b), Nature::Drift);
    }

    #[test]
    fn a_jump_over_a_large_gap_without_earlier_drift_is_a_likely_state_fault() {
        let a = answer(&[(1, "-0.5", &[]), (2, "-0.01", &[(2, "-0.01"), (3, "-6")])]);
        let b = answer(&[(1, "-0.5", &[]), (9, "-0.02", &[(9, "-0.02"), (4, "-7")])]);
        assert_eq!(nature(&a, &b), Nature::LikelyStateFault);
        let c = answer(&[(1, "-4.5", &[])]);
        assert_eq!(nature(&answer(&[(1, "-0.5", &[])]), &c), Nature::LikelyStateFault);
    }

    /// Lists that share nothing tell at least how far a token has moved.
    #[test]
    fn a_jump_out_of_the_list_without_earlier_drift_is_a_likely_state_fault() {
        let same = (1, "-0.5", [(1, "-0.5")].as_slice());
        let a = answer(&[same, (2, "-1.3", &[(2, "-1.3"), (3, "-1.9"), (4, "-2.1")])]);
        let b = answer(&[same, (9, "-1.4", &[(9, "-1.4"), (8, "-1.6"), (7, "-1.8")])]);
        assert_eq!(nature(&a, &b), Nature::LikelyStateFault);
        let drifted = answer(&[
            (1, "-0.6", &[(1, "-0.6")]),
            (9, "-1.4", &[(9, "-1.4"), (8, "-1.6"), (7, "-1.8")]),
        ]);
        assert_eq!(nature(&a, &drifted), Nature::Unclear);
    }

    #[test]
    fn text_alone_is_never_called_anything() {
        let a = Answer { text: "a long answer".into(), ..Answer::default() };
        let b = Answer { text: "something else".into(), ..Answer::default() };
        assert_eq!(nature(&a, &b), Nature::Unclear);
    }
}
