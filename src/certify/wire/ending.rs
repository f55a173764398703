//! How answers end. One that was cut short is no answer: compared with a whole one it would differ, whatever the server
//! computed. So an answer counts only if it says that it ended as whole answers do.

use std::collections::BTreeSet;

use super::error::WireError;

/// Reasons of whole answers, in any case of letters.
const WHOLE: [&str; 20] = [
    "stop",
    "stop_sequence",
    "stop_string",
    "stop_str",
    "stop_token",
    "stop_word",
    "eos",
    "eos_token",
    "end_of_sequence",
    "end_turn",
    "complete",
    "length",
    "limit",
    "max_tokens",
    "max_length",
    "max_new_tokens",
    "tool_calls",
    "tool_call",
    "tool_use",
    "function_call",
];
/// Reasons of answers that were cut short, by the start of the word. Not even a server that always gives them is believed.
const CUT: [&str; 12] = [
    "abort",
    "error",
    "fail",
    "cancel",
    "timeout",
    "timed",
    "time_limit",
    "content_filter",
    "safety",
    "preempt",
    "disconnect",
    "incomplete",
];
/// Most characters of a reason that are shown.
const REASON_CHARACTERS_MAX: usize = 40;

/// Which ends are taken as those of whole answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Endings {
    /// The usual ones, and those that plain answers alone showed: a reason of its own, an empty one, or none. Nothing says
    /// what these mean, so an answer must also have as many tokens as were asked for, where they are counted.
    Usual(BTreeSet<Option<String>>),
    /// Any: for finding out how a server ends its answers.
    Any,
}

impl Default for Endings {
    fn default() -> Endings {
        Endings::Usual(BTreeSet::new())
    }
}

impl Endings {
    /// Refuses an answer that did not end as a whole one. `full` is whether it has all tokens that were asked for, if counted.
    pub(super) fn check(&self, reason: Option<&str>, full: Option<bool>) -> Result<(), WireError> {
        let Endings::Usual(further) = self else { return Ok(()) };
        if reason.is_some_and(is_whole) {
            return Ok(());
        }
        let accepted = further.contains(&reason.map(str::to_owned)) && full != Some(false);
        accepted.then_some(()).ok_or_else(|| WireError::Ended(words(reason)))
    }

    /// Takes one more as an end of whole answers. Returns whether it was taken.
    pub(crate) fn accept(&mut self, reason: Option<&str>) -> bool {
        let takes = !reason.is_some_and(is_cut);
        match self {
            Endings::Usual(further) if takes => drop(further.insert(reason.map(str::to_owned))),
            _ => {}
        }
        takes
    }
}

/// Whether a whole answer ends so.
pub(crate) fn is_whole(reason: &str) -> bool {
    WHOLE.iter().any(|whole| whole.eq_ignore_ascii_case(reason))
}

fn is_cut(reason: &str) -> bool {
    let reason = reason.to_ascii_lowercase();
    CUT.iter().any(|cut| reason.starts_with(cut))
}

/// How an answer ended, in words that follow "ended".
pub(crate) fn words(reason: Option<&str>) -> String {
    match reason {
        None => "without a reason".into(),
        Some("") => "with an empty reason".into(),
        Some(reason) => {
            let shown: String = reason.chars().filter(|c| !c.is_control()).collect();
            let shown: String = shown.chars().take(REASON_CHARACTERS_MAX).collect();
            format!("by {shown:?}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usual() -> Endings {
        Endings::default()
    }

    #[test]
    fn whole_answers_say_that_they_ended_and_others_are_named_in_one_line() {
        for whole in ["stop", "length", "eos_token", "STOP", "end_turn", "tool_calls", "max_tokens"]
        {
            assert_eq!(usual().check(Some(whole), None), Ok(()), "{whole}");
        }
        let said = |reason| usual().check(reason, Some(true)).unwrap_err().to_string();
        assert_eq!(said(None), "ended without a reason");
        assert_eq!(said(Some("")), "ended with an empty reason");
        for cut in ["abort", "error", "cancelled", "timeout", "content_filter", "stopped?", "null"]
        {
            assert_eq!(said(Some(cut)), format!("ended by \"{cut}\""));
        }
        let long = said(Some(&format!("a\nb\"{}", "x".repeat(1000))));
        assert!(!long.contains('\n') && long.len() < 100, "{long}");
    }

    /// Nothing says what a reason of a server's own means, so the count must.
    #[test]
    fn an_end_that_plain_answers_showed_is_accepted_of_full_answers_alone() {
        for reason in [None, Some(""), Some("done")] {
            let mut endings = usual();
            assert!(endings.accept(reason));
            assert_eq!(endings.check(reason, Some(true)), Ok(()));
            assert_eq!(endings.check(reason, None), Ok(()));
            assert!(endings.check(reason, Some(false)).is_err());
            assert!(endings.check(Some("other"), Some(true)).is_err());
        }
    }

    #[test]
    fn a_reason_that_says_that_the_answer_was_cut_is_never_accepted() {
        for cut in ["abort", "Aborted", "error", "cancelled", "timeout", "content_filter"] {
            let mut endings = usual();
            assert!(!endings.accept(Some(cut)), "{cut}");
            assert!(endings.check(Some(cut), Some(true)).is_err(), "{cut}");
        }
    }
}
