//! What can be wrong with a server, a field each. Numbers in brackets are the lines of the list of
//! ways in which users of certifiers fool themselves; fields without one come from what real servers
//! did.

use super::disturbances::{Disturbance, How, When};
use super::kinds::*;

/// A server: `Faults::default()` has none.
#[derive(Clone, Debug)]
pub(crate) struct Faults {
    /// Answers that differ in their bits, and when.
    pub(crate) disturbances: Vec<Disturbance>,
    /// [1, 3] The most sequences in a step; 1 is a server that batches nothing.
    pub(crate) cap: usize,
    /// [1, 2] What `/metrics` shows.
    pub(crate) gauge: Gauge,
    /// [4] Answers end after so many tokens, whatever was asked for.
    pub(crate) answer_tokens_max: Option<u32>,
    /// What stands between the client and the engine.
    pub(crate) front: Front,
    /// Whether replicas tell themselves apart, by a header `x-replica` and by their fingerprint.
    pub(crate) replicas_named: bool,
    /// [34] When requests are refused.
    pub(crate) refusals: Refusals,
    /// [7, 11] Usage counters.
    pub(crate) usage: Usage,
    /// A cache of prompt prefixes; its hits show in usage and in the time to the first token.
    pub(crate) prefix_cache: bool,
    /// Tokens of a block of that cache: a prompt that fills none leaves nothing.
    pub(crate) block_tokens: usize,
    /// Which computation of a block the cache keeps.
    pub(crate) cache_keeps: Keeps,
    /// Whether `/metrics` counts the tokens that were looked up in the cache, and those found.
    pub(crate) hit_counters: bool,
    /// [10] How a request is kept from what the cache holds.
    pub(crate) cold: Cold,
    /// [12] What the routes that empty the cache do.
    pub(crate) flush: Flush,
    /// [14] Requests of other users, always in flight.
    pub(crate) strangers: usize,
    /// [16] Decimals that logprobs are rounded to.
    pub(crate) decimals: Option<usize>,
    /// [17, 19] The alternatives of a position.
    pub(crate) alternatives: Alternatives,
    /// [16, 18, 21] Which logprobs are sent.
    pub(crate) logprobs: Logprobs,
    /// [20, 23] Where token ids are understood.
    pub(crate) ids: Ids,
    /// [21] Streams.
    pub(crate) stream: Stream,
    /// [24] Whether there is a completions route beside the chat route.
    pub(crate) chat_only: bool,
    /// Which field of a chat answer holds the text.
    pub(crate) chat_text: ChatText,
    /// Whether the chat route refuses `max_tokens` in favour of the later name.
    pub(crate) wants_max_completion_tokens: bool,
    /// [24] A token of its own in front of a prompt that is text.
    pub(crate) begins_text: bool,
    /// [24] A template that changes from request to request (a date, a counter).
    pub(crate) moving_template: bool,
    /// [25] What the server makes of parameters.
    pub(crate) parameters: Parameters,
    /// Fields that are refused whatever they hold, the first of them that a request has.
    pub(crate) refused_fields: &'static [&'static str],
    /// Whether the refusal says which field it was.
    pub(crate) refusals_name_fields: bool,
    /// Whether a request may hold a list of prompts.
    pub(crate) many_prompts: bool,
    /// [26] Seeds.
    pub(crate) seeds: Seeds,
    /// Prompt scores (`echo` with logprobs).
    pub(crate) echo: Echo,
    /// Answers that are no answers.
    pub(crate) hostile: Option<Hostile>,
    /// Requests for completions that are answered properly before `hostile` begins.
    pub(crate) hostile_after: u64,
    /// Requests for completions that are taken before the server is killed: the next one, and all
    /// that are in flight, find their connections closed, and nobody listens any more.
    pub(crate) dies_after: Option<u64>,
    /// The same, so many milliseconds after the first request for a completion.
    pub(crate) dies_after_ms: Option<u64>,
    /// What the path of each request must have after its question mark; other paths are not found.
    pub(crate) needs_query: Option<&'static str>,
    /// Whether the metrics have an address of their own.
    pub(crate) metrics_elsewhere: bool,
    /// Who owns the model: the kind of the server shows there.
    pub(crate) owned_by: &'static str,
    /// [30] Which life of the server this is; a fault may live in one of them.
    pub(crate) life: u64,
    /// Most tokens of prompt and answer.
    pub(crate) context_tokens_max: usize,
    /// Time of a step in microseconds.
    pub(crate) step_us: u64,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            disturbances: Vec::new(),
            cap: 512,
            gauge: Gauge::Vllm,
            answer_tokens_max: None,
            front: Front::None,
            replicas_named: false,
            refusals: Refusals::Never,
            usage: Usage::Whole,
            prefix_cache: true,
            block_tokens: 16,
            cache_keeps: Keeps::First,
            hit_counters: false,
            cold: Cold::Salt,
            flush: Flush::Works,
            strangers: 0,
            decimals: None,
            alternatives: Alternatives::AsAsked,
            logprobs: Logprobs::Raw,
            ids: Ids::Everywhere,
            stream: Stream::Whole,
            chat_only: false,
            chat_text: ChatText::Content,
            wants_max_completion_tokens: false,
            begins_text: false,
            moving_template: false,
            parameters: Parameters::Honoured,
            refused_fields: &[],
            refusals_name_fields: true,
            many_prompts: true,
            seeds: Seeds::Honoured,
            echo: Echo::Scored,
            hostile: None,
            hostile_after: 0,
            dies_after: None,
            dies_after_ms: None,
            needs_query: None,
            metrics_elsewhere: false,
            owned_by: "test",
            life: 0,
            context_tokens_max: 2048,
            step_us: 1000,
        }
    }
}

impl Faults {
    /// A server whose answers differ when `when`, and are right otherwise.
    pub(crate) fn disturbed(when: When, how: How) -> Self {
        Self { disturbances: vec![Disturbance { when, how, rate: 1.0 }], ..Self::default() }
    }
}
