//! The server's own counts, from its metrics in Prometheus' text format: of running requests, and of hits of its prefix cache.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::wire::Client;

/// Names of the gauge of running requests: vLLM, SGLang, llama.cpp, TGI.
const RUNNING: [&str; 4] = [
    "vllm:num_requests_running",
    "sglang:num_running_reqs",
    "llamacpp:requests_processing",
    "tgi_batch_current_size",
];
/// Names of the counter of tokens that came from the prefix cache: vLLM's of three versions, SGLang.
const HITS: [&str; 5] = [
    "vllm:prefix_cache_hits_total",
    "vllm:prefix_cache_hits",
    "vllm:gpu_prefix_cache_hits_total",
    "vllm:gpu_prefix_cache_hits",
    "sglang:cached_tokens_total",
];
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(1);
/// Most samples of a crowd.
const SAMPLES_MAX: usize = 100_000;

/// One look at the gauge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) asked: Instant,
    pub(crate) answered: Instant,
    pub(crate) running: u32,
}

/// A gauge that a server exposes.
#[derive(Clone, Debug)]
pub(crate) struct Gauge {
    client: Client,
    pub(crate) name: &'static str,
    /// Requests of others, which were running while nothing of ours was: never counted as ours.
    others: u32,
}

impl Gauge {
    /// Looks for one of the known names.
    pub(crate) fn find(client: Client) -> Option<Gauge> {
        let text = client.metrics().ok()?;
        let name = RUNNING.into_iter().find(|name| value(&text, name).is_some())?;
        Some(Gauge { client, name, others: 0 })
    }

    /// The same gauge, less so many requests of others.
    pub(crate) fn beyond(self, others: u32) -> Gauge {
        Gauge { others, ..self }
    }

    /// The same gauge of another server.
    pub(crate) fn at(&self, client: Client) -> Gauge {
        Gauge { client, ..self.clone() }
    }

    /// Requests running now beyond those of others; `None` if the server did not say.
    pub(crate) fn now(&self) -> Option<Sample> {
        let asked = Instant::now();
        let running = value(&self.client.metrics().ok()?, self.name)?;
        let running = (running.min(u32::MAX.into()) as u32).saturating_sub(self.others);
        Some(Sample { asked, answered: Instant::now(), running })
    }

    /// Looks until told to stop.
    pub(crate) fn watch(&self, stop: &AtomicBool) -> Vec<Sample> {
        let mut samples = Vec::new();
        while !stop.load(Ordering::Relaxed) && samples.len() < SAMPLES_MAX {
            samples.extend(self.now());
            std::thread::sleep(PAUSE);
        }
        samples
    }
}

/// A counter of hits that a server exposes.
#[derive(Clone, Debug)]
pub(crate) struct Hits {
    client: Client,
    pub(crate) name: &'static str,
}

impl Hits {
    /// Looks for one of the known names.
    pub(crate) fn find(client: Client) -> Option<Hits> {
        let text = client.metrics().ok()?;
        let name = HITS.into_iter().find(|name| value(&text, name).is_some())?;
        Some(Hits { client, name })
    }

    /// Tokens so far.
    pub(crate) fn now(&self) -> Option<u64> {
        value(&self.client.metrics().ok()?, self.name)
    }
}

/// When the process began that answers, as its metrics tell it.
pub(crate) fn started(client: &Client) -> Option<String> {
    let text = client.metrics().ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("process_start_time_seconds "))?;
    Some(line.trim().to_owned())
}

/// Sum over the series of a metric. `None` if there is none, or one is no count.
fn value(text: &str, name: &str) -> Option<u64> {
    let mut sum = None;
    for line in text.lines() {
        let Some(rest) = line.strip_prefix(name) else { continue };
        let rest = match rest.strip_prefix('{') {
            // A label's value may hold a brace; the last one ends the labels.
            Some(labels) => labels.rsplit_once('}')?.1,
            None if rest.starts_with([' ', '\t']) => rest,
            None => continue,
        };
        let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
        if !(0.0..=1e15).contains(&value) {
            return None;
        }
        sum = Some(sum.unwrap_or(0) + value as u64);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_the_gauge_are_summed_and_its_neighbours_are_not() {
        let text = "# HELP vllm:num_requests_running x\n# TYPE vllm:num_requests_running gauge\n\
            vllm:num_requests_running{model_name=\"a}b\",engine=\"0\"} 3.0\n\
            vllm:num_requests_running{engine=\"1\"} 2\nvllm:num_requests_running_max 9\n";
        assert_eq!(value(text, RUNNING[0]), Some(5));
        assert_eq!(value(text, RUNNING[1]), None);
        assert_eq!(value("llamacpp:requests_processing 4\n", RUNNING[2]), Some(4));
    }

    #[test]
    fn a_gauge_that_is_no_count_is_none() {
        for bad in ["NaN", "-1", "1e99", "x", ""] {
            assert_eq!(
                value(&format!("tgi_batch_current_size {bad}\n"), RUNNING[3]),
                None,
                "{bad}"
            );
        }
    }
}
