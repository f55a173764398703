//! The comparer: planted differences must be found and named, and what hides a position must not pass.

use super::*;
use crate::record::{KvDigest, PositionBits, TokenScore};

const ID: SampleId = SampleId { uid: 1, sample: 0 };
const WHOLE: Known = Known { kv: true, sites: true, scores: 0, aborted: false };
const BLIND: Known = Known { kv: false, sites: false, scores: 0, aborted: false };

fn outputs(
    id: SampleId,
    got: &Output,
    expected: &Output,
    known: Known,
) -> Result<Compared, Box<Divergence>> {
    super::outputs(id, got, expected, known, &Standard::Canonical)
}

fn output(positions: u32, layers: usize) -> Output {
    let digest = |p: u32, l: usize| KvDigest { k: u64::from(p) * 8 + l as u64, v: 99 };
    Output {
        tokens: vec![5, 6],
        finish: Some(Finish::Length),
        positions: (0..positions)
            .map(|position| PositionBits {
                residency: 1,
                position,
                logits: position.into(),
                sites: (0..Site::count(layers) as u64).collect(),
            })
            .collect(),
        kv: (0..positions)
            .map(|position| KvBits {
                residency: 1,
                position,
                moment: KvMoment::Released,
                layers: (0..layers).map(|l| digest(position, l)).collect(),
            })
            .collect(),
        rows_computed: positions.into(),
        kv_due: positions.into(),
        ..Output::default()
    }
}

#[test]
fn equal_outputs_are_compared_at_every_position() {
    let compared = outputs(ID, &output(7, 2), &output(7, 2), WHOLE).unwrap();
    assert_eq!(compared, Compared { positions: 7, kv: 7, sites: 7, ..Compared::default() });
}

/// Plants a one-bit change at each position, and at each position and layer, and wants each one named.
#[test]
fn a_flipped_bit_at_any_position_and_layer_is_found_and_named() {
    let canonical = output(7, 2);
    for at in 0..7 {
        let mut got = canonical.clone();
        got.positions[at].logits ^= 1 << (at * 9);
        let divergence = outputs(ID, &got, &canonical, WHOLE).unwrap_err();
        assert_eq!(divergence.observable, Observable::Logits);
        assert_eq!(divergence.place.position, Some(at as u32));
        assert_eq!(divergence.origin, None);
        for site in 0..Site::count(2) {
            let mut got = canonical.clone();
            got.positions[at].sites[site] ^= 1 << site;
            let divergence = outputs(ID, &got, &canonical, WHOLE).unwrap_err();
            assert_eq!(divergence.observable, Observable::Sites);
            let expected = Site::nth(site, Site::count(2));
            assert_eq!(
                divergence.origin.map(|o| (o.position, o.site)),
                Some((at as u32, expected))
            );
            // With the logits it is they that are named, and the operator with them.
            got.positions[6].logits ^= 1;
            let divergence = outputs(ID, &got, &canonical, WHOLE).unwrap_err();
            assert_eq!(divergence.observable, Observable::Logits);
            assert_eq!(divergence.origin.map(|o| o.site), Some(expected));
        }
        for layer in 0..2 {
            for flip in [|d: &mut KvDigest| d.k ^= 1 << 63, |d: &mut KvDigest| d.v ^= 1] {
                let mut got = canonical.clone();
                flip(&mut got.kv[at].layers[layer]);
                let divergence = outputs(ID, &got, &canonical, WHOLE).unwrap_err();
                assert_eq!(divergence.observable, Observable::Kv);
                assert_eq!(divergence.place.layer, Some(layer));
                assert_eq!(divergence.place.position, Some(at as u32));
            }
        }
    }
}

/// What was computed and read back is the same: only the tokens tell.
#[test]
fn an_output_that_ends_early_does_not_pass() {
    let canonical = output(7, 2);
    let mut got = canonical.clone();
    got.tokens.pop();
    assert_eq!(outputs(ID, &got, &canonical, WHOLE).unwrap_err().observable, Observable::Tokens);
    let aborted = Known { aborted: true, ..WHOLE };
    got.finish = Some(Finish::Aborted);
    assert!(outputs(ID, &got, &canonical, aborted).is_ok());
}

#[test]
fn an_output_that_hides_a_position_does_not_pass() {
    let canonical = output(7, 2);
    let mut got = canonical.clone();
    got.positions.remove(3);
    assert_eq!(outputs(ID, &got, &canonical, WHOLE).unwrap_err().observable, Observable::Coverage);
    let mut got = canonical.clone();
    got.positions[3].sites.clear();
    assert_eq!(outputs(ID, &got, &canonical, WHOLE).unwrap_err().observable, Observable::Coverage);
    let mut got = canonical.clone();
    got.kv.clear();
    assert_eq!(outputs(ID, &got, &canonical, WHOLE).unwrap_err().observable, Observable::Coverage);
    let mut got = canonical.clone();
    got.kv[2].layers.clear();
    assert_eq!(outputs(ID, &got, &canonical, WHOLE).unwrap_err().observable, Observable::Coverage);
    // Read back and ledger agree with each other, and both are short.
    let mut got = canonical.clone();
    got.kv.truncate(5);
    got.kv_due = 5;
    assert_eq!(outputs(ID, &got, &canonical, WHOLE).unwrap_err().observable, Observable::Coverage);
    let mut got = canonical.clone();
    got.positions.remove(0);
    got.rows_computed -= 1;
    assert_eq!(outputs(ID, &got, &canonical, WHOLE).unwrap_err().observable, Observable::Coverage);
    let nothing = Output { positions: vec![], kv: vec![], rows_computed: 0, kv_due: 0, ..got };
    let divergence = outputs(ID, &nothing, &nothing, BLIND).unwrap_err();
    assert_eq!(divergence.observable, Observable::Coverage);
    // A canonical run that observed nothing can't confirm anything either.
    let blind = Output { positions: Vec::new(), ..canonical.clone() };
    assert_eq!(
        outputs(ID, &canonical, &blind, WHOLE).unwrap_err().observable,
        Observable::Coverage
    );
}

fn scored(tokens: std::ops::Range<u32>) -> Output {
    let score = |position| TokenScore {
        residency: 1,
        position,
        token: 5,
        logprob: 0xbf80_0000 + position,
        top: vec![(5, 0xbf80_0000 + position), (9, 0xc000_0000)],
    };
    Output { scores: tokens.map(score).collect(), text: b"ab".to_vec(), ..output(7, 2) }
}

/// Plants one wrong bit, one wrong alternative, one missing and one stray token, each alone.
#[test]
fn log_probabilities_are_compared_token_by_token() {
    let canonical = scored(5..8);
    let known = Known { scores: 3, ..WHOLE };
    assert_eq!(outputs(ID, &canonical, &canonical, known).unwrap().scores, 3);
    let found = |got: &Output| outputs(ID, got, &canonical, known).unwrap_err();
    for at in 0..3 {
        let mut got = canonical.clone();
        got.scores[at].logprob ^= 1;
        let divergence = found(&got);
        assert_eq!(divergence.observable, Observable::Logprobs);
        assert_eq!(divergence.place.position, Some(5 + at as u32));
        let mut got = canonical.clone();
        got.scores[at].top[1].0 += 1;
        assert_eq!(found(&got).observable, Observable::Logprobs);
        let mut got = canonical.clone();
        got.scores.remove(at);
        assert_eq!(found(&got).observable, Observable::Coverage);
    }
    let mut twice = canonical.clone();
    twice.scores.push(TokenScore { residency: 2, ..canonical.scores[1].clone() });
    assert_eq!(outputs(ID, &twice, &canonical, known).unwrap().scores, 4);
    twice.scores[3].logprob ^= 1 << 31;
    assert_eq!(found(&twice).place.residency, Some(2));
    let stray = scored(5..9);
    assert_eq!(found(&stray).observable, Observable::Coverage);
    // Both sides short of what was asked for: nothing is shown.
    let short = scored(5..7);
    assert_eq!(outputs(ID, &short, &short, known).unwrap_err().observable, Observable::Coverage);
    let ended = Known { aborted: true, ..known };
    let mut aborted = scored(5..7);
    aborted.finish = Some(Finish::Aborted);
    assert_eq!(outputs(ID, &aborted, &canonical, ended).unwrap().scores, 2);
}

#[test]
fn the_text_is_compared_too() {
    let canonical = scored(0..0);
    let found = |text: &[u8], aborted| {
        let finish = if aborted { Some(Finish::Aborted) } else { canonical.finish };
        let got = Output { text: text.to_vec(), finish, ..canonical.clone() };
        outputs(ID, &got, &canonical, Known { aborted, ..WHOLE }).err().map(|d| d.observable)
    };
    assert_eq!(found(b"ab", false), None);
    for text in [&b"a"[..], b"abc", b"aX", b""] {
        assert_eq!(found(text, false), Some(Observable::Tokens));
    }
    assert_eq!(found(b"a", true), None);
    assert_eq!(found(b"X", true), Some(Observable::Tokens));
}

/// 3 positions and 2 tokens: a prompt of 2, so the first token drawn is computed at position 2.
#[test]
fn a_token_drawn_otherwise_from_equal_logits_is_named_before_what_follows_from_it() {
    let canonical = output(3, 1);
    let mut got = canonical.clone();
    got.tokens[0] = 9;
    got.positions[2].logits ^= 1;
    let divergence = outputs(ID, &got, &canonical, WHOLE).unwrap_err();
    assert_eq!(divergence.observable, Observable::Tokens);
    got.positions[1].logits ^= 1;
    let divergence = outputs(ID, &got, &canonical, WHOLE).unwrap_err();
    assert_eq!(divergence.observable, Observable::Logits);
    assert_eq!(divergence.place.position, Some(1));
}

#[test]
fn tokens_and_finish_reasons_are_compared() {
    let canonical = output(3, 1);
    let mut got = canonical.clone();
    got.tokens[1] = 9;
    assert_eq!(outputs(ID, &got, &canonical, WHOLE).unwrap_err().observable, Observable::Tokens);
    let mut got = canonical.clone();
    got.finish = Some(Finish::Eos);
    assert_eq!(outputs(ID, &got, &canonical, WHOLE).unwrap_err().observable, Observable::Tokens);
}

/// An aborted sample is compared as far as it came; with nothing left out before that, and no finish of its own.
#[test]
fn what_an_aborted_sample_did_is_a_part_of_its_canonical_output() {
    let canonical = output(7, 2);
    let ended = Known { kv: true, sites: true, scores: 0, aborted: true };
    let mut got = output(4, 2);
    got.finish = Some(Finish::Aborted);
    got.tokens.clear();
    let compared = outputs(ID, &got, &canonical, ended).unwrap();
    assert_eq!(compared, Compared { positions: 4, kv: 4, sites: 4, ..Compared::default() });
    let found = |got: &Output, known| outputs(ID, got, &canonical, known).unwrap_err().observable;
    assert_eq!(found(&got, WHOLE), Observable::Tokens, "nobody aborted it");
    let finished = Output { finish: Some(Finish::Length), ..got.clone() };
    assert_eq!(found(&finished, ended), Observable::Tokens);
    let mut other = got.clone();
    other.tokens.push(9);
    assert_eq!(found(&other, ended), Observable::Tokens);
    let mut hole = got.clone();
    hole.positions.remove(1);
    hole.rows_computed -= 1;
    assert_eq!(found(&hole, ended), Observable::Coverage);
    let mut flipped = got.clone();
    flipped.kv[3].layers[1].v ^= 1;
    assert_eq!(found(&flipped, ended), Observable::Kv);
    let nothing = Output { finish: Some(Finish::Aborted), ..Output::default() };
    assert_eq!(outputs(ID, &nothing, &canonical, ended).unwrap(), Compared::default());
    let drawn = Output { tokens: vec![5], ..nothing };
    assert_eq!(found(&drawn, ended), Observable::Coverage);
}
