//! Answers that are not what they should be: what they depend on, and what becomes of them.

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
    /// Others wait for a place: what they hold back may be taken from those that run.
    OthersWait,
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
    /// With company, for prompts of more than so many tokens: past a tile, a chunk or the
    /// threshold of a kernel.
    PromptTokensAbove(usize),
    /// Another's prefill, of at least so many tokens that the cache did not have, is in the step in
    /// which this one decodes.
    PrefillInStep(usize),
    /// Some of the prompt was computed in company, now or when it was left in the cache: a prefill whose bits depend on the
    /// batch.
    ReadInCompany,
    /// Some of the prompt came from the cache, and was computed in company there.
    WarmFromCrowd,
    /// Some of the prompt came from the cache, and each such request has bits of its own.
    EachWarm,
    /// One of several prompts of a request.
    ManyPrompts,
    /// [30] In this life of the server.
    InLife(u64),
    /// [30] So many sequences in the step, in this life of the server.
    InFlightInLife(usize, u64),
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
    /// No log-probability is sent.
    Blind,
    /// The answer ends after a few tokens, its finish reason "abort".
    Abort,
    /// The same without a reason: null, or an end marker that nothing explains.
    NoReason,
    /// The same with an empty reason and no end marker: the body ends, the connection closes.
    EmptyReason,
}
