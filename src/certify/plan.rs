//! What will be sent: prompts, groups, levels. A function of the options, the seed and what the server can do, so that the
//! same plan is made again.

use std::fmt::Write as _;

use super::certificate::Arm;
use super::error::CertifyError;
use super::options::Options;
use super::probe::{Facts, Tokenize, tokenize};
use super::session::Session;
use super::wire::{Call, Prompt};

/// Prompts of the arms that ask few things of each.
pub(crate) const FEW: u32 = 4;
/// Tokens of prompts, in turn: mixed, so that no two of a crowd are of one length, and on both sides of common block sizes.
const LENGTHS: [u32; 8] = [17, 72, 33, 48, 24, 96, 15, 63];
/// Requests that finding out about a server takes at most.
const PROBES: u64 = 20;
/// Characters that a token is taken to have where the server can't be asked.
const CHARACTERS_A_TOKEN: u32 = 4;

/// What a run comes to at most.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The options, made smaller until they fit their own budgets.
    pub options: Options,
    /// Requests of each part.
    pub parts: Vec<(String, u64)>,
    /// What was left out to fit.
    pub left_out: Vec<String>,
}

impl Plan {
    /// The largest plan within the budgets. Rounds go first, then prompts, then the arms that cost most for what they see.
    pub fn new(options: &Options, known_control: bool) -> Result<Plan, CertifyError> {
        options.check()?;
        let mut options = options.clone();
        let mut left_out = Vec::new();
        loop {
            let plan = Plan { parts: parts(&options, known_control), options, left_out };
            if plan.requests() <= plan.options.requests_max
                && plan.tokens() <= plan.options.tokens_max
            {
                return Ok(plan);
            }
            let requests = plan.requests();
            (options, left_out) = (plan.options, plan.left_out);
            let droppable =
                [Arm::Score, Arm::Stream, Arm::Seed, Arm::Order, Arm::Prefix, Arm::Time];
            let dropped = droppable.into_iter().find(|arm| options.arms.contains(arm));
            if options.rounds > 1 {
                options.rounds -= 1;
                left_out.push("a round of each level".into());
            } else if options.prompts > FEW {
                options.prompts = (options.prompts / 2).max(FEW);
                left_out.push(format!("prompts beyond {}", options.prompts));
            } else if options.concurrency.len() > 1 {
                let level = options.concurrency.pop().expect("more than one level");
                left_out.push(format!("crowds of {level}"));
            } else if let Some(arm) = dropped {
                options.arms.retain(|other| *other != arm);
                left_out.push(format!("arm {arm}"));
            } else {
                let most = options.requests_max;
                let why = format!(
                    "the smallest plan takes {requests} requests, more than {most} or than the tokens allowed"
                );
                return Err(CertifyError::BadInput(why));
            }
        }
    }

    /// Requests at most.
    pub fn requests(&self) -> u64 {
        self.parts.iter().map(|(_, n)| n).sum()
    }

    /// Tokens at most, taking prompts at their mean length.
    pub fn tokens(&self) -> u64 {
        let mean = u64::from(LENGTHS.iter().sum::<u32>()) / LENGTHS.len() as u64;
        self.requests() * (mean + u64::from(self.options.answer_tokens))
    }

    /// The plan as text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let options = &self.options;
        let _ = writeln!(
            out,
            "seed {}, {} prompts, {} repeats, crowds of {:?} in {} rounds, answers of {} tokens",
            options.seed,
            options.prompts,
            options.repeats,
            options.concurrency,
            options.rounds,
            options.answer_tokens
        );
        for (part, requests) in &self.parts {
            let _ = writeln!(out, "{part:<18} {requests:>6} requests");
        }
        for what in &self.left_out {
            let _ = writeln!(out, "left out to fit the budget: {what}");
        }
        let _ = write!(
            out,
            "at most {} requests and about {} tokens, of {} and {} allowed",
            self.requests(),
            self.tokens(),
            options.requests_max,
            options.tokens_max
        );
        out
    }
}

/// Requests of each part, at most.
fn parts(options: &Options, known_control: bool) -> Vec<(String, u64)> {
    let prompts = u64::from(options.prompts);
    let few = prompts.min(FEW.into());
    let crowds: u64 =
        options.concurrency.iter().map(|level| crowd_cost(*level, options.prompts)).sum();
    let crowds = crowds * u64::from(options.rounds);
    let level = u64::from(options.concurrency.iter().copied().max().unwrap_or(2));
    let group = level.min(prompts);
    let cost = |arm: Arm| match arm {
        Arm::Repeat => prompts * (u64::from(options.repeats) + 1),
        Arm::ConcurrentWarm => crowds,
        Arm::ConcurrentCold => crowds + 2 * prompts,
        Arm::Order => 2 * group * u64::from(options.rounds),
        Arm::Prefix => 3 * few,
        Arm::Seed => few * (3 + u64::from(options.rounds)),
        Arm::Stream => 2 * prompts,
        Arm::Score => few,
        Arm::Time => 2 * few,
    };
    let mut parts = vec![("probe".to_owned(), PROBES)];
    // With a server that is known to depend on the batch, a few repeats and the crowds; else crowds through a proxy.
    let control = match known_control {
        true => 3 * few + CONTROL_CROWDS * group,
        false => PROXY_CROWDS * group,
    };
    parts.push(("positive control".into(), control));
    let asked = Arm::ALL.into_iter().filter(|arm| options.asks(*arm));
    parts.extend(asked.map(|arm| (arm.name().to_owned(), cost(arm))));
    parts
}

/// Crowds of the positive control at most.
pub(crate) const CONTROL_CROWDS: u64 = 4;
/// The same where a proxy alters each answer: the second is for a first that did not meet.
pub(crate) const PROXY_CROWDS: u64 = 2;

/// Requests of one round of a level.
fn crowd_cost(level: u32, prompts: u32) -> u64 {
    u64::from(level) * u64::from(prompts.div_ceil(level))
}

/// Numbers of prompts in groups of `level`; the last ones of a group that has too few are fillers, from `prompts` on. Another
/// round puts other neighbours together.
pub(crate) fn groups(prompts: u32, level: u32, round: u32, seed: u64) -> Vec<Vec<u32>> {
    let mut order: Vec<u32> = (0..prompts).collect();
    let mut random = Random::new(seed ^ u64::from(level) << 32 ^ u64::from(round) << 16);
    for i in (1..order.len()).rev() {
        order.swap(i, random.below(i as u64 + 1) as usize);
    }
    let mut groups: Vec<Vec<u32>> = order.chunks(level as usize).map(<[u32]>::to_vec).collect();
    for group in &mut groups {
        let missing = level - group.len() as u32;
        group.extend((0..missing).map(|filler| prompts + filler));
    }
    groups
}

/// Prompts, numbered; those from a number of their own on are fillers, or fresh ones.
pub(crate) struct Prompts {
    seed: u64,
    lengths: [u32; 8],
    by_ids: Option<Tokenize>,
    characters_a_token: u32,
    made: std::collections::BTreeMap<u32, Prompt>,
}

/// First number of prompts that no other arm sends.
pub(crate) const FRESH: u32 = 1 << 20;

impl Prompts {
    pub(crate) fn new(seed: u64, facts: &Facts, answer_tokens: u32) -> Prompts {
        let room = facts.server.context_max.unwrap_or(u64::MAX);
        // Half of what is left, at least: the score arm sends prompt and answer as one prompt.
        let room = (room.saturating_sub(2 * u64::from(answer_tokens)) / 2).clamp(4, 4096) as u32;
        // Where a token may be as short as a character, the text must fit all the same.
        let characters_a_token = if room < 512 { 1 } else { CHARACTERS_A_TOKEN };
        Prompts {
            seed,
            lengths: LENGTHS.map(|length| length.min(room)),
            by_ids: facts.tokenize.filter(|_| facts.takes_ids),
            characters_a_token,
            made: std::collections::BTreeMap::new(),
        }
    }

    /// The prompt of this number.
    pub(crate) fn get(&mut self, session: &mut Session<'_>, number: u32) -> Prompt {
        if let Some(prompt) = self.made.get(&number) {
            return prompt.clone();
        }
        let prompt = self.make(session, number);
        self.made.insert(number, prompt.clone());
        prompt
    }

    fn make(&self, session: &mut Session<'_>, number: u32) -> Prompt {
        let length = self.lengths[number as usize % self.lengths.len()];
        let characters = match self.by_ids {
            // Enough for any tokenizer; ids are cut to length.
            Some(_) => length * 12,
            None => length * self.characters_a_token,
        };
        let text = text(self.seed, number, characters as usize);
        let ids = match self.by_ids {
            None => None,
            Some(Tokenize::Answers) => {
                let asked = session.one(&Call::greedy(Prompt::Text(text.clone()), 1));
                asked.ok().and_then(|exchange| exchange.answer.prompt_ids)
            }
            Some(way) => {
                let model = session.dialect.model.clone();
                tokenize(&session.client, way, &model, &text)
            }
        };
        match ids.filter(|ids| ids.len() >= 2) {
            Some(mut ids) => {
                ids.truncate(length as usize);
                Prompt::Ids(ids)
            }
            None => Prompt::Text(
                text.chars().take((length * self.characters_a_token) as usize).collect(),
            ),
        }
    }
}

/// Words that any vocabulary has.
const WORDS: [&str; 32] = [
    "river", "seven", "green", "paper", "north", "music", "under", "light", "stone", "early",
    "glass", "reads", "table", "quiet", "three", "apple", "story", "cloud", "bread", "train",
    "house", "never", "water", "field", "smile", "march", "ocean", "plain", "tiger", "brown",
    "chess", "angle",
];

/// A text that begins unlike any other: a cache of prefixes finds nothing in common.
fn text(seed: u64, number: u32, characters: usize) -> String {
    let mut random = Random::new(seed ^ u64::from(number).wrapping_mul(0xd6e8_feb8_6659_fd93));
    let mut text = format!("{:06x}", random.next() & 0xff_ffff);
    while text.len() < characters {
        text.push(if random.below(9) == 0 { ',' } else { ' ' });
        text.push_str(WORDS[random.below(WORDS.len() as u64) as usize]);
    }
    text.truncate(characters.max(8));
    text
}

/// A small generator of numbers (splitmix64): plans need to repeat, not to be random.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_plan_fits_its_budget_with_nothing_left_out() {
        for known_control in [false, true] {
            let plan = Plan::new(&Options::default(), known_control).unwrap();
            assert_eq!(plan.left_out, Vec::<String>::new(), "{}", plan.text());
            assert!(plan.requests() <= 300, "{}", plan.text());
        }
    }

    #[test]
    fn a_budget_makes_the_plan_smaller_and_says_so_and_one_too_small_is_refused() {
        let options = Options { requests_max: 120, ..Options::default() };
        let plan = Plan::new(&options, false).unwrap();
        assert!(plan.requests() <= 120 && !plan.left_out.is_empty());
        // However small, a plan has a crowd.
        for requests_max in 70..120 {
            let options = Options { requests_max, ..Options::default() };
            let plan = Plan::new(&options, false).unwrap();
            assert!(!plan.options.concurrency.is_empty(), "{}", plan.text());
        }
        let options = Options { requests_max: 20, ..Options::default() };
        assert!(matches!(Plan::new(&options, false), Err(CertifyError::BadInput(_))));
    }

    #[test]
    fn every_prompt_is_in_one_group_and_rounds_change_the_neighbours() {
        for level in [2, 3, 8, 11] {
            let groups_of = |round| groups(8, level, round, 1);
            let mut all: Vec<u32> = groups_of(0).concat();
            assert!(groups_of(0).iter().all(|group| group.len() == level as usize));
            all.retain(|prompt| *prompt < 8);
            all.sort_unstable();
            assert_eq!(all, (0..8).collect::<Vec<u32>>());
            assert_ne!(groups_of(0), groups_of(1));
        }
    }

    #[test]
    fn texts_repeat_and_begin_unlike_each_other() {
        assert_eq!(text(1, 2, 80), text(1, 2, 80));
        let mut starts: Vec<String> = (0..100).map(|n| text(1, n, 80)[..6].to_owned()).collect();
        starts.sort();
        starts.dedup();
        assert_eq!(starts.len(), 100);
        assert_eq!(text(1, 2, 80).len(), 80);
    }
}
