//! Answers. Log-probabilities are f32 and written as such: the shortest decimal that reads back as the same f32.

use serde::Serialize;

use super::logprobs::{ChatLogprobs, Logprobs};

/// Tokens of a request.
#[derive(Clone, Copy, Debug, Serialize)]
pub(in crate::serve) struct Usage {
    pub(in crate::serve) prompt_tokens: usize,
    pub(in crate::serve) completion_tokens: usize,
    pub(in crate::serve) total_tokens: usize,
    pub(in crate::serve) prompt_tokens_details: PromptTokens,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(in crate::serve) struct PromptTokens {
    /// Those that the prefix cache served.
    pub(in crate::serve) cached_tokens: usize,
}

/// What ended a choice otherwise than an end-of-sequence token or its length.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(in crate::serve) enum StopReason {
    Token(u32),
    Text(String),
}

/// An answer, or a piece of a stream.
#[derive(Debug, Serialize)]
pub(in crate::serve) struct Answer<'a, C> {
    pub(in crate::serve) id: &'a str,
    pub(in crate::serve) object: &'static str,
    pub(in crate::serve) created: u64,
    pub(in crate::serve) model: &'a str,
    pub(in crate::serve) system_fingerprint: &'a str,
    pub(in crate::serve) choices: Vec<C>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::serve) usage: Option<Usage>,
    /// Of a chat; a completion has a list a choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::serve) prompt_token_ids: Option<Vec<u32>>,
}

/// A choice of a completion, or a piece of one.
#[derive(Debug, Serialize)]
pub(in crate::serve) struct TextChoice {
    pub(in crate::serve) index: usize,
    pub(in crate::serve) text: String,
    pub(in crate::serve) logprobs: Option<Logprobs>,
    pub(in crate::serve) finish_reason: Option<&'static str>,
    pub(in crate::serve) stop_reason: Option<StopReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::serve) prompt_token_ids: Option<Vec<u32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::serve) token_ids: Option<Vec<u32>>,
}

/// A choice of a chat.
#[derive(Debug, Serialize)]
pub(in crate::serve) struct ChatChoice {
    pub(in crate::serve) index: usize,
    pub(in crate::serve) message: Message,
    pub(in crate::serve) logprobs: Option<ChatLogprobs>,
    pub(in crate::serve) finish_reason: Option<&'static str>,
    pub(in crate::serve) stop_reason: Option<StopReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::serve) token_ids: Option<Vec<u32>>,
}

#[derive(Debug, Serialize)]
pub(in crate::serve) struct Message {
    pub(in crate::serve) role: &'static str,
    pub(in crate::serve) content: String,
    pub(in crate::serve) refusal: Option<String>,
}

/// A piece of a choice of a chat.
#[derive(Debug, Serialize)]
pub(in crate::serve) struct ChatPiece {
    pub(in crate::serve) index: usize,
    pub(in crate::serve) delta: Delta,
    pub(in crate::serve) logprobs: Option<ChatLogprobs>,
    pub(in crate::serve) finish_reason: Option<&'static str>,
    pub(in crate::serve) stop_reason: Option<StopReason>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::serve) token_ids: Option<Vec<u32>>,
}

#[derive(Debug, Serialize)]
pub(in crate::serve) struct Delta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(in crate::serve) role: Option<&'static str>,
    pub(in crate::serve) content: String,
}
