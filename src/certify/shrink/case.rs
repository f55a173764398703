//! Requests that are sent together, the one of them that is looked at, and what is smaller than they are.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::super::certificate::New;
use super::super::wire::Call;

/// Token ids or characters of a prompt that is made anew each time, at least: of shorter ones there are too few for each to be
/// new.
const NEW_MIN: u64 = 9;

/// How large a crowd is. Prompts are measured in token ids, or in characters where they are sent as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Size {
    /// Requests beside the one that differs.
    pub neighbours: u64,
    /// Length of its prompt.
    pub prompt: u64,
    /// Length of the neighbours' longest prompt.
    pub neighbour_prompts: u64,
    /// Tokens that it asks for.
    pub answer_tokens: u64,
    /// Most tokens that a neighbour asks for.
    pub neighbour_answers: u64,
}

/// Requests that are sent together, and the one that is looked at.
#[derive(Clone)]
pub(super) struct Case {
    pub(super) calls: Vec<Call>,
    pub(super) place: usize,
    pub(super) delays: Vec<Duration>,
    pub(super) new: New,
}

/// A length that can be cut.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    AnswerTokens,
    NeighbourPrompts,
    Prompt,
    /// Last: a neighbour whose answer is short is gone before others meet it.
    NeighbourAnswers,
}

impl Cut {
    pub(super) const ALL: [Cut; 4] =
        [Cut::AnswerTokens, Cut::NeighbourPrompts, Cut::Prompt, Cut::NeighbourAnswers];
}

impl Case {
    pub(super) fn neighbours(&self) -> impl Iterator<Item = &Call> {
        let place = self.place;
        self.calls.iter().enumerate().filter(move |(i, _)| *i != place).map(|(_, call)| call)
    }

    /// Only these of the calls, the looked at one among them.
    pub(super) fn keep(&self, kept: impl Fn(usize) -> bool) -> Case {
        let place = (0..self.place).filter(|i| kept(*i)).count();
        let stays: Vec<usize> =
            (0..self.calls.len()).filter(|i| *i == self.place || kept(*i)).collect();
        let least = stays.iter().map(|i| self.delays[*i]).min().unwrap_or_default();
        Case {
            calls: stays.iter().map(|i| self.calls[*i].clone()).collect(),
            place,
            delays: stays.iter().map(|i| self.delays[*i] - least).collect(),
            new: self.new,
        }
    }

    /// The same, all sent at once.
    pub(super) fn at_once(&self) -> Case {
        Case { delays: vec![Duration::ZERO; self.calls.len()], ..self.clone() }
    }

    pub(super) fn size(&self) -> Size {
        let length = |call: &Call| call.prompt.length() as u64;
        let request = &self.calls[self.place];
        Size {
            neighbours: self.calls.len() as u64 - 1,
            prompt: length(request),
            neighbour_prompts: self.neighbours().map(length).max().unwrap_or(0),
            answer_tokens: request.answer_tokens.into(),
            neighbour_answers: self.neighbours().map(|c| c.answer_tokens.into()).max().unwrap_or(0),
        }
    }

    pub(super) fn length(&self, cut: Cut) -> u64 {
        let size = self.size();
        match cut {
            Cut::AnswerTokens => size.answer_tokens,
            Cut::NeighbourPrompts => size.neighbour_prompts,
            Cut::Prompt => size.prompt,
            Cut::NeighbourAnswers => size.neighbour_answers,
        }
    }

    /// The longest length to which it is not cut.
    pub(super) fn floor(&self, cut: Cut) -> u64 {
        match cut {
            Cut::Prompt if self.new.request => NEW_MIN - 1,
            Cut::NeighbourPrompts if self.new.neighbours => NEW_MIN - 1,
            _ => 0,
        }
    }

    pub(super) fn cut(&self, cut: Cut, length: u64) -> Case {
        let mut case = self.clone();
        for (i, call) in case.calls.iter_mut().enumerate() {
            match (cut, i == self.place) {
                (Cut::AnswerTokens, true) | (Cut::NeighbourAnswers, false) => {
                    call.answer_tokens = call.answer_tokens.min(length as u32);
                }
                (Cut::Prompt, true) | (Cut::NeighbourPrompts, false) => {
                    call.prompt = call.prompt.cut(length as usize);
                }
                _ => {}
            }
        }
        case
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::wire::Prompt;
    use super::*;

    fn case(place: usize) -> Case {
        let call = |n: u32| Call::greedy(Prompt::Ids((0..n).collect()), 24);
        let delays = [0, 5, 9, 20].map(Duration::from_millis).to_vec();
        Case { calls: [10, 20, 30, 40].map(call).to_vec(), place, delays, new: New::default() }
    }

    #[test]
    fn leaving_out_neighbours_keeps_the_request_in_its_place() {
        let whole = case(2);
        let few = whole.keep(|i| i == 3);
        assert_eq!((few.calls.len(), few.place), (2, 0));
        assert_eq!(few.calls, [whole.calls[2].clone(), whole.calls[3].clone()]);
        let few = whole.keep(|i| i != 0);
        assert_eq!((few.calls.len(), few.place), (3, 1));
        assert_eq!(few.calls[1], whole.calls[2]);
    }

    #[test]
    fn a_cut_is_of_the_request_or_of_its_neighbours() {
        let whole = case(1);
        assert_eq!(whole.cut(Cut::Prompt, 7).size(), Size { prompt: 7, ..whole.size() });
        let size = Size { neighbour_prompts: 15, ..whole.size() };
        let cut = whole.cut(Cut::NeighbourPrompts, 15);
        assert_eq!(cut.size(), size);
        assert_eq!(cut.calls[0], whole.calls[0]);
        assert_eq!(
            whole.cut(Cut::AnswerTokens, 3).size(),
            Size { answer_tokens: 3, ..whole.size() }
        );
        let size = Size { neighbour_answers: 3, ..whole.size() };
        assert_eq!(whole.cut(Cut::NeighbourAnswers, 3).size(), size);
    }

    /// Goal: a prompt of one id is no new prompt when it is sent again.
    #[test]
    fn prompts_that_are_new_each_time_are_not_cut_to_a_few_ids() {
        let warm = case(1);
        assert!(Cut::ALL.iter().all(|cut| warm.floor(*cut) == 0));
        let mixed = Case { new: New { request: false, neighbours: true }, ..warm.clone() };
        assert_eq!((mixed.floor(Cut::Prompt), mixed.floor(Cut::NeighbourPrompts)), (0, 8));
        let new = Case { new: New { request: true, neighbours: true }, ..warm };
        assert_eq!((new.floor(Cut::Prompt), new.floor(Cut::AnswerTokens)), (8, 0));
    }
}
