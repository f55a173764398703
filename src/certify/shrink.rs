//! From the first difference of an arm to the smallest requests that still show one: fewest neighbours first, then fewest tokens
//! and shortest prompts. A first answer that differs from later ones has no neighbours, and is shrunk alike.
//!
//! A fault may show only now and then, so each candidate is asked several times, as often as the share that the arm saw asks
//! for. A candidate that showed nothing is taken for one that shows nothing: what is found is small, not proven smallest. All
//! is sent plain, and within what is left of the run's budget.

mod case;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use case::Size;
use case::{Case, Cut};

use super::arms::{is_equal, same_prompt};
use super::certificate::{Arm, ArmRecord, Divergence, New, Sent, Verdict};
use super::compare::{Difference, Parts, compare};
use super::prompts::renewed;
use super::session::{Member, Session};
use super::stats;
use super::wire::{Answer, Call, Cold, WireError};

/// Most requests that a search takes, whatever the run's budget.
const REQUESTS_MAX: u64 = 120;
/// Times that a candidate is asked, at least and at most.
const TRIALS: (u64, u64) = (2, 8);
/// Times that the smallest crowd is asked in the end.
const CONFIRMATIONS: u64 = 4;

/// A crowd that was made smaller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shrunk {
    /// The request whose answer in the crowd differs from its answer alone.
    pub request: Sent,
    /// The requests that are sent together with it, in their order.
    pub neighbours: Vec<Sent>,
    /// Where the request stands among its neighbours.
    pub place: u32,
    /// When each request is sent, that one in its place, in milliseconds after the first.
    pub delays_ms: Vec<u64>,
    /// Which prompts are made anew each time.
    pub new: New,
    /// A difference that this crowd showed.
    pub difference: Difference,
    /// Times that it showed one, and times that it was asked.
    pub seen: [u64; 2],
    /// How large it was.
    pub from: Size,
    /// How large it is.
    pub to: Size,
    /// Crowds that were asked on the way.
    pub trials: u64,
    /// Requests that they took, those alone among them.
    pub requests: u64,
    /// Whether nothing smaller that was left to try showed a difference.
    pub minimal: bool,
    /// What ended the search otherwise.
    pub ended_by: Option<String>,
}

impl Shrunk {
    /// In words, for one line.
    pub fn words(&self) -> String {
        let [n, m] = self.seen;
        let (from, to) = (&self.from, &self.to);
        let ended = match (&self.ended_by, self.minimal) {
            (None, _) | (_, true) => "nothing smaller showed one".to_owned(),
            (Some(why), false) => format!("not known to be the smallest: {why}"),
        };
        let mut sizes = vec![format!("prompt {} of {}", to.prompt, from.prompt)];
        if from.neighbours > 0 {
            sizes.insert(0, format!("{} of {} neighbours", to.neighbours, from.neighbours));
            sizes.push(format!(
                "their prompts {} of {}",
                to.neighbour_prompts, from.neighbour_prompts
            ));
        }
        sizes.push(format!("{} of {} tokens", to.answer_tokens, from.answer_tokens));
        let crowds = if from.neighbours > 0 { "crowds" } else { "new prompts" };
        format!(
            "{}: seen in {n} of {m}, after {} {crowds} ({ended})",
            sizes.join(", "),
            self.trials
        )
    }
}

/// Shrinks a difference in a crowd, and one of a first answer: of each the first, among those of broken arms, that can be seen
/// again.
pub(crate) fn firsts(
    session: &Session<'_>,
    firsts: &mut [(Divergence, Vec<Call>)],
    records: &[ArmRecord],
) {
    let is_broken = |arm: Arm| records.iter().any(|r| r.arm == arm && r.verdict == Verdict::Broken);
    for wanted in [true, false] {
        let of = |first: &Divergence| match wanted {
            true => first.sent > 1 && first.arm != Arm::ManyPrompts,
            false => first.arm == Arm::First,
        };
        for (first, calls) in
            firsts.iter_mut().filter(|(first, _)| of(first) && is_broken(first.arm))
        {
            session.ledger.stage("shrinking");
            // A witness is not needed to believe a difference, so nothing has to be streamed.
            let calls = calls.iter().map(|call| Call { stream: false, ..call.clone() }).collect();
            let delays = first.delays_ms.iter().map(|ms| Duration::from_millis(*ms)).collect();
            let case = Case { calls, place: first.place as usize, delays, new: first.new };
            match Search::new(session, first.seen).run(case) {
                Ok(shrunk) => {
                    first.shrunk = Some(shrunk);
                    break;
                }
                Err(why) => first.not_shrunk = Some(why),
            }
        }
    }
}

/// The smallest case so far, and how it showed.
struct Best {
    case: Case,
    difference: Difference,
    seen: [u64; 2],
}

/// What ends a search before its time.
type Ended = String;

struct Search<'a> {
    session: Session<'a>,
    requests_before: u64,
    trials_each: u64,
    trials: u64,
    /// The answer alone to the request that was asked last.
    alone: Option<(Call, Answer)>,
}

impl<'a> Search<'a> {
    fn new(session: &Session<'a>, [n, of]: [u64; 2]) -> Search<'a> {
        let rate = (n as f64 / of.max(1) as f64).clamp(0.05, 0.95);
        let trials_each = stats::trials_for(rate, 0.95).clamp(TRIALS.0, TRIALS.1);
        Search {
            session: session.beside(),
            requests_before: session.ledger.requests(),
            trials_each,
            trials: 0,
            alone: None,
        }
    }

    fn run(mut self, whole: Case) -> Result<Shrunk, String> {
        let from = whole.size();
        let mut best = self.grow(&whole)?;
        let ended_by = self.shrink(&mut best).err();
        // How often the smallest shows is worth knowing to whoever runs it; what was asked on the way stopped at the first sight.
        for _ in 0..CONFIRMATIONS {
            let Ok(shown) = self.ask(&best.case) else { break };
            best.seen[0] += u64::from(shown.is_some());
            best.seen[1] += 1;
        }
        let case = &best.case;
        Ok(Shrunk {
            request: self.session.sent(&case.calls[case.place]),
            neighbours: case.neighbours().map(|call| self.session.sent(call)).collect(),
            place: case.place as u32,
            delays_ms: case.delays.iter().map(|delay| delay.as_millis() as u64).collect(),
            new: case.new,
            difference: best.difference,
            seen: best.seen,
            from,
            to: case.size(),
            trials: self.trials,
            requests: self.requests(),
            minimal: ended_by.is_none(),
            ended_by,
        })
    }

    fn requests(&self) -> u64 {
        self.session.ledger.requests() - self.requests_before
    }

    /// The first of 1, 2, 4, … neighbours that show a difference: small crowds cost least, and most faults need no large one.
    fn grow(&mut self, whole: &Case) -> Result<Best, String> {
        let n = whole.calls.len();
        if n == 1 {
            let shown = self.shows(whole, 1)?;
            // How many it took says how often it shows.
            self.trials_each = (2 * self.trials).clamp(TRIALS.0, TRIALS.1);
            return shown.ok_or_else(|| format!("not seen again in {} new prompts", self.trials));
        }
        let mut count = 1;
        loop {
            // Those next to it, going round.
            let kept = |i: usize| (i + n - whole.place) % n <= count;
            let candidate = whole.keep(kept);
            let shown = self.shows(&candidate, 1).map_err(|why| match self.trials {
                0 => format!("not asked again: {why}"),
                n => format!("not seen again in {n} crowds of up to {count} neighbours: {why}"),
            })?;
            if let Some(best) = shown {
                return Ok(best);
            }
            if count + 1 >= n {
                return Err(format!("not seen again in {} plain crowds", self.trials));
            }
            count = (count * 2).min(n - 1);
        }
    }

    /// Sends all at once, leaves out neighbours one by one, then cuts lengths in turn, each by bisection.
    fn shrink(&mut self, best: &mut Best) -> Result<(), Ended> {
        if best.case.delays.iter().any(|delay| !delay.is_zero())
            && let Some(simpler) = self.shows(&best.case.at_once(), 1)?
        {
            *best = simpler;
        }
        let mut at = 0;
        while best.case.calls.len() > 2 && at < best.case.calls.len() {
            if at == best.case.place {
                at += 1;
                continue;
            }
            match self.shows(&best.case.keep(|i| i != at), 1)? {
                Some(smaller) => *best = smaller,
                None => at += 1,
            }
        }
        // Longest lengths that showed nothing, or that are not tried.
        let floors = Cut::ALL.map(|cut| best.case.floor(cut));
        let mut failed = floors;
        loop {
            let mut is_open = false;
            for ((cut, floor), low) in Cut::ALL.into_iter().zip(floors).zip(&mut failed) {
                let high = best.case.length(cut);
                if high <= *low + 1 {
                    continue;
                }
                is_open = true;
                // Most faults need no long prompts, so the first step is a large one.
                let middle = match *low == floor {
                    true => high.div_ceil(8).max(floor + 1),
                    false => (*low + high) / 2,
                };
                let length = match (cut, best.difference.position) {
                    // What comes after the difference is not needed to see it.
                    (Cut::AnswerTokens, Some(position)) if position + 1 < high => {
                        (position + 1).max(*low + 1)
                    }
                    _ => middle,
                };
                let needed = if cut == Cut::NeighbourAnswers { self.trials_each } else { 1 };
                match self.shows(&best.case.cut(cut, length), needed)? {
                    Some(smaller) => *best = smaller,
                    None => *low = length,
                }
            }
            if !is_open {
                return Ok(());
            }
        }
    }

    /// Asks a candidate until it showed a difference `needed` times, or can't any more.
    fn shows(&mut self, case: &Case, needed: u64) -> Result<Option<Best>, Ended> {
        let mut seen = [0, 0];
        while seen[1] - seen[0] <= self.trials_each - needed {
            seen[1] += 1;
            if let Some(difference) = self.ask(case)? {
                seen[0] += 1;
                if seen[0] >= needed {
                    return Ok(Some(Best { case: case.clone(), difference, seen }));
                }
            }
        }
        Ok(None)
    }

    /// Asks once: the difference between the request alone and in the crowd. An answer that does not come, or that can't be
    /// compared, shows nothing.
    fn ask(&mut self, case: &Case) -> Result<Option<Difference>, Ended> {
        if self.requests() >= REQUESTS_MAX {
            return Err(format!("{REQUESTS_MAX} requests were spent on it"));
        }
        if case.new.request {
            return self.ask_new(case);
        }
        let Some(expected) = self.alone(&case.calls[case.place])? else { return Ok(None) };
        let calls: Vec<Call> =
            (0..case.calls.len()).map(|i| self.prepared(case, i, &case.calls[i])).collect();
        let Some(got) = self.together(case, &calls)? else { return Ok(None) };
        let is_same = same_prompt(&expected, &got);
        Ok(compare(&expected, &got, Parts::All).difference.filter(|_| is_same))
    }

    /// The same for a request that the server must not have seen: its reference comes after it, twice.
    fn ask_new(&mut self, case: &Case) -> Result<Option<Difference>, Ended> {
        let calls: Vec<Call> =
            (0..case.calls.len()).map(|i| self.prepared(case, i, &case.calls[i])).collect();
        let Some(got) = self.together(case, &calls)? else { return Ok(None) };
        let mut alone = Vec::new();
        for _ in 0..2 {
            match self.session.one(&calls[case.place]) {
                Ok(exchange) => alone.push(exchange.answer),
                Err(error) => return unless_over(error).map(|()| None),
            }
        }
        let is_clean = is_equal(&alone[0], &alone[1]) && same_prompt(&alone[0], &got);
        Ok(compare(&alone[0], &got, Parts::All).difference.filter(|_| is_clean))
    }

    /// The answer to the request in its crowd, which may be of nobody else.
    fn together(&mut self, case: &Case, calls: &[Call]) -> Result<Option<Answer>, Ended> {
        self.trials += 1;
        let members = calls.iter().zip(&case.delays);
        let members: Vec<Member> = members
            .map(|(call, delay)| Member { call: call.clone(), delay: *delay, alone: None })
            .collect();
        match self.session.crowd(&members) {
            Ok(mut crowd) => match crowd.members.swap_remove(case.place).answer {
                Ok(answer) => Ok(Some(answer)),
                Err(error) => unless_over(error).map(|()| None),
            },
            Err(error) => unless_over(error).map(|()| None),
        }
    }

    /// A request as it is sent this time: with a prompt or a salt of its own, where it takes that.
    fn prepared(&mut self, case: &Case, i: usize, call: &Call) -> Call {
        let is_new = if i == case.place { case.new.request } else { case.new.neighbours };
        match is_new {
            true => {
                let prompt = renewed(&call.prompt, self.session.salt());
                Call { prompt, ..call.clone() }
            }
            false => self.salted(call),
        }
    }

    /// The answer to a request alone, after identical traffic unless it is a cold one. `None` where two of them differ.
    fn alone(&mut self, call: &Call) -> Result<Option<Answer>, Ended> {
        if let Some((asked, answer)) = &self.alone
            && asked == call
        {
            return Ok(Some(answer.clone()));
        }
        let first = self.salted(call);
        let first = match self.session.one(&first) {
            Ok(exchange) => exchange.answer,
            Err(error) => return unless_over(error).map(|()| None),
        };
        // A cold one has no traffic before it that it needs.
        let answer = match call.cold {
            Some(_) => first,
            None => match self.session.one(call) {
                Err(error) => return unless_over(error).map(|()| None),
                Ok(exchange) => {
                    let second = exchange.answer;
                    // The first may have found less in a cache than the second; a third tells.
                    if is_equal(&first, &second) {
                        second
                    } else {
                        match self.session.one(call) {
                            Ok(third) if is_equal(&second, &third.answer) => second,
                            Ok(_) => return Ok(None),
                            Err(error) => return unless_over(error).map(|()| None),
                        }
                    }
                }
            },
        };
        self.alone = Some((call.clone(), answer.clone()));
        Ok(Some(answer))
    }

    /// The same with a salt of its own, if it is a cold one.
    fn salted(&mut self, call: &Call) -> Call {
        let is_salted = self.session.dialect.cold == Some(Cold::Salt);
        let cold = call.cold.map(|cold| if is_salted { self.session.salt() } else { cold });
        Call { cold, ..call.clone() }
    }
}

/// An error of one request shows nothing; a budget that is used up ends the search.
fn unless_over(error: WireError) -> Result<(), Ended> {
    match error {
        WireError::Budget(_) => Err(error.to_string()),
        _ => Ok(()),
    }
}
