//! Prompts by number: those that are judged, those that fill crowds, and new ones that the server can't have seen.
//!
//! A prompt is a function of the number of the run (seed and nonce) and of its own. Token ids are picked from those of a text of plain
//! words, so that a length is met exactly; where a server takes no ids, text of about that length is sent.

use std::collections::BTreeMap;

use super::options::{Options, OwnPrompt};
use super::probe::{Facts, Tokenize, tokenize};
use super::random::Random;
use super::session::Session;
use super::wire::{Call, Prompt};

/// First number of prompts that fill crowds; they are sent again and again.
const FILLERS: u32 = 1 << 16;
/// First number of prompts that are sent in one place only.
const FRESH: u32 = 1 << 20;
/// Lengths of prompts are multiplied by this before they are taken in turn, so that fillers do not follow the judged ones.
const FILLER_STEP: u32 = 7;
/// Tokens kept free of a context beyond prompt and answers: for what a template or a tokenizer adds.
const SPARE: u64 = 16;
/// Longest prompt where the server does not say how many tokens it takes.
const TOKENS_UNASKED_MAX: u32 = 2048;

/// Prompts, made as they are needed.
pub(crate) struct Prompts {
    seed: u64,
    lengths: Vec<u32>,
    own: Vec<Prompt>,
    /// Ids that prompts are made of; empty where text is sent.
    pool: Option<Vec<u32>>,
    way: Option<Tokenize>,
    characters_a_token: f64,
    made: BTreeMap<u32, Prompt>,
    fresh: u32,
}

impl Prompts {
    pub(crate) fn new(options: &Options, run_number: u64, facts: &Facts) -> Prompts {
        // Two answers: the arm that scores sends prompt and answer as one prompt, and new neighbours answer at twice the length.
        let room = facts.server.context_max.map(|context| {
            context.saturating_sub(2 * u64::from(options.answer_tokens) + SPARE).clamp(4, 1 << 20)
        });
        let room = room.map_or(TOKENS_UNASKED_MAX, |room| room as u32);
        let own = options.own_prompts.iter().map(|own| match own {
            OwnPrompt::Text(text) => Prompt::Text(text.clone()),
            OwnPrompt::Ids(ids) => Prompt::Ids(ids.clone()),
        });
        Prompts {
            seed: run_number,
            lengths: options.prompt_tokens.iter().map(|length| (*length).min(room)).collect(),
            own: own.collect(),
            pool: None,
            way: facts.tokenize.filter(|_| facts.takes_ids),
            characters_a_token: facts.characters_a_token,
            made: BTreeMap::new(),
            fresh: FRESH,
        }
    }

    /// The judged prompt of this number.
    pub(crate) fn judged(&mut self, session: &mut Session<'_>, number: u32) -> Prompt {
        if let Some(own) = self.own.get(number as usize) {
            return own.clone();
        }
        self.get(session, number, number)
    }

    /// A prompt that fills a crowd, and is sent again in others.
    pub(crate) fn filler(&mut self, session: &mut Session<'_>, number: u32) -> Prompt {
        self.get(session, FILLERS + number, number.wrapping_mul(FILLER_STEP) + 3)
    }

    /// A prompt that was not sent before and will not be sent in another place, as long as the judged one of this number.
    pub(crate) fn fresh(&mut self, session: &mut Session<'_>, like: u32) -> Prompt {
        self.fresh += 1;
        self.make(session, self.fresh, like)
    }

    /// A new prompt for a neighbour: mostly long ones, which take a step or more to read.
    pub(crate) fn fresh_neighbour(&mut self, session: &mut Session<'_>, number: u32) -> Prompt {
        self.fresh += 1;
        let mut lengths: Vec<u32> = self.lengths.clone();
        lengths.sort_unstable();
        let long = &lengths[lengths.len() / 2..];
        let length = match number % 4 {
            3 => lengths[number as usize % lengths.len()],
            _ => long[(number.wrapping_mul(FILLER_STEP) as usize + 1) % long.len()],
        };
        self.of_length(session, self.fresh, length)
    }

    /// The judged prompts among the first `count`, as far as they were made.
    pub(crate) fn made(&self, count: u32) -> Vec<Prompt> {
        let of = |n| self.own.get(n as usize).or_else(|| self.made.get(&n)).cloned();
        (0..count).filter_map(of).collect()
    }

    fn get(&mut self, session: &mut Session<'_>, key: u32, turn: u32) -> Prompt {
        if let Some(prompt) = self.made.get(&key) {
            return prompt.clone();
        }
        let prompt = self.make(session, key, turn);
        self.made.insert(key, prompt.clone());
        prompt
    }

    fn make(&mut self, session: &mut Session<'_>, key: u32, turn: u32) -> Prompt {
        let length = self.lengths[turn as usize % self.lengths.len()];
        self.of_length(session, key, length)
    }

    fn of_length(&mut self, session: &mut Session<'_>, key: u32, length: u32) -> Prompt {
        let mut random =
            Random::new(self.seed ^ u64::from(key).wrapping_mul(0xd6e8_feb8_6659_fd93));
        if self.pool.is_none() {
            self.pool =
                Some(self.learn(session).filter(|pool| pool.len() >= 64).unwrap_or_default());
        }
        let pool = self.pool.as_deref().unwrap_or_default();
        let Some((first, rest)) = pool.split_first() else {
            let characters = (f64::from(length) * self.characters_a_token) as usize;
            return Prompt::Text(text(&mut random, characters));
        };
        // The first id may be one that begins every prompt.
        let ids = (1..length).map(|_| rest[random.below(rest.len() as u64) as usize]);
        Prompt::Ids([*first].into_iter().chain(ids).collect())
    }

    /// Ids of a text of plain words, by whatever way the server has.
    fn learn(&self, session: &mut Session<'_>) -> Option<Vec<u32>> {
        let text = text(&mut Random::new(self.seed), 900);
        match self.way? {
            Tokenize::Answers => {
                let asked = session.one(&Call::greedy(Prompt::Text(text), 1));
                asked.ok().and_then(|exchange| exchange.answer.prompt_ids)
            }
            way => {
                let model = session.dialect.model.clone();
                tokenize(&session.client, way, &model, &text)
            }
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

/// A prompt as long as this one that the server has not seen: the same ids in another order after the first, or a text that begins
/// otherwise.
pub(super) fn renewed(prompt: &Prompt, salt: u64) -> Prompt {
    let mut random = Random::new(salt);
    match prompt {
        Prompt::Ids(ids) => {
            let mut ids = ids.clone();
            for i in (2..ids.len()).rev() {
                ids.swap(i, 1 + random.below(i as u64) as usize);
            }
            Prompt::Ids(ids)
        }
        Prompt::Text(text) => {
            let head = format!("{:08x}", random.next() & 0xffff_ffff);
            let length = text.chars().count();
            Prompt::Text(head.chars().chain(text.chars().skip(8)).take(length).collect())
        }
    }
}

/// A text that begins unlike any other: a cache of prefixes finds nothing in common.
fn text(random: &mut Random, characters: usize) -> String {
    let mut text = format!("{:08x}", random.next() & 0xffff_ffff);
    while text.len() < characters {
        text.push(if random.below(9) == 0 { ',' } else { ' ' });
        text.push_str(WORDS[random.below(WORDS.len() as u64) as usize]);
    }
    text.truncate(characters.max(8));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_repeat_and_begin_unlike_each_other() {
        let of = |n: u64| text(&mut Random::new(n), 80);
        assert_eq!(of(2), of(2));
        let mut starts: Vec<String> = (0..100).map(|n| of(n)[..8].to_owned()).collect();
        starts.sort();
        starts.dedup();
        assert_eq!(starts.len(), 100);
        assert_eq!(of(2).len(), 80);
    }

    #[test]
    fn a_renewed_prompt_is_as_long_and_another() {
        let ids = Prompt::Ids((0..40).collect());
        let Prompt::Ids(other) = renewed(&ids, 1) else { panic!("ids stay ids") };
        assert_eq!((other.len(), other[0]), (40, 0));
        assert_ne!((renewed(&ids, 1), &ids), (renewed(&ids, 2), &Prompt::Ids(other)));
        let text = Prompt::Text("a text of words".into());
        assert_eq!(renewed(&text, 1).length(), 15);
        assert_ne!(renewed(&text, 1), renewed(&text, 2));
        assert_eq!(renewed(&Prompt::Text("abc".into()), 1).length(), 3);
        assert_eq!(renewed(&Prompt::Ids(vec![7]), 1), Prompt::Ids(vec![7]));
    }

    /// Lengths are met to the token, and prompts of the same number of another run begin otherwise.
    #[test]
    fn lengths_are_those_asked_for_as_far_as_the_context_goes() {
        let mut facts = Facts::default();
        facts.server.context_max = Some(600);
        let prompts = Prompts::new(&Options::default(), 1, &facts);
        assert_eq!(prompts.lengths[..4], [17, 257, 64, 520]);
        assert_ne!(prompts.seed, Prompts::new(&Options::default(), 2, &facts).seed);
    }
}
