//! Did requests really meet? A crowd whose requests came one after another says nothing about crowds.
//!
//! The server's own count of running requests is taken where it is known to move; else the times of first and last tokens.
//! Two requests met if each got tokens while the other was getting them: time spent waiting for a turn counts for nothing.

use std::time::{Duration, Instant};

use super::gauge::Sample;

/// How a count came about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Gauge,
    Overlap,
    Nothing,
}

/// When a request was in flight, and when its tokens came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span<'a> {
    pub(crate) sent: Instant,
    pub(crate) arrivals: &'a [Instant],
    pub(crate) done: Instant,
}

/// Samples during a request below which the gauge says nothing of it.
const SAMPLES_MIN: usize = 2;
/// Share of the shorter of two spans that must overlap. A reader that wakes up late makes short overlaps of requests that
/// never met.
const SHARE_MIN: f64 = 0.5;
/// The least overlap for the same reason.
const OVERLAP_MIN: Duration = Duration::from_millis(1);

/// For each request, how many were in flight with it, itself among them, at the moment when there were most.
pub(crate) fn in_flight(spans: &[Span<'_>], gauge: Option<&[Sample]>) -> (Vec<u32>, By) {
    if let Some(samples) = gauge {
        let counts: Vec<Option<u32>> = spans.iter().map(|span| by_gauge(span, samples)).collect();
        if counts.iter().any(Option::is_some) {
            return (counts.into_iter().map(|count| count.unwrap_or(1)).collect(), By::Gauge);
        }
    }
    if spans.iter().all(|span| span.arrivals.len() < 2) {
        return (vec![1; spans.len()], By::Nothing);
    }
    ((0..spans.len()).map(|i| by_overlap(spans, i)).collect(), By::Overlap)
}

/// Most requests running while this one was in flight; never more than were sent, since others' are not ours.
fn by_gauge(span: &Span<'_>, samples: &[Sample]) -> Option<u32> {
    let during = samples.iter().filter(|s| span.sent <= s.asked && s.answered <= span.done);
    let running: Vec<u32> = during.map(|sample| sample.running).collect();
    (running.len() >= SAMPLES_MIN).then(|| running.into_iter().max().unwrap_or(0).max(1))
}

fn by_overlap(spans: &[Span<'_>], i: usize) -> u32 {
    let Some((from, to)) = ends(&spans[i]) else { return 1 };
    // The number that meet changes where a span begins; so it is enough to look there.
    let meets =
        |j: &usize| *j != i && ends(&spans[*j]).is_some_and(|other| is_overlap((from, to), other));
    let met: Vec<(Instant, Instant)> =
        (0..spans.len()).filter(meets).filter_map(|j| ends(&spans[j])).collect();
    let starts = met.iter().map(|(start, _)| (*start).max(from)).chain([from]);
    let at = |moment: Instant| met.iter().filter(|(a, b)| *a <= moment && moment < *b).count();
    starts.map(|moment| 1 + at(moment) as u32).max().unwrap_or(1)
}

/// From the second token to the last: some servers send a first one on arrival, and then serve their requests in turn. Of two
/// tokens, both.
fn ends(span: &Span<'_>) -> Option<(Instant, Instant)> {
    let from = usize::from(span.arrivals.len() > 2);
    Some((*span.arrivals.get(from)?, *span.arrivals.last()?))
}

fn is_overlap(a: (Instant, Instant), b: (Instant, Instant)) -> bool {
    let overlap = a.1.min(b.1).saturating_duration_since(a.0.max(b.0));
    let shorter = (a.1 - a.0).min(b.1 - b.0);
    overlap >= OVERLAP_MIN && overlap.as_secs_f64() >= SHARE_MIN * shorter.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(start: Instant, at: &[u64]) -> Vec<Instant> {
        at.iter().map(|ms| start + Duration::from_millis(*ms)).collect()
    }

    fn overlap(requests: &[&[u64]]) -> (Vec<u32>, By) {
        let start = Instant::now();
        let arrivals: Vec<Vec<Instant>> = requests.iter().map(|at| ms(start, at)).collect();
        let done = start + Duration::from_secs(1);
        let spans: Vec<Span<'_>> =
            arrivals.iter().map(|arrivals| Span { sent: start, arrivals, done }).collect();
        in_flight(&spans, None)
    }

    /// All were sent at once; the server served them one by one.
    #[test]
    fn requests_that_wait_for_their_turn_do_not_meet() {
        assert_eq!(overlap(&[&[10, 20], &[20, 30], &[30, 40]]), (vec![1, 1, 1], By::Overlap));
        // One reader woke up 2 ms late.
        assert_eq!(overlap(&[&[10, 22], &[20, 30]]).0, vec![1, 1]);
    }

    /// A first token of each comes at once.
    #[test]
    fn a_first_token_on_arrival_is_no_evidence() {
        assert_eq!(overlap(&[&[1, 10, 20], &[1, 22, 30], &[2, 32, 40]]).0, vec![1, 1, 1]);
        assert_eq!(overlap(&[&[1, 10, 20], &[1, 12, 22]]).0, vec![2, 2]);
    }

    #[test]
    fn tokens_that_come_in_turn_are_of_requests_that_met() {
        assert_eq!(overlap(&[&[10, 50], &[12, 52], &[30, 51], &[60, 90]]).0, vec![3, 3, 3, 1]);
        // Both meet the first, and never each other.
        assert_eq!(overlap(&[&[0, 100], &[10, 40], &[50, 90]]).0, vec![2, 2, 2]);
    }

    /// A gateway that hands out whole answers shows nothing.
    #[test]
    fn answers_that_come_all_at_once_are_no_evidence() {
        assert_eq!(overlap(&[&[50], &[50]]), (vec![1, 1], By::Nothing));
        assert_eq!(overlap(&[&[50, 50], &[50, 50]]).0, vec![1, 1]);
    }

    #[test]
    fn the_gauge_counts_where_it_was_asked_often_enough() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let sample = |ms, running| Sample { asked: at(ms), answered: at(ms + 1), running };
        let span = Span { sent: at(0), arrivals: &[], done: at(100) };
        let late = Span { sent: at(90), arrivals: &[], done: at(100) };
        let samples = [sample(10, 2), sample(50, 4), sample(95, 1)];
        assert_eq!(in_flight(&[span, late], Some(&samples)), (vec![4, 1], By::Gauge));
        assert_eq!(in_flight(&[span], Some(&samples[..1])), (vec![1], By::Nothing));
    }
}
