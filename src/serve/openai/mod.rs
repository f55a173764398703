//! OpenAI's protocol as data: parameters as they come, answers as they go. Nothing here knows the engine.

pub(super) mod asked;
pub(super) mod fields;
pub(super) mod logprobs;
pub(super) mod wire;
