//! What will be sent: levels, groups, costs. A function of the options and the seed, so that the same plan is made again.

use std::fmt::Write as _;

use super::certificate::Arm;
use super::error::CertifyError;
use super::options::Options;
use super::random::Random;

/// Prompts of the arms that ask few things of each.
pub(crate) const FEW: u32 = 4;
/// Prompts whose order of arrival is turned round.
pub(crate) const ORDERED: u32 = 8;
/// Prompts that a server which is known to depend on the batch is asked.
pub(crate) const CONTROL_PROMPTS: u32 = 6;
/// Requests that finding out about a server takes at most, as far as no field is refused.
const PROBES: u64 = 26;
/// Tokens a second that times are given for.
const TOKENS_A_SECOND: f64 = 1000.0;

/// What a run comes to at most.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The options, made smaller until they fit their own budgets.
    pub options: Options,
    /// Requests and tokens of each part.
    pub parts: Vec<Part>,
    /// What was left out to fit.
    pub left_out: Vec<String>,
}

/// A part of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Its name.
    pub name: String,
    /// Requests at most.
    pub requests: u64,
    /// Tokens of prompts and answers, taking prompts at their mean length.
    pub tokens: u64,
}

impl Plan {
    /// The largest plan within the budgets. Rounds go first, then prompts, then the arms that cost most for what they see, then
    /// the largest level.
    pub fn new(options: &Options, known_control: bool) -> Result<Plan, CertifyError> {
        options.check()?;
        let mut options = options.clone();
        options.concurrency.sort_unstable();
        options.concurrency.dedup();
        if !options.own_prompts.is_empty() {
            options.prompts = options.own_prompts.len() as u32;
        }
        options.rounds = Some(options.rounds());
        let mut left_out = Vec::new();
        loop {
            let plan = Plan { parts: parts(&options, known_control), options, left_out };
            if plan.requests() <= plan.options.requests_max
                && plan.tokens() <= plan.options.tokens_max
            {
                return Ok(plan);
            }
            let (requests, tokens) = (plan.requests(), plan.tokens());
            (options, left_out) = (plan.options, plan.left_out);
            let droppable =
                [Arm::Score, Arm::Stream, Arm::Seed, Arm::Order, Arm::ManyPrompts, Arm::Time];
            let dropped = droppable.into_iter().find(|arm| options.arms.contains(arm));
            if options.rounds() > 1 {
                options.rounds = Some(options.rounds() - 1);
                left_out.push("a round of each level".into());
            } else if options.prompts > 2 * FEW && options.own_prompts.is_empty() {
                options.prompts = (options.prompts / 2).max(2 * FEW);
                left_out.push(format!("prompts beyond {}", options.prompts));
            } else if options.concurrency.len() > 1 {
                let level = options.concurrency.pop().expect("more than one level");
                left_out.push(format!("crowds of {level}"));
            } else if let Some(arm) = dropped {
                options.arms.retain(|other| *other != arm);
                left_out.push(format!("arm {arm}"));
            } else if options.prompts > FEW && options.own_prompts.is_empty() {
                options.prompts = FEW;
                left_out.push(format!("prompts beyond {FEW}"));
            } else {
                return Err(CertifyError::BadInput(format!(
                    "the smallest plan takes {requests} requests and {tokens} tokens, more than the {} and {} that are allowed",
                    options.requests_max, options.tokens_max
                )));
            }
        }
    }

    /// Requests at most.
    pub fn requests(&self) -> u64 {
        self.parts.iter().map(|part| part.requests).sum()
    }

    /// Tokens at most, taking prompts at their mean length.
    pub fn tokens(&self) -> u64 {
        self.parts.iter().map(|part| part.tokens).sum()
    }

    /// Why no level can be called held, if none can.
    pub fn shortfall(&self) -> Option<String> {
        let least = self.options.answers_min;
        let most = self.options.answers_a_round() * u64::from(self.options.rounds());
        (0 < most && most < least).then(|| {
            format!(
                "held takes {least} answers in crowds at a level, and this plan asks for {most} (--prompts, --rounds, --max-requests, --min-answers)"
            )
        })
    }

    /// The plan as text.
    pub fn text(&self) -> String {
        let mut out = String::new();
        let options = &self.options;
        let _ = writeln!(
            out,
            "seed {}, {} prompts of {} tokens, {} answers alone after the first, crowds of {} in {}, answers of {} tokens",
            options.seed,
            options.prompts,
            lengths_in_words(options),
            options.repeats,
            list(&options.concurrency),
            if options.rounds() == 1 {
                "1 round".into()
            } else {
                format!("{} rounds", options.rounds())
            },
            options.answer_tokens
        );
        for part in &self.parts {
            let Part { name, requests, tokens } = part;
            let _ = writeln!(out, "{name:<18} {requests:>6} requests {tokens:>9} tokens");
        }
        for what in &self.left_out {
            let _ = writeln!(out, "left out to fit the budget: {what}");
        }
        if let Some(why) = self.shortfall() {
            let _ = writeln!(out, "no level can be held: {why}");
        }
        let (requests, tokens) = (self.requests(), self.tokens());
        let _ = writeln!(
            out,
            "at most {requests} requests and about {tokens} tokens: {:.0} s at {TOKENS_A_SECOND} tokens a second, prompts counted like answers",
            tokens as f64 / TOKENS_A_SECOND
        );
        let _ = write!(
            out,
            "budget: {} requests, {} tokens, {:.0} s; what is left is for making a difference small",
            options.requests_max,
            options.tokens_max,
            options.time_max.as_secs_f64()
        );
        out
    }
}

fn list(numbers: &[u32]) -> String {
    numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

fn lengths_in_words(options: &Options) -> String {
    let lengths = options.prompt_tokens.iter().copied();
    match (options.own_prompts.is_empty(), lengths.clone().min(), lengths.max()) {
        (true, Some(least), Some(most)) if least < most => format!("{least} to {most}"),
        (true, Some(least), _) => least.to_string(),
        _ => "their own number of".into(),
    }
}

/// Requests and tokens of each part, at most.
fn parts(options: &Options, known_control: bool) -> Vec<Part> {
    let prompts = u64::from(options.prompts);
    let few = prompts.min(FEW.into());
    let (rounds, repeats) = (u64::from(options.rounds()), u64::from(options.repeats));
    let levels = || options.concurrency.iter().copied();
    let crowds: u64 = levels().map(|level| crowd_cost(level, options.prompts)).sum();
    let mixed: u64 = levels()
        .map(|level| {
            let crowds = options.prompts.div_ceil(judged_among_new(level, options.prompts));
            u64::from(crowds * level)
        })
        .sum();
    let order = crowd_cost(smallest_level(options), options.prompts.min(ORDERED));
    let all: u64 = levels().map(u64::from).sum();
    let cost = |arm: Arm| match arm {
        Arm::First => 0,
        Arm::Repeat => prompts * (repeats + 1),
        // The same answers as those of cold crowds, alone.
        Arm::Prefix if options.asks(Arm::ConcurrentCold) => 0,
        Arm::Prefix => 2 * prompts,
        Arm::Stream => 2 * few,
        Arm::Score => few,
        // Where nothing but new prompts is cold, each is asked alone after its crowd; else twice before all.
        Arm::ConcurrentCold => {
            crowds * rounds + prompts * (options.concurrency.len() as u64 * rounds).max(2)
        }
        Arm::ConcurrentWarm => crowds * rounds,
        Arm::ConcurrentMixed => mixed * rounds,
        Arm::Order => 2 * order,
        Arm::ManyPrompts => 2,
        Arm::Seed => few * 3 + u64::from(smallest_level(options)),
        Arm::After => prompts,
        Arm::Time => 2 * few,
    };
    // With a server that is known to depend on the batch, repeats of some prompts too.
    let control = all + if known_control { prompts.min(CONTROL_PROMPTS.into()) * 3 } else { 0 };
    let lengths = options.prompt_tokens.iter().map(|n| u64::from(*n)).sum::<u64>();
    let mean = lengths / options.prompt_tokens.len() as u64;
    let part = |name: &str, requests: u64| {
        let tokens = match name {
            "probe" => requests * 80,
            _ => requests * (mean + u64::from(options.answer_tokens)),
        };
        Part { name: name.into(), requests, tokens }
    };
    let mut parts = vec![part("probe", PROBES), part("positive control", control)];
    let asked = Arm::ALL.into_iter().filter(|arm| options.asks(*arm));
    parts.extend(asked.map(|arm| part(arm.name(), cost(arm))).filter(|part| part.requests > 0));
    parts
}

/// The level of the arms that ask at one only: order of arrival, and seeds.
pub(crate) fn smallest_level(options: &Options) -> u32 {
    options.concurrency.iter().copied().min().unwrap_or(2)
}

/// Requests of one round of a level.
fn crowd_cost(level: u32, prompts: u32) -> u64 {
    u64::from(level) * u64::from(prompts.div_ceil(level))
}

/// Judged requests in a crowd of `level` whose others are new: half of it, or all prompts.
pub(crate) fn judged_among_new(level: u32, prompts: u32) -> u32 {
    (level / 2).clamp(1, prompts)
}

/// Numbers of prompts in groups of `size`. Another round puts other neighbours together.
pub(crate) fn groups(prompts: u32, size: u32, round: u32, seed: u64) -> Vec<Vec<u32>> {
    let mut order: Vec<u32> = (0..prompts).collect();
    let mut random = Random::new(seed ^ u64::from(size) << 32 ^ u64::from(round) << 16);
    for i in (1..order.len()).rev() {
        order.swap(i, random.below(i as u64 + 1) as usize);
    }
    order.chunks(size as usize).map(<[u32]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_plan_fits_its_budget_with_nothing_left_out() {
        for known_control in [false, true] {
            let plan = Plan::new(&Options::default(), known_control).unwrap();
            assert_eq!(plan.left_out, Vec::<String>::new(), "{}", plan.text());
            // Ten minutes at 1,000 tokens a second.
            assert!(plan.tokens() <= 600_000, "{}", plan.text());
        }
    }

    #[test]
    fn a_budget_makes_the_plan_smaller_and_says_so_and_one_too_small_is_refused() {
        let options = Options { requests_max: 200, ..Options::default() };
        let plan = Plan::new(&options, false).unwrap();
        assert!(plan.requests() <= 200 && !plan.left_out.is_empty());
        // However small, a plan has a crowd.
        for requests_max in 120..200 {
            let options = Options { requests_max, ..Options::default() };
            let plan = Plan::new(&options, false).unwrap();
            assert!(!plan.options.concurrency.is_empty(), "{}", plan.text());
        }
        let options = Options { requests_max: 20, ..Options::default() };
        assert!(matches!(Plan::new(&options, false), Err(CertifyError::BadInput(_))));
    }

    #[test]
    fn rounds_are_enough_for_held_unless_they_are_given_or_too_dear() {
        let plan = |options: Options| Plan::new(&options, false).unwrap();
        assert_eq!(plan(Options::default()).options.rounds, Some(1));
        let few = Options { prompts: 3, concurrency: vec![2], ..Options::default() };
        let made = plan(few.clone());
        assert_eq!((made.options.rounds, made.shortfall()), (Some(5), None), "{}", made.text());
        let given = plan(Options { rounds: Some(3), ..few.clone() });
        assert_eq!(given.options.rounds, Some(3));
        assert!(given.text().contains("no level can be held: held takes 29 answers"));
        assert!(given.text().contains("asks for 27 "), "{}", given.text());
        // One more a round, and it is enough.
        assert_eq!(plan(Options { rounds: Some(3), prompts: 4, ..few.clone() }).shortfall(), None);
        let dear = plan(Options { requests_max: 110, ..few.clone() });
        assert!(dear.options.rounds < Some(5) && dear.shortfall().is_some(), "{}", dear.text());
        // Who asks for no crowds is not told of them.
        let alone = Options { arms: vec![Arm::First], ..few };
        assert_eq!((plan(alone.clone()).shortfall(), plan(alone).options.rounds), (None, Some(1)));
    }

    #[test]
    fn levels_are_asked_in_rising_order_and_once() {
        let options = Options { concurrency: vec![8, 2, 8], ..Options::default() };
        assert_eq!(Plan::new(&options, false).unwrap().options.concurrency, [2, 8]);
    }

    #[test]
    fn every_prompt_is_in_one_group_and_rounds_change_the_neighbours() {
        for size in [2, 3, 8, 11] {
            let groups_of = |round| groups(8, size, round, 1);
            let mut all: Vec<u32> = groups_of(0).concat();
            all.sort_unstable();
            assert_eq!(all, (0..8).collect::<Vec<u32>>());
            assert_ne!(groups_of(0), groups_of(1));
        }
    }

    /// Half of a small crowd is judged, and of a large one each prompt once.
    #[test]
    fn new_neighbours_are_at_least_half_of_a_crowd() {
        let judged: Vec<u32> = [2, 3, 4, 16, 64].map(|level| judged_among_new(level, 16)).into();
        assert_eq!(judged, [1, 1, 2, 8, 16]);
    }
}
