//! What operators ask for: their prompts, lengths, headers and fields, another route, other addresses, more answers.

use lockstep::certify::options::OwnPrompt;
use lockstep::certify::{Api, Arm, CertifyError, Options, Secret, Target, Verdict};
use serde_json::{Value, json};

use crate::run::{CROWDS, quick, run, target, to, with};
use crate::server::{Asked, Faults, Gauge, How, Ids, Server, When};

const DRIFT: How = How::Drift(1e-3);

fn drifting() -> Faults {
    Faults::disturbed(When::InFlight(2), DRIFT)
}

/// The bodies with the answers' length that is asked for: those that are judged, and their neighbours.
fn judged(asked: &[Asked]) -> Vec<&Value> {
    let bodies = asked.iter().map(|asked| &asked.body);
    bodies.filter(|body| body["max_tokens"] == 16 || body["max_completion_tokens"] == 16).collect()
}

/// Prompts of the lengths that were asked for, to the token, down to two tokens and a single length.
pub(crate) fn prompts_have_the_lengths_that_were_asked_for() {
    for lengths in [vec![2], vec![3, 700], vec![200, 30, 31, 32]] {
        let options = Options { prompt_tokens: lengths.clone(), ..quick(&CROWDS) };
        let clean = with(Faults::default(), &options);
        clean.expect(Verdict::Held);
        let asked = clean.server.completions();
        let mut seen: Vec<usize> = judged(&asked)
            .iter()
            .filter_map(|body| body["prompt"].as_array().map(Vec::len))
            .collect();
        seen.sort_unstable();
        seen.dedup();
        let mut expected: Vec<usize> = lengths.iter().map(|n| *n as usize).collect();
        expected.sort_unstable();
        assert_eq!(seen, expected, "{}", clean.said());
        with(drifting(), &options).expect(Verdict::Broken);
    }
}

/// Own prompts are sent as they are, whether text or ids, and are all that is judged.
pub(crate) fn own_prompts_are_judged() {
    let texts = ["One two three.", "A longer prompt of my own, with some words more.", "Third"];
    let texts: Vec<OwnPrompt> = texts.iter().map(|text| OwnPrompt::Text((*text).into())).collect();
    let ids = [vec![1, 2, 3, 4], vec![9; 40], vec![5, 6]].map(OwnPrompt::Ids).to_vec();
    for own_prompts in [texts, ids] {
        let sent: Vec<Value> = own_prompts
            .iter()
            .map(|own| match own {
                OwnPrompt::Text(text) => json!(text),
                OwnPrompt::Ids(ids) => json!(ids),
            })
            .collect();
        let options = Options { own_prompts, ..quick(&CROWDS) };
        let clean = with(Faults::default(), &options);
        clean.expect(Verdict::Held);
        let asked = clean.server.completions();
        for prompt in &sent {
            let times = judged(&asked).iter().filter(|body| body["prompt"] == *prompt).count();
            assert!(times >= 8, "{prompt}: {times} times");
        }
        assert_eq!(clean.arm(Arm::ConcurrentWarm).prompts, 3, "{}", clean.said());
        with(drifting(), &options).expect(Verdict::Broken);
    }
}

/// Headers and fields go with every completion, before and after the verdict, those of the control among them.
pub(crate) fn headers_and_fields_go_with_every_request() {
    let secret = "tenant-secret-7";
    let address = |target: Target| Target {
        headers: vec![("x-tenant".into(), Secret::of_header(secret).expect("a header"))],
        fields: vec![("user".into(), json!("me")), ("top_k".into(), json!(7))],
        ..target
    };
    for faults in [Faults::default(), drifting()] {
        let expected = if faults.disturbances.is_empty() { Verdict::Held } else { Verdict::Broken };
        let seen = to(faults, &quick(&CROWDS), address);
        seen.expect(expected);
        for asked in seen.server.completions() {
            assert_eq!(asked.headers.get("x-tenant").map(String::as_str), Some(secret));
            assert_eq!((&asked.body["user"], &asked.body["top_k"]), (&json!("me"), &json!(7)));
        }
        let kept = serde_json::to_string(&seen.certificate).expect("JSON");
        assert!(!kept.contains(secret) && !seen.said().contains(secret));
    }
}

/// The route that was asked for is the only one that is.
pub(crate) fn the_route_that_was_asked_for_is_asked() {
    for (api, path) in [(Api::Chat, "/v1/chat/completions"), (Api::Completions, "/v1/completions")]
    {
        let address = |target: Target| Target { api, ..target };
        let clean = to(Faults::default(), &quick(&CROWDS), address);
        clean.expect(Verdict::Held);
        assert!(clean.server.completions().iter().all(|asked| asked.path == path), "{path}");
        to(drifting(), &quick(&CROWDS), address).expect(Verdict::Broken);
    }
    let server = Server::start(Faults { chat_only: true, ..Faults::default() });
    let target = Target { api: Api::Completions, ..target(&server) };
    let error = lockstep::certify::run(&target, &quick(&CROWDS), &lockstep::certify::Silent);
    assert!(matches!(error, Err(CertifyError::Unusable(_))), "there are none");
}

/// Metrics at an address of their own witness as those beside the API do.
pub(crate) fn metrics_may_be_at_another_address() {
    for gauge in [Gauge::Vllm, Gauge::Sglang] {
        let faults = Faults { gauge, metrics_elsewhere: true, ..Faults::default() };
        let server = Server::start(faults.clone());
        let target = Target { metrics_url: Some(server.metrics_url()), ..target(&server) };
        let certificate =
            lockstep::certify::run(&target, &quick(&CROWDS), &lockstep::certify::Silent)
                .expect("a certificate");
        assert_eq!(certificate.verdict, Verdict::Held);
        assert!(certificate.witness.by.contains("running"), "{}", certificate.witness.by);
        // Without the address there is no gauge, and the times of tokens stand alone.
        let without = run(faults, &CROWDS);
        assert!(!without.certificate.witness.by.contains("running"));
    }
}

/// As many alternatives as were asked for, or as many as the server gives.
pub(crate) fn alternatives_are_asked_for() {
    for (alternatives, ids) in [(0, Ids::Everywhere), (1, Ids::Everywhere), (12, Ids::Nowhere)] {
        let options = Options { alternatives, ..quick(&CROWDS) };
        let clean = with(Faults { ids, ..Faults::default() }, &options);
        clean.expect(Verdict::Held);
        let asked = clean.server.completions();
        assert!(judged(&asked).iter().all(|body| body["logprobs"] == alternatives));
        with(Faults { ids, ..drifting() }, &options).expect(Verdict::Broken);
    }
}

/// An address with a query needs it on every path.
pub(crate) fn an_address_may_have_a_query() {
    let faults = |disturbances| Faults {
        needs_query: Some("api-version=1"),
        disturbances,
        ..Faults::default()
    };
    let address =
        |target: Target| Target { url: format!("{}?api-version=1", target.url), ..target };
    to(faults(Vec::new()), &quick(&CROWDS), address).expect(Verdict::Held);
    to(faults(drifting().disturbances), &quick(&CROWDS), address).expect(Verdict::Broken);
    for url in ["", " ", "http://"] {
        let target = Target { url: url.into(), ..Target::default() };
        let error = lockstep::certify::run(&target, &quick(&CROWDS), &lockstep::certify::Silent);
        assert!(matches!(error, Err(CertifyError::BadInput(_))), "{url:?}: {error:?}");
    }
}
