//! Counts of answers and of different answers, in the words that people paste from other testers: total samples, unique
//! samples, by length of the prompt and by size of the batch.
//!
//! Only greedy answers to the judged prompts are counted, alone and in crowds. Where log-probabilities came with an answer,
//! different ones are counted too: equal texts hide them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::wire::{Answer, Call, Prompt, Sampling};

/// sha256 of some bytes, in hex.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes).into())
}

pub(crate) fn hex(kind: &Kind) -> String {
    kind.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Counts of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Samples {
    /// A line a prompt.
    pub prompts: Vec<PromptSamples>,
    /// A line a number of requests sent at once.
    pub batch_sizes: Vec<BatchSamples>,
}

/// Answers to one prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PromptSamples {
    /// Number of the prompt.
    pub prompt: u32,
    /// Its length in tokens, or in characters where the server counts none.
    pub prefix_length: u64,
    /// Answers.
    pub total: u64,
    /// Different texts.
    pub unique: u64,
    /// Different tokens or log-probabilities, where answers have them.
    pub unique_logprobs: Option<u64>,
}

/// Answers to requests that were sent with so many others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BatchSamples {
    /// Requests sent at once.
    pub batch_size: u32,
    /// Answers.
    pub total: u64,
    /// Different texts that one prompt got, here or alone; the most of any prompt.
    pub unique: u64,
    /// The same of tokens and log-probabilities.
    pub unique_logprobs: Option<u64>,
}

impl Samples {
    /// As lines. One of all first, then one a prompt and one a size of batch.
    pub fn lines(&self) -> Vec<String> {
        let total: u64 = self.prompts.iter().map(|samples| samples.total).sum();
        if total == 0 {
            return Vec::new();
        }
        let most =
            |of: &dyn Fn(&PromptSamples) -> Option<u64>| self.prompts.iter().filter_map(of).max();
        let sizes: Vec<String> =
            self.batch_sizes.iter().map(|samples| samples.batch_size.to_string()).collect();
        let counted = counts(
            total,
            most(&|samples| Some(samples.unique)).unwrap_or(0),
            most(&|samples| samples.unique_logprobs),
        );
        let n = self.prompts.len();
        let mut lines = vec![format!("{n} prompts, batch sizes {}: {counted}", sizes.join(" "))];
        for samples in &self.prompts {
            let counted = counts(samples.total, samples.unique, samples.unique_logprobs);
            let (prompt, length) = (samples.prompt, samples.prefix_length);
            lines.push(format!("Prompt {prompt} with prefix length {length}: {counted}"));
        }
        for samples in &self.batch_sizes {
            let counted = counts(samples.total, samples.unique, samples.unique_logprobs);
            lines.push(format!("Batch size {}: {counted}", samples.batch_size));
        }
        lines
    }
}

fn counts(total: u64, unique: u64, logprobs: Option<u64>) -> String {
    let logprobs = logprobs.map_or(String::new(), |n| format!(", Unique logprobs: {n}"));
    format!("total samples: {total}, Unique samples: {unique}{logprobs}")
}

/// A digest of what makes an answer a kind of its own.
pub(crate) type Kind = [u8; 32];

/// The kind of an answer: by its values, or else by its text.
pub(crate) fn kind(answer: &Answer) -> Kind {
    values(answer).unwrap_or_else(|| Sha256::digest(answer.text.as_bytes()).into())
}

/// Kinds of the answers to one prompt in batches of one size.
#[derive(Default)]
struct Kinds {
    total: u64,
    texts: BTreeSet<Kind>,
    values: BTreeSet<Kind>,
}

/// Answers as they come in.
#[derive(Default)]
pub(crate) struct Collected {
    by_prompt: BTreeMap<(Prompt, u32), ByPrompt>,
}

#[derive(Default)]
struct ByPrompt {
    length: u64,
    by_batch: BTreeMap<u32, Kinds>,
}

impl Collected {
    /// Counts an answer to a request that was sent with others, `batch` of them in all.
    pub(crate) fn take(&mut self, call: &Call, batch: u32, answer: &Answer) {
        if call.sampling != Sampling::Greedy || call.echo {
            return;
        }
        let of = self.by_prompt.entry((call.prompt.clone(), call.answer_tokens)).or_default();
        of.length = answer.prompt_tokens.unwrap_or(call.prompt.length() as u64);
        let kinds = of.by_batch.entry(batch).or_default();
        kinds.total += 1;
        kinds.texts.insert(Sha256::digest(answer.text.as_bytes()).into());
        kinds.values.extend(values(answer));
    }

    /// Counts of these prompts, numbered from 0.
    pub(crate) fn of<'p>(
        &self,
        prompts: impl Iterator<Item = &'p Prompt>,
        answer_tokens: u32,
    ) -> Samples {
        let mut samples = Samples::default();
        let mut batches: BTreeMap<u32, BatchSamples> = BTreeMap::new();
        for (number, prompt) in prompts.enumerate() {
            let Some(of) = self.by_prompt.get(&(prompt.clone(), answer_tokens)) else { continue };
            let all: Vec<&Kinds> = of.by_batch.values().collect();
            let (unique, unique_logprobs) = different(&all);
            samples.prompts.push(PromptSamples {
                prompt: number as u32,
                prefix_length: of.length,
                total: all.iter().map(|kinds| kinds.total).sum(),
                unique,
                unique_logprobs,
            });
            let alone = of.by_batch.get(&1);
            for (&batch_size, kinds) in &of.by_batch {
                let both: Vec<&Kinds> = alone.into_iter().chain([kinds]).collect();
                let (unique, unique_logprobs) = different(&both);
                let line = batches.entry(batch_size).or_insert(BatchSamples {
                    batch_size,
                    total: 0,
                    unique: 0,
                    unique_logprobs: None,
                });
                line.total += kinds.total;
                line.unique = line.unique.max(unique);
                line.unique_logprobs = line.unique_logprobs.max(unique_logprobs);
            }
        }
        samples.batch_sizes = batches.into_values().collect();
        samples
    }
}

/// Different texts, and different values if there are any.
fn different(all: &[&Kinds]) -> (u64, Option<u64>) {
    let texts: BTreeSet<&Kind> = all.iter().flat_map(|kinds| &kinds.texts).collect();
    let values: BTreeSet<&Kind> = all.iter().flat_map(|kinds| &kinds.values).collect();
    (texts.len() as u64, (!values.is_empty()).then_some(values.len() as u64))
}

/// A digest of tokens and log-probabilities as received. An answer that lacks some of them is no kind of its own.
pub(crate) fn values(answer: &Answer) -> Option<Kind> {
    let mut hasher = Sha256::new();
    for token in &answer.tokens {
        let value = token.logprob.as_ref()?;
        hasher.update(format!("{:?} {}\n", token.key, value.as_str()));
    }
    (!answer.tokens.is_empty()).then(|| hasher.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::super::compare::tests::answer;
    use super::*;

    fn take(collected: &mut Collected, prompt: u32, batch: u32, text: &str, value: &str) {
        let call = Call::greedy(Prompt::Ids(vec![prompt; 17]), 8);
        let mut answer = answer(&[(1, value, &[])]);
        answer.text = text.into();
        collected.take(&call, batch, &answer);
    }

    #[test]
    fn different_texts_and_values_are_counted_by_prompt_and_by_batch() {
        let mut collected = Collected::default();
        for batch in [1, 1, 2] {
            take(&mut collected, 0, batch, "same", "-0.5");
        }
        take(&mut collected, 1, 1, "same", "-0.5");
        take(&mut collected, 1, 2, "same", "-0.75");
        take(&mut collected, 1, 4, "other", "-0.25");
        // Drawn answers differ by right.
        let drawn =
            Call { sampling: Sampling::Seeded(1), ..Call::greedy(Prompt::Ids(vec![0; 17]), 8) };
        collected.take(&drawn, 1, &Answer { text: "drawn".into(), ..Answer::default() });
        let prompts = [Prompt::Ids(vec![0; 17]), Prompt::Ids(vec![1; 17])];
        assert_eq!(
            collected.of(prompts.iter(), 8).lines(),
            [
                "2 prompts, batch sizes 1 2 4: total samples: 6, Unique samples: 2, Unique logprobs: 3",
                "Prompt 0 with prefix length 17: total samples: 3, Unique samples: 1, Unique logprobs: 1",
                "Prompt 1 with prefix length 17: total samples: 3, Unique samples: 2, Unique logprobs: 3",
                "Batch size 1: total samples: 3, Unique samples: 1, Unique logprobs: 1",
                "Batch size 2: total samples: 2, Unique samples: 1, Unique logprobs: 2",
                "Batch size 4: total samples: 1, Unique samples: 2, Unique logprobs: 2",
            ]
        );
        assert_eq!(collected.of(prompts.iter(), 9).lines(), Vec::<String>::new());
    }

    #[test]
    fn without_log_probabilities_texts_alone_are_counted() {
        let mut collected = Collected::default();
        let prompt = Prompt::Text("abc".into());
        let call = Call::greedy(prompt.clone(), 8);
        collected.take(&call, 1, &Answer { text: "a".into(), ..Answer::default() });
        let lines = collected.of([prompt].iter(), 8).lines();
        assert_eq!(lines[1], "Prompt 0 with prefix length 3: total samples: 1, Unique samples: 1");
    }
}
