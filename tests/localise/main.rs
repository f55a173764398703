//! The localiser names what was planted: the operator, how its launch differs or which of its parts, the element, and what
//! the case needs.

#[allow(dead_code, reason = "shared with other tests")]
#[path = "../support/altered.rs"]
mod altered;

use std::collections::BTreeSet;

use lockstep::case::Case;
use lockstep::contract::simd::Simd;
use lockstep::contract::{Mode, Operator, digest};
use lockstep::device::host::{Host, HostKv};
use lockstep::device::{AttentionLaunch, Device, DeviceError, Heads, Layout, LoggedRows};
use lockstep::fixture::Fixture;
use lockstep::harness::localise::{Explanation, explain};
use lockstep::record::{Capture, Order, Run};
use lockstep::relation::localise::{Cause, Localisation, OperatorFinding};
use lockstep::relation::x1::schedules;
use lockstep::relation::{Executions, Judgement, Observable, by_id};
use lockstep::schedule::{Act, Intent, Mark, PreemptKind, Schedule};
use lockstep::subject::{Subject, SubjectError};
use lockstep::weights;
use lockstep::workload::{Request, SampleId, Workload};
use lockstep::world::World;

use altered::Alteration;

fn request(uid: u64, length: u32) -> Request {
    let prompt: Vec<u32> = (0..length).map(|i| (uid as u32 * 31 + i * 7) % 250).collect();
    Request { ignore_eos: true, ..Request::new(uid, prompt, 3) }
}

fn host(mode: Mode) -> Fixture<Host> {
    Fixture::host("tiny", weights::source("tiny", None).unwrap(), mode).unwrap()
}

/// Requests with prompts of these lengths, in the subject's own mode.
fn case(subject: &dyn Subject, lengths: &[u32]) -> Case {
    Case {
        world: World { pool_blocks: 64, ..subject.default_world() },
        workload: Workload {
            requests: (1..).zip(lengths).map(|(uid, length)| request(uid, *length)).collect(),
        },
        schedule: Schedule::default(),
        seed: 1,
    }
}

/// How the case breaks the relation.
fn explained(subject: &dyn Subject, relation: &str, case: &Case) -> (Observable, Explanation) {
    let relation = by_id(relation).unwrap();
    let mut executions = Executions::new(subject, case).unwrap();
    let Judgement::Broken(divergence) = relation.judge(&mut executions).unwrap() else {
        panic!("{} is not broken", relation.id)
    };
    let explanation = explain(subject, case, &divergence, true);
    println!("{divergence}\n{explanation}\n");
    (divergence.observable, explanation)
}

fn operator(localisation: &Option<Localisation>) -> &OperatorFinding {
    localisation.as_ref().and_then(|l| l.operator.as_ref()).expect("an operator was named")
}

fn orders(found: &OperatorFinding) -> [Order; 2] {
    found.launches.clone().unwrap().map(|launch| launch.order)
}

/// Goal: an operator whose launch follows the batch is named, and so is what about its launch differs. Method: the
/// batch-dependent mode of one operator at a time.
#[test]
fn an_operator_that_follows_the_batch_is_named_with_its_launches() {
    let cut = |cuts: &[u32]| Order::Cuts(cuts.to_vec());
    let planted = [
        (
            Operator::Gemm,
            [1, 1],
            (Some(0), "qkv projection", 0),
            [cut(&[0, 32, 64]), cut(&[0, 16, 32, 48, 64])],
            "cut differently: 2 splits against 4",
        ),
        (
            Operator::Attention,
            [24, 24],
            (Some(0), "attention", 16),
            [Order::Split(32), Order::Split(16)],
            "split every 32 positions against 16",
        ),
        (
            Operator::Norm,
            [1, 1],
            (Some(0), "attention norm", 1),
            [Order::Lanes(32), Order::Lanes(64)],
            "32 lanes against 64",
        ),
    ];
    for (spoilt, lengths, place, launches, words) in planted {
        let subject = host(Mode::ablation(spoilt));
        let (_, explanation) = explained(&subject, "I1", &case(&subject, &lengths));
        let found = operator(&explanation.localisation);
        assert_eq!((found.layer, found.operator, found.position), place);
        assert_eq!((&found.cause, orders(found)), (&Cause::Order, launches));
        assert!(found.elements.as_ref().is_some_and(|e| e.differing > 0 && e.ulp > Some(0)));
        let text = explanation.to_string();
        assert!(text.contains(words), "{text}");
        assert!(text.contains("needs: request 2 (shares steps"), "{text}");
        let [together, alone] = found.launches.as_ref().unwrap();
        assert_eq!((together.sequences, alone.sequences), (2, 1));
    }
}

/// Goal: a draw whose key follows the batch is named, whichever relation finds it. Method: the sampler alone follows the
/// batch, and the second of two requests is drawn for at random.
#[test]
fn a_key_that_follows_the_batch_is_named() {
    let subject = host(Mode::ablation(Operator::Sampler));
    let mut case = case(&subject, &[2, 2]);
    case.workload.requests[1].sampling.temperature = 1.5;
    for (relation, observable) in [("I1", Observable::Tokens), ("I4", Observable::Draws)] {
        let (found, explanation) = explained(&subject, relation, &case);
        assert_eq!(found, observable);
        let text = explanation.to_string();
        assert!(text.contains("operator: sampler, at position 2: "), "{text}");
        assert!(text.contains("at place 1 of its step, canonical "), "{text}");
        assert!(text.contains(" is not the canonical "), "{text}");
    }
}

/// Element of the flipped bit, and the bit.
const ELEMENT: usize = 37;
const BIT: u32 = 9;
/// Number of layer 0's attention among the sites.
const ATTENTION: usize = 5;

/// One bit of the last row's attention, in layer 0, is flipped where a step has two rows or more: after its fold.
#[derive(Clone, Default)]
struct BitOfAttention {
    rows: usize,
}

impl Alteration<Host> for BitOfAttention {
    fn watch(&mut self, device: &mut Host, on: bool) {
        device.watch(on);
        device.keep(&BTreeSet::from([ATTENTION]));
    }
    fn attention(
        &mut self,
        device: &mut Host,
        launch: AttentionLaunch,
        layer: usize,
        heads: Heads,
        layout: &Layout,
        q: &Vec<u16>,
        kv: &HostKv,
        out: &mut Vec<u16>,
    ) -> Result<(), DeviceError> {
        self.rows = layout.rows();
        device.attention(launch, layer, heads, layout, q, kv, out)
    }
    fn take_log(&mut self, device: &mut Host) -> Result<Vec<LoggedRows>, DeviceError> {
        let mut log = device.take_log()?;
        if let (2.., Some(entry)) = (self.rows, log.get_mut(ATTENTION))
            && let Some(values) = &mut entry.values
        {
            let row = (self.rows - 1) * entry.width;
            let x = &mut values[row + ELEMENT];
            *x = f32::from_bits(x.to_bits() ^ 1 << BIT);
            let row = &values[row..row + entry.width];
            entry.digests[self.rows - 1] = digest::row(Simd::all()[0], row);
        }
        Ok(log)
    }
}

#[test]
fn a_flipped_bit_of_attention_is_named_to_the_element() {
    let altered = altered::fixture("tiny", Host::new, BitOfAttention::default()).unwrap();
    // Of one row alone, none is flipped; request 2's is the last of a step of two.
    let (_, explanation) = explained(&altered, "I1", &case(&altered, &[1, 1]));
    let localisation = explanation.localisation.as_ref().unwrap();
    let found = operator(&explanation.localisation);
    assert_eq!((localisation.request, found.position), (2, 0));
    assert_eq!((found.layer, found.operator), (Some(0), "attention"));
    assert_eq!(found.cause, Cause::Fold { of: 1 });
    let elements = found.elements.as_ref().unwrap();
    assert_eq!((elements.first, elements.differing, elements.of), (ELEMENT, 1, 64));
    assert_eq!((elements.ulp, elements.ulp_max), (Some(1 << BIT), Some(1 << BIT)));
    assert!(localisation.logits.is_none(), "only the log was altered");

    // Request 1's last row is flipped where it is alone: its 40 positions are two splits, both equal.
    let (_, explanation) = explained(&altered, "I1", &case(&altered, &[40, 1]));
    let found = operator(&explanation.localisation);
    assert_eq!((found.position, &found.cause), (39, &Cause::Fold { of: 2 }));
    assert!(
        explanation.to_string().contains("all 2 splits are equal, so the fold over them differs")
    );
}

/// Layer 1's attention of a step with two rows or more reads other queries in its second head.
#[derive(Clone)]
struct OtherQuery;

impl Alteration<Host> for OtherQuery {
    fn attention(
        &mut self,
        device: &mut Host,
        launch: AttentionLaunch,
        layer: usize,
        heads: Heads,
        layout: &Layout,
        q: &Vec<u16>,
        kv: &HostKv,
        out: &mut Vec<u16>,
    ) -> Result<(), DeviceError> {
        let mut q = q.clone();
        if layer == 1 && layout.rows() >= 2 {
            for row in q.chunks_exact_mut(heads.q * heads.dim) {
                row[heads.dim] ^= 0x0100;
            }
        }
        device.attention(launch, layer, heads, layout, &q, kv, out)
    }
}

/// Two subjects that differ in the device: X1 finds a case, and names the split and the head.
#[test]
fn x1_names_the_part_that_differs_between_two_devices() {
    let altered = altered::fixture("tiny", Host::new, OtherQuery).unwrap();
    let host = host(Mode::Invariant);
    let one = case(&host, &[40, 1]);
    let id = SampleId::first(1);
    let found = schedules::localise(&host, &altered, &one, id).unwrap();
    let site = operator(&found);
    assert_eq!((site.layer, site.operator), (Some(1), "attention"));
    // At position 0 there is one key, whatever the query.
    assert_eq!(site.position, 1);
    let Cause::Part { split: 0, of: 1, elements } = &site.cause else { panic!("{site:?}") };
    assert!((16..32).contains(&elements.first) && elements.differing <= 16, "{elements:?}");
    assert_eq!(site.elements.as_ref(), Some(elements));
    let sound = schedules::localise(&host, &host, &one, id).unwrap();
    assert_eq!(sound, None);

    let counts = schedules::compare(&host, &altered, 4, 3, 1).unwrap();
    println!("{counts}");
    assert!(!counts.held());
    let site = operator(&counts.localisation);
    assert_eq!((site.layer, site.operator), (Some(1), "attention"));
    assert!(counts.to_string().contains("where: layer 1, attention, position"));
}

/// What comes back from host memory is another block's.
#[derive(Clone)]
struct SwappedSlots;

impl Alteration<Host> for SwappedSlots {
    fn swap_in(
        &mut self,
        device: &mut Host,
        swap: &HostKv,
        slots: &[u32],
        kv: &mut HostKv,
        blocks: &[u32],
    ) -> Result<(), DeviceError> {
        let mut slots = slots.to_vec();
        slots.swap(0, 1);
        device.swap_in(swap, &slots, kv, blocks)
    }
}

#[test]
fn what_changed_in_memory_is_named_with_the_event_that_it_takes() {
    let altered = altered::fixture("tiny", Host::new, SwappedSlots).unwrap();
    let mut case = case(&altered, &[10]);
    case.world.swap_blocks = 8;
    case.schedule.intents.push(Intent {
        uid: 1,
        sample: 0,
        mark: Mark::Computed { residency: 1, tokens: 11 },
        act: Act::Preempt { kind: PreemptKind::Swap, away: 1 },
    });
    let (_, explanation) = explained(&altered, "I2.swap", &case);
    let kv = explanation.localisation.as_ref().unwrap().kv.as_ref().unwrap();
    assert_eq!((kv.position, kv.layer, kv.which), (0, 0, "K"));
    assert_eq!(kv.moment, "when it had come back from host memory");
    let text = explanation.to_string();
    assert!(text.contains("request 1 at 11 tokens: preempt and swap, away for 1"), "{text}");
}

/// Goal: a run is localised against what its relation compares it with, not against its canonical execution, which may have
/// the same fault. Method: GEMMs that follow the number of rows; the plain engine goes row by row, of two siblings one has
/// its prefill cut, and tokens that were decoded are scored as a prompt.
#[test]
fn a_run_is_localised_against_what_it_is_compared_with() {
    let subject = host(Mode::ablation(Operator::Gemm));
    let alone = case(&subject, &[24]);
    let mut siblings = case(&subject, &[2, 2]);
    siblings.workload.requests[1].prompt = siblings.workload.requests[0].prompt.clone();
    siblings.schedule.intents.push(Intent {
        uid: 2,
        sample: 0,
        mark: Mark::Computed { residency: 1, tokens: 0 },
        act: Act::Cut { tokens: 1 },
    });
    let compared = [
        ("D1", &alone, "the plain engine", 0, "cut differently: 1 split against 4"),
        ("I1.siblings", &siblings, "request 1", 1, "cut differently: 2 splits against 1"),
        ("I2.path", &alone, "scored as a prompt", 24, "cut differently: 4 splits against 1"),
    ];
    for (relation, case, standard, position, words) in compared {
        let (_, explanation) = explained(&subject, relation, case);
        let localisation = explanation.localisation.as_ref().unwrap();
        assert_eq!(localisation.sides, ["the run", standard]);
        let found = operator(&explanation.localisation);
        assert_eq!((found.layer, found.operator), (Some(0), "qkv projection"));
        assert_eq!((found.position, &found.cause), (position, &Cause::Order));
        let elements = found.elements.as_ref().expect("both sides were read");
        assert!(elements.differing > 0 && elements.ulp > Some(0));
        let text = explanation.to_string();
        assert!(text.contains(words), "{text}");
        assert!(localisation.logits.as_ref().is_some_and(|l| l.elements.is_some()), "{text}");
    }
}

/// The last request of several has other logits.
struct LateComer(Fixture<Host>);

impl lockstep::subject::Wrapper for LateComer {
    fn inner(&self) -> &dyn Subject {
        &self.0
    }
    fn execute(
        &self,
        world: &World,
        workload: &Workload,
        schedule: &Schedule,
        seed: u64,
        capture: Option<&Capture>,
    ) -> Result<Run, SubjectError> {
        let mut run = self.0.execute(world, workload, schedule, seed, capture)?;
        if let [_, .., last] = &workload.requests[..] {
            let output = run.outputs.get_mut(&SampleId::first(last.uid)).unwrap();
            output.positions[1].logits ^= 1;
        }
        Ok(run)
    }
}

/// I2.restore judges a run that is not the case's own: it is that one which is localised.
#[test]
fn a_probe_that_the_relation_adds_is_localised() {
    let subject = LateComer(host(Mode::Invariant));
    let mut case = case(&subject, &[10]);
    case.schedule.intents.push(Intent {
        uid: 1,
        sample: 0,
        mark: Mark::Computed { residency: 1, tokens: 11 },
        act: Act::Abort,
    });
    let (observable, explanation) = explained(&subject, "I2.restore", &case);
    assert_eq!(observable, Observable::Logits);
    let localisation = explanation.localisation.unwrap();
    assert_eq!(localisation.sides, ["the run", "in a fresh instance"]);
    assert_eq!((localisation.request, localisation.logits.unwrap().position), (2, 9));
}

#[test]
fn a_localisation_as_json_has_values_in_hex_and_decimal() {
    let subject = host(Mode::ablation(Operator::Norm));
    let (_, explanation) = explained(&subject, "I1", &case(&subject, &[1, 1]));
    let json = serde_json::to_value(&explanation).unwrap();
    let operator = &json["localisation"]["operator"];
    assert_eq!(operator["cause"], "order");
    assert_eq!(operator["launches"][0]["order"]["lanes"], 32);
    let value = &operator["elements"]["values"][0];
    let bits = value["bits"].as_str().unwrap().strip_prefix("0x").unwrap();
    let bits = u32::from_str_radix(bits, 16).unwrap();
    assert_eq!(value["decimal"].as_str().unwrap().parse::<f32>().unwrap().to_bits(), bits);
    assert_eq!(json["needs"]["neighbours"][0]["request"], 2);
}
