//! What can be wrong with a server, a field each. Numbers in brackets are the lines of the list of
//! ways in which users of certifiers fool themselves.

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
    /// [34] When requests are refused with 429.
    pub(crate) refusals: Refusals,
    /// [7, 11] Usage counters.
    pub(crate) usage: Usage,
    /// A cache of prompt prefixes; its hits show in usage and in the time to the first token.
    pub(crate) prefix_cache: bool,
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
    /// [24] A token of its own in front of a prompt that is text.
    pub(crate) begins_text: bool,
    /// [24] A template that changes from request to request (a date, a counter).
    pub(crate) moving_template: bool,
    /// [25] What the server makes of parameters.
    pub(crate) parameters: Parameters,
    /// [26] Seeds.
    pub(crate) seeds: Seeds,
    /// Prompt scores (`echo` with logprobs).
    pub(crate) echo: Echo,
    /// Answers that are no answers.
    pub(crate) hostile: Option<Hostile>,
    /// Requests for completions that are answered properly before `hostile` begins.
    pub(crate) hostile_after: u64,
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
            refusals: Refusals::Never,
            usage: Usage::Whole,
            prefix_cache: true,
            cold: Cold::Salt,
            flush: Flush::Works,
            strangers: 0,
            decimals: None,
            alternatives: Alternatives::AsAsked,
            logprobs: Logprobs::Raw,
            ids: Ids::Everywhere,
            stream: Stream::Whole,
            chat_only: false,
            begins_text: false,
            moving_template: false,
            parameters: Parameters::Honoured,
            seeds: Seeds::Honoured,
            echo: Echo::Scored,
            hostile: None,
            hostile_after: 0,
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

#[derive(Clone, Copy, Debug)]
pub(crate) struct Disturbance {
    pub(crate) when: When,
    pub(crate) how: How,
    /// [30] The share of the requests that meet `when` and differ.
    pub(crate) rate: f64,
}

/// What an answer depends on that it must not depend on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum When {
    /// [3] So many sequences in the step.
    InFlight(usize),
    /// [5] Prompts of other lengths in the step.
    OtherLengths,
    /// [8] Among the first requests of the server's life.
    FirstRequests(u64),
    /// [9] The first time that this very prompt is seen.
    FirstOfPrompt,
    /// [8] The third and later times that this very prompt is seen: A,A,B,B.
    ThirdOfPrompt,
    /// [10] Some of the prompt came from the cache.
    Warm,
    /// [13] After so many requests.
    AfterRequests(u64),
    /// The place in the step is odd: the order of arrival.
    OddPlace,
    /// [29] Each request has bits of its own.
    EachRequest,
    /// [21] The answer is streamed.
    Streamed,
    /// A temperature above 0, with company: the noise of a neighbour.
    SampledInFlight,
    /// [31] With company, for prompts of one length: the first that had company.
    OneLengthInFlight,
    /// Always: a replica whose bits are others.
    Always,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum How {
    /// [27] Small values added to all logits.
    Drift(f32),
    /// [27] From the third token on, the context is a stranger's.
    Foreign,
    /// [20] A token is replaced by another of the same text.
    Twin,
    /// [22] The answer ends two tokens early.
    Shorter,
    /// [22] The finish reason alone.
    FinishReason,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Gauge {
    Vllm,
    Sglang,
    LlamaCpp,
    Missing,
    /// Shows 0 for ever.
    Stuck,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Front {
    None,
    /// [6] A proxy that passes one request at a time.
    OneAtATime,
    /// [7] Equal bodies get the stored answer, byte for byte.
    Cache,
    /// [7] The same with a fresh id and no usage.
    CacheFreshIds,
    /// [7] Each request is run twice, and the second answer is passed on.
    RunsTwice,
    /// Two servers take turns; the second one's bits differ.
    ReplicasByTurns,
    /// The same, but each connection stays with one of them.
    ReplicasByConnection,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Refusals {
    Never,
    /// Every nth request.
    Every(u64),
    /// More than so many at once.
    Above(usize),
    /// All after so many.
    After(u64),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Usage {
    Whole,
    None,
    WithoutCached,
    /// Cached tokens rounded down to a multiple.
    CachedRounded(usize),
    /// Cached tokens counted once a sample.
    CachedTimesSamples,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cold {
    /// By a field `cache_salt`.
    Salt,
    /// By a field `cache_prompt`.
    Prompt,
    /// Not at all.
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Flush {
    Works,
    Refused,
    Hangs,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Alternatives {
    AsAsked,
    /// At most so many.
    Cut(usize),
    WithoutSampled,
    /// The sampled token is listed once more at the end.
    SampledTwice,
    /// The last ones are null, -9999 or -Infinity by turns.
    OddValues,
    /// Another order in each answer.
    Shuffled,
    /// Every second answer has one alternative fewer.
    FewerByTurns,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Logprobs {
    Raw,
    /// After the temperature.
    Processed,
    /// Raw, and by turns after a temperature that nobody asked for.
    Mixed,
    Null,
    NullInStream,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Ids {
    Everywhere,
    /// Refused in prompts, never returned.
    Nowhere,
    /// The ids returned are not those of the text.
    Mismatched,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Stream {
    Whole,
    /// Events hold several tokens when the server is busy.
    Merged,
    WithoutLast,
    /// No `[DONE]`, no finish reason: the connection just ends.
    CutOff,
    Refused,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Parameters {
    Honoured,
    /// Those that the first OpenAI interface did not have are refused.
    ExtrasRefused,
    /// A temperature of 0 counts as not set.
    ZeroIsUnset,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Seeds {
    Honoured,
    Ignored,
    /// One seed for the life of the server.
    OfProcess,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Echo {
    Scored,
    Refused,
    /// Prompt scores drift from those of decoding.
    Drifts,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Hostile {
    HugeBody,
    EndlessStream,
    InvalidUtf8,
    NotANumber,
    HugeNumber,
    Html,
    Redirect,
    ResetInBody,
    SlowBytes,
    Silent,
    ServerError,
    EmptyBody,
    CutJson,
    DeepJson,
    LongHeader,
    LongLine,
    WrongTypes,
}
