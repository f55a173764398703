//! The kinds of what a server may be and do, one enum a field of `Faults`. Numbers in brackets as
//! there.

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Gauge {
    Vllm,
    Sglang,
    LlamaCpp,
    Missing,
    /// Shows 0 for ever.
    Stuck,
    /// Shows all requests that were taken as running, those that wait among them.
    Lying,
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
    /// The same by chance, request by request.
    ReplicasRandom,
    /// The same by the client: by its key, or by its address where it has none.
    ReplicasSticky,
    /// The second one gets what comes while so many are in flight at the first.
    ReplicasSpilling(usize),
}

impl Front {
    /// Each of two replicas has bits of its own, which neither company nor time changes.
    pub(crate) fn has_replicas(self) -> bool {
        use Front::*;
        matches!(
            self,
            ReplicasByTurns
                | ReplicasByConnection
                | ReplicasRandom
                | ReplicasSticky
                | ReplicasSpilling(_)
        )
    }
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
    /// More than so many at once, with 503 instead of 429.
    Unavailable(usize),
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
pub(crate) enum Keeps {
    /// A block that is computed again stays what it was first.
    First,
    /// The last computation of a block counts, that of a request which took nothing from the cache
    /// among them: slots work so.
    Last,
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
    /// Each value is 0, and only the token itself is listed.
    Zeros,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ChatText {
    Content,
    /// `content` is null, and the text is in `reasoning`.
    Reasoning,
    /// The same in `reasoning_content`.
    ReasoningContent,
    /// `content` is null, and no other field has the text.
    Nowhere,
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
    /// Three tokens an event, and the record of the last of them alone.
    OneRecordAChunk,
    /// No records but that of the last token of all.
    LastRecordOnly,
    /// Three tokens an event; the alternatives of each are those of the first.
    AlternativesOfFirst,
    /// After `[DONE]` the body never ends.
    StaysOpen,
    /// Usage counts one token too many.
    WrongUsage,
    /// The finish reason is the other one.
    WrongFinish,
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
