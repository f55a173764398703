//! Did requests really meet? A crowd whose requests came one after another says nothing about crowds.
//!
//! There are two witnesses: the server's own count of running requests, where it is known to move, and the times of tokens. Two
//! requests met by their tokens if each got some while the other was getting them: time spent waiting for a turn counts for
//! nothing. Where both can speak, both must: a gauge that says eight while no two answers overlap is believed as little as the
//! overlap without it. Plain answers have no times of tokens: a gauge is not believed if they were ready one after another, each as
//! long after the one before it as it takes alone; and without a gauge, the time that a crowd saved stands in for both.

use std::time::{Duration, Instant};

use super::gauge::Sample;

/// Who said that requests met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum By {
    Nothing,
    /// A crowd took less time than its answers one after another.
    TimeSaved,
    Gauge,
    Tokens,
    Both,
}

impl By {
    /// In words; `gauge` is the gauge's name.
    pub(crate) fn words(self, gauge: &str) -> String {
        match self {
            By::Nothing => "none".into(),
            By::TimeSaved => "the time that crowds saved".into(),
            By::Gauge => gauge.into(),
            By::Tokens => "times of tokens".into(),
            By::Both => format!("{gauge} and times of tokens"),
        }
    }
}

/// When a request was in flight, and when its tokens came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span<'a> {
    pub(crate) sent: Instant,
    pub(crate) arrivals: &'a [Instant],
    pub(crate) done: Instant,
    /// How long the same request took alone, if that is known.
    pub(crate) alone: Option<Duration>,
}

/// What was seen of a crowd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// For each request, how many were in flight with it, itself among them, at the moment when there were most.
    pub(crate) counts: Vec<u32>,
    pub(crate) by: By,
    /// Whether the two witnesses say contrary things; then nobody met.
    pub(crate) contradicted: bool,
}

/// Samples during a request below which the gauge says nothing of it.
const SAMPLES_MIN: usize = 2;
/// Samples of a crowd from which on a gauge that stays at 1 contradicts tokens that overlap.
const SAMPLES_OF_CROWD_MIN: usize = 4;
/// Share of the shorter of two spans that must overlap. A reader that wakes up late makes short overlaps of requests that
/// never met.
const SHARE_MIN: f64 = 0.5;
/// The least overlap for the same reason.
const OVERLAP_MIN: Duration = Duration::from_millis(1);
/// Tokens of an answer from which on times that overlap nobody else's contradict a gauge.
const ARRIVALS_MIN: usize = 4;

/// Share of the time that an answer takes alone, after the end of the one before it, from which on it was served in turn.
const TURN_MIN: f64 = 0.6;

/// For each request, how many were in flight with it.
pub(crate) fn in_flight(spans: &[Span<'_>], gauge: Option<&[Sample]>) -> Seen {
    let by_gauge: Vec<Option<u32>> = match gauge {
        Some(samples) => spans.iter().map(|span| by_gauge(span, samples)).collect(),
        None => vec![None; spans.len()],
    };
    let by_tokens: Vec<Option<u32>> = (0..spans.len())
        .map(|i| (spans[i].arrivals.len() >= 2).then(|| by_overlap(spans, i)))
        .collect();
    let most = |counts: &[Option<u32>]| counts.iter().flatten().copied().max();
    let nobody = vec![1; spans.len()];
    match (most(&by_gauge), most(&by_tokens)) {
        (Some(gauged), Some(overlapping)) => {
            let contradicted = match (gauged > 1, overlapping > 1) {
                (true, false) => is_in_turn(spans),
                (false, true) => gauge.is_some_and(|samples| samples.len() >= SAMPLES_OF_CROWD_MIN),
                _ => false,
            };
            if contradicted || gauged <= 1 {
                return Seen { counts: nobody, by: By::Both, contradicted };
            }
            // Of a request whose tokens came all at once the gauge alone speaks.
            let both = by_gauge
                .iter()
                .zip(&by_tokens)
                .map(|(gauged, overlapping)| overlapping.or(*gauged).unwrap_or(1));
            Seen { counts: both.collect(), by: By::Both, contradicted }
        }
        (Some(gauged), None) => {
            if gauged > 1 && is_ready_in_turn(spans) {
                return Seen { counts: nobody, by: By::Gauge, contradicted: true };
            }
            let counts = by_gauge.into_iter().map(|count| count.unwrap_or(1)).collect();
            Seen { counts, by: By::Gauge, contradicted: false }
        }
        (None, Some(_)) => {
            let counts = by_tokens.into_iter().map(|count| count.unwrap_or(1)).collect();
            Seen { counts, by: By::Tokens, contradicted: false }
        }
        (None, None) => match time_saved(spans) {
            Some(count) => {
                let known = |span: &Span<'_>| if span.alone.is_some() { count } else { 1 };
                let counts = spans.iter().map(known).collect();
                Seen { counts, by: By::TimeSaved, contradicted: false }
            }
            None => Seen { counts: nobody, by: By::Nothing, contradicted: false },
        },
    }
}

/// Whether answers of several tokens came strictly one after another: none got a token between the first and the last of
/// another.
fn is_in_turn(spans: &[Span<'_>]) -> bool {
    // With the first token: one that came while another was served is no token in turn.
    let whole = |span: &Span<'_>| Some((*span.arrivals.first()?, *span.arrivals.last()?));
    let mut all: Vec<(Instant, Instant)> =
        spans.iter().filter(|span| span.arrivals.len() >= ARRIVALS_MIN).filter_map(whole).collect();
    all.sort();
    all.len() >= 2 && all.windows(2).all(|pair| pair[1].0 + OVERLAP_MIN >= pair[0].1)
}

/// Whether each plain answer was ready about as long after the one before it as it takes alone: nobody was served beside it.
fn is_ready_in_turn(spans: &[Span<'_>]) -> bool {
    let mut known: Vec<(Instant, Duration)> =
        spans.iter().filter_map(|span| Some((span.done, span.alone?))).collect();
    known.sort();
    let gaps = known.windows(2).map(|pair| (pair[1].0 - pair[0].0, pair[1].1));
    known.len() >= 2
        && gaps.into_iter().all(|(gap, alone)| {
            gap.as_secs_f64() >= TURN_MIN * alone.as_secs_f64() && gap >= OVERLAP_MIN
        })
}

/// How many answers were in the making at once on average, by the time that they took one after another; `None` if no two.
fn time_saved(spans: &[Span<'_>]) -> Option<u32> {
    let known: Vec<&Span<'_>> = spans.iter().filter(|span| span.alone.is_some()).collect();
    let from = known.iter().map(|span| span.sent).min()?;
    let to = known.iter().map(|span| span.done).max()?;
    let alone: Duration = known.iter().filter_map(|span| span.alone).sum();
    let count = (alone.as_secs_f64() / (to - from).as_secs_f64().max(1e-6)) as u32;
    (count >= 2).then_some(count.min(known.len() as u32))
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

    fn seen(requests: &[&[u64]], gauge: Option<&[(u64, u32)]>) -> Seen {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let arrivals: Vec<Vec<Instant>> = requests.iter().map(|at| ms(start, at)).collect();
        let done = |arrivals: &Vec<Instant>| arrivals.last().copied().unwrap_or(at(100));
        let spans: Vec<Span<'_>> = arrivals
            .iter()
            .map(|arrivals| Span { sent: start, arrivals, done: done(arrivals), alone: None })
            .collect();
        let samples: Option<Vec<Sample>> = gauge.map(|samples| {
            let sample = |&(ms, running): &(u64, u32)| Sample {
                asked: at(ms),
                answered: at(ms) + Duration::from_micros(100),
                running,
            };
            samples.iter().map(sample).collect()
        });
        in_flight(&spans, samples.as_deref())
    }

    fn overlap(requests: &[&[u64]]) -> (Vec<u32>, By) {
        let seen = seen(requests, None);
        (seen.counts, seen.by)
    }

    /// All were sent at once; the server served them one by one.
    #[test]
    fn requests_that_wait_for_their_turn_do_not_meet() {
        assert_eq!(overlap(&[&[10, 20], &[20, 30], &[30, 40]]), (vec![1, 1, 1], By::Tokens));
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
    fn of_plain_answers_the_gauge_speaks_where_it_was_asked_often_enough() {
        let plain = seen(&[&[], &[]], Some(&[(10, 2), (50, 4)]));
        assert_eq!((plain.counts, plain.by), (vec![4, 4], By::Gauge));
        assert_eq!(seen(&[&[], &[]], Some(&[(10, 2)])).by, By::Nothing);
    }

    /// Plain answers of 20 ms each, alone.
    #[test]
    fn of_plain_answers_that_are_ready_in_turn_the_gauge_is_not_believed() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let samples: Vec<Sample> =
            [1, 10, 19, 30].map(|ms| Sample { asked: at(ms), answered: at(ms), running: 3 }).into();
        let seen = |done: &[u64], alone: Option<u64>| {
            let alone = alone.map(Duration::from_millis);
            let span = |&ms| Span { sent: start, arrivals: &[], done: at(ms), alone };
            let spans: Vec<Span<'_>> = done.iter().map(span).collect();
            let seen = in_flight(&spans, Some(&samples));
            (seen.contradicted, seen.counts)
        };
        assert_eq!(seen(&[20, 40, 60], Some(20)), (true, vec![1; 3]));
        assert_eq!(seen(&[60, 20, 41], Some(20)), (true, vec![1; 3]), "in any order");
        // As slow as one after another, and yet ready together, or some of them.
        assert_eq!(seen(&[58, 59, 60], Some(20)), (false, vec![3; 3]));
        assert_eq!(seen(&[20, 59, 60], Some(20)), (false, vec![3; 3]));
        // Of new prompts nobody knows how long they take.
        assert_eq!(seen(&[20, 40, 60], None), (false, vec![3; 3]));
        assert_eq!(seen(&[40], Some(20)), (false, vec![3]));
    }

    const IN_TURN: [&[u64]; 2] = [&[10, 12, 14, 16, 18], &[20, 22, 24, 26, 28]];
    const TOGETHER: [&[u64]; 2] = [&[10, 14, 18, 22, 28], &[11, 15, 19, 23, 28]];

    /// Where both witnesses speak both must, and one that is against the other is no evidence of anything.
    #[test]
    fn witnesses_that_contradict_each_other_decide_nothing() {
        let eight = [(1, 8), (5, 8), (9, 8), (11, 8), (15, 8)];
        let lying = seen(&IN_TURN, Some(&eight));
        assert_eq!((lying.counts, lying.contradicted), (vec![1, 1], true));
        let stuck = seen(&TOGETHER, Some(&[(1, 1), (5, 1), (9, 1), (11, 1), (15, 1)]));
        assert_eq!((stuck.counts, stuck.contradicted), (vec![1, 1], true));
        let agreed = seen(&TOGETHER, Some(&eight));
        assert_eq!((agreed.counts, agreed.by), (vec![2, 2], By::Both));
    }

    /// Requests that met for a short while only are not counted, and contradict no gauge.
    #[test]
    fn a_short_overlap_is_neither_evidence_nor_a_contradiction() {
        let brief: [&[u64]; 2] = [&[10, 14, 18, 22, 28], &[24, 34, 40, 44, 48]];
        let brief = seen(&brief, Some(&[(1, 2), (5, 2), (9, 2), (25, 2)]));
        assert_eq!((brief.counts, brief.contradicted), (vec![1, 1], false));
    }

    /// Four plain answers of 100 ms each in 150 ms: at least two were in the making at once.
    #[test]
    fn without_other_witnesses_the_time_that_a_crowd_saved_speaks() {
        let start = Instant::now();
        let of = |total: u64, alone: Option<u64>| {
            let span = Span {
                sent: start,
                arrivals: &[],
                done: start + Duration::from_millis(total),
                alone: alone.map(Duration::from_millis),
            };
            in_flight(&[span; 4], None)
        };
        assert_eq!(of(150, Some(100)).counts, vec![2; 4]);
        assert_eq!((of(390, Some(100)).by, of(150, None).by), (By::Nothing, By::Nothing));
    }
}
