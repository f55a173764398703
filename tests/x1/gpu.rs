//! The trials on a GPU, and their report.

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use libtest_mimic::{Arguments, Failed, Trial};
use lockstep::contract::{Constants, Contract, Dtype, Mode};
use lockstep::device::cuda::{Context, Cuda, Program};
use lockstep::device::host::Host;
use lockstep::device::{Device, DeviceError};
use lockstep::engine::{DeviceModel, contract_of};
use lockstep::fixture::{Fixture, POSITIONS_MAX};
use lockstep::relation::x1::machine::{self, Control};
use lockstep::relation::x1::schedules::{self, Schedules};
use lockstep::relation::x1::weights::Sample;
use lockstep::relation::x1::{self, Area, Effort, Ledger, Pair};
use lockstep::weights::{self, Preset, Synthetic};
use serde_json::json;

use super::depth::{self, Depth};
use super::undecided;

/// What every trial found.
#[derive(Default)]
struct Findings {
    operators: Ledger,
    probes: Ledger,
    controls: Vec<Control>,
    schedules: Vec<Schedules>,
    depth: Vec<Depth>,
}

/// Settings and the GPU.
#[derive(Clone)]
struct Bench {
    context: Arc<Context>,
    effort: Effort,
    device_elements: u64,
    schedules: u64,
    positions: u64,
    findings: Arc<Mutex<Findings>>,
}

/// Set for a process that faults on purpose.
pub(crate) const FAULT: &str = "LOCKSTEP_X1_FAULT";

type Test = Box<dyn Fn(&Bench) -> Result<(), Failed> + Send>;

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is {text:?}, not a number")),
        Err(_) => default,
    }
}

pub(crate) fn run(arguments: &Arguments, context: &Arc<Context>) -> ExitCode {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let all_rows = std::env::var("LOCKSTEP_X1_ROWS").is_ok_and(|rows| rows == "all");
    let bench = Bench {
        context: Arc::clone(context),
        effort: Effort {
            elements: number("LOCKSTEP_X1_ELEMENTS", 100_000),
            gemm_rounds: number("LOCKSTEP_X1_GEMM_ROUNDS", if all_rows { 26 } else { 9 }),
            every_row_count: all_rows,
            jobs: number("LOCKSTEP_X1_JOBS", cores as u64) as usize,
            seed: number("LOCKSTEP_X1_SEED", 1) as u32,
        },
        device_elements: number("LOCKSTEP_X1_DEVICE_ELEMENTS", 1_000_000),
        schedules: number("LOCKSTEP_X1_SCHEDULES", 50),
        positions: number("LOCKSTEP_X1_POSITIONS", 64),
        findings: Arc::default(),
    };
    if !arguments.list {
        let gpu = context.gpu();
        let unit = gpu.arch.matrix_unit();
        let verified = if unit.verified { "verified" } else { "not verified on hardware" };
        eprintln!(
            "lockstep: x1 on {} ({}), driver {}, NVRTC {}, matrix unit {{{},{}}} {verified}; {:?}",
            gpu.name,
            gpu.arch,
            gpu.driver,
            gpu.compiler.version(),
            unit.unit.terms,
            unit.unit.fraction_bits,
            bench.effort,
        );
        let start = Instant::now();
        let programs = Program::all();
        let loaded: Result<(), DeviceError> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                programs.iter().map(|p| scope.spawn(|| context.load(*p))).collect();
            threads.into_iter().try_for_each(|t| t.join().expect("a load does not panic"))
        });
        if let Err(error) = loaded {
            eprintln!("lockstep: {error}");
            return ExitCode::from(3);
        }
        eprintln!("lockstep: kernels ready after {:.1} s", start.elapsed().as_secs_f64());
    }
    let conclusion = libtest_mimic::run(arguments, bench.trials());
    if !arguments.list {
        let findings = bench.findings.lock().expect("no trial panics while it holds the lock");
        eprint!("{}{}", findings.probes, findings.operators);
        for c in &findings.controls {
            eprintln!(
                "control {} {}: {} of {} differ",
                c.name,
                c.dtype.name(),
                c.different,
                c.elements
            );
        }
        for s in &findings.schedules {
            eprintln!(
                "schedules {} {}: {} of {} cases differ; {} logits rows, {} layer digests, {} K and V",
                s.model, s.dtype, s.different, s.cases, s.logits, s.layers, s.kv
            );
        }
        for d in &findings.depth {
            eprintln!(
                "full depth {} {}: {} of {} + {} positions differ; {} layer digests, {} K and V",
                d.model, d.dtype, d.different, d.prefix, d.positions, d.layers, d.kv
            );
        }
        if let Some(path) = std::env::var_os("LOCKSTEP_X1_REPORT") {
            let text =
                serde_json::to_string_pretty(&bench.report(&findings)).expect("it serialises");
            if let Err(error) = std::fs::write(&path, text + "\n") {
                eprintln!("lockstep: {}: {error}", path.display());
                return ExitCode::from(2);
            }
        }
    }
    conclusion.exit_code()
}

impl Bench {
    fn trials(&self) -> Vec<Trial> {
        let mut trials = vec![super::evidence::trial(), super::depth::trial()];
        let bench = self.clone();
        trials.push(Trial::test("x1::failures", move || bench.failures()));
        let bench = self.clone();
        trials.push(Trial::test("x1::qwen3_06b::bf16", move || bench.qwen3_06b()));
        for dtype in [Dtype::Bf16, Dtype::F16] {
            let mut add = |area: &str, test: Test| {
                let bench = self.clone();
                let name = format!("x1::{area}::{}", dtype.name());
                let shown = name.clone();
                trials.push(Trial::test(name, move || {
                    let start = Instant::now();
                    let result = test(&bench);
                    eprintln!("{shown}: {:.1} s", start.elapsed().as_secs_f64());
                    result
                }));
            };
            add(
                "matrix_unit",
                Box::new(move |b| {
                    let ledger = machine::matrix_unit(
                        &mut b.cuda(dtype, Constants::TINY),
                        b.effort.elements,
                    );
                    b.probes(ledger)
                }),
            );
            add(
                "scalars",
                Box::new(move |b| {
                    let ledger =
                        machine::scalars(&mut b.cuda(dtype, Constants::TINY), b.effort.elements);
                    b.probes(ledger)
                }),
            );
            add("weights", Box::new(move |b| b.weights(dtype)));
            add("controls", Box::new(move |b| b.controls(dtype)));
            for (area, name) in Area::ALL {
                add(name, Box::new(move |b| b.area(area, dtype)));
            }
            add(
                "device_variants",
                Box::new(move |b| {
                    let elements = b.device_elements;
                    let mut cuda = b.cuda(dtype, Constants::REAL);
                    b.operators(machine::row_variants(&mut cuda, elements))?;
                    for constants in [Constants::TINY, Constants::SMALL, Constants::REAL] {
                        let mut cuda = b.cuda(dtype, constants);
                        let elements = elements.div_ceil(3);
                        b.operators(machine::attention_variants(&mut cuda, elements))?;
                    }
                    Ok(())
                }),
            );
            for (name, preset, share) in
                [("schedules_tiny", "tiny", 1), ("schedules_small", "small", 10)]
            {
                add(
                    name,
                    Box::new(move |b| b.schedules(preset, dtype, b.schedules.div_ceil(share))),
                );
            }
        }
        trials
    }

    fn cuda(&self, dtype: Dtype, constants: Constants) -> Cuda {
        let unit = self.context.gpu().arch.matrix_unit().unit;
        Cuda::new(x1::contract(unit, dtype, constants), Arc::clone(&self.context))
    }

    fn area(&self, area: Area, dtype: Dtype) -> Result<(), Failed> {
        let unit = self.context.gpu().arch.matrix_unit().unit;
        let make = |contract: Contract| {
            let device = Cuda::new(contract.clone(), Arc::clone(&self.context));
            Ok(Pair { host: Host::new(contract), device })
        };
        self.operators(x1::search(area, unit, dtype, &self.effort, &make))
    }

    fn operators(&self, ledger: Result<Ledger, DeviceError>) -> Result<(), Failed> {
        let ledger = ledger.map_err(undecided)?;
        let result = judge(&ledger);
        self.note(|findings| findings.operators.merge(ledger));
        result
    }

    fn probes(&self, ledger: Result<Ledger, DeviceError>) -> Result<(), Failed> {
        let ledger = ledger.map_err(undecided)?;
        let result = judge(&ledger);
        self.note(|findings| findings.probes.merge(ledger));
        result
    }

    /// Weights made on the device, those of the large preset by a sample of its tensors.
    fn weights(&self, dtype: Dtype) -> Result<(), Failed> {
        let presets = [
            (Preset::Tiny, Sample::All),
            (Preset::Small, Sample::All),
            (Preset::Qwen3_06B, Sample::Layers),
        ];
        for (preset, sample) in presets {
            let synthetic = Synthetic { preset, dtype, seed: weights::WEIGHT_SEED };
            let device = self.cuda(dtype, Constants::TINY);
            let mut pair = Pair { host: Host::new(device.contract().clone()), device };
            self.operators(x1::weights::compare(&mut pair, &synthetic, sample))?;
        }
        Ok(())
    }

    fn controls(&self, dtype: Dtype) -> Result<(), Failed> {
        let controls =
            machine::controls(&mut self.cuda(dtype, Constants::REAL)).map_err(undecided)?;
        let missed: Vec<String> =
            controls.iter().filter(|c| !c.is_caught()).map(|c| format!("{c:?}")).collect();
        self.note(|findings| findings.controls.extend(controls));
        if missed.is_empty() { Ok(()) } else { Err(missed.join("\n").into()) }
    }

    fn schedules(&self, preset: &str, dtype: Dtype, cases: u64) -> Result<(), Failed> {
        let model =
            weights::source(preset, Some(dtype)).map_err(|e| Failed::from(e.to_string()))?;
        let unit = self.context.gpu().arch.matrix_unit().unit;
        let failed =
            |e: lockstep::subject::SubjectError| Failed::from(format!("could not decide: {e}"));
        let host =
            Fixture::host_with(preset, model.clone(), Mode::Invariant, unit).map_err(failed)?;
        let cuda = Fixture::cuda(preset, model, Mode::Invariant, &self.context).map_err(failed)?;
        let seed = u64::from(self.effort.seed);
        let counts =
            schedules::compare(&host, &cuda, cases, seed, self.effort.jobs).map_err(failed)?;
        let result = if counts.held() { Ok(()) } else { Err(Failed::from(counts.to_string())) };
        self.note(|findings| findings.schedules.push(counts));
        result
    }

    /// The Qwen3-0.6B shape at full depth, made on each device by itself.
    fn qwen3_06b(&self) -> Result<(), Failed> {
        let start = Instant::now();
        let preset = Preset::Qwen3_06B;
        let synthetic = Synthetic { preset, dtype: Dtype::Bf16, seed: weights::WEIGHT_SEED };
        let unit = self.context.gpu().arch.matrix_unit().unit;
        let config = synthetic.config();
        let (contract, rope) = contract_of(&config, synthetic.dtype, unit, POSITIONS_MAX);
        let device = Cuda::new(contract.clone(), Arc::clone(&self.context));
        let device = DeviceModel::make(&synthetic, device, &rope).map_err(undecided)?;
        let host = DeviceModel::make(&synthetic, Host::new(contract), &rope).map_err(undecided)?;
        eprintln!("x1::qwen3_06b: weights made after {:.1} s", start.elapsed().as_secs_f64());
        let (jobs, seed) = (self.effort.jobs, self.effort.seed);
        let count = self.positions as usize;
        let depth =
            depth::compare(preset.name(), &host, &device, count, jobs, seed).map_err(undecided)?;
        eprintln!("x1::qwen3_06b: {:.1} s", start.elapsed().as_secs_f64());
        let held = depth.held(self.positions, config.layers);
        let result = if held { Ok(()) } else { Err(Failed::from(format!("{depth:?}"))) };
        self.note(|findings| findings.depth.push(depth));
        result
    }

    /// A refused launch and a refused allocation leave the device working; a fault ends a process of its own with
    /// "could not decide", and names the kernel.
    fn failures(&self) -> Result<(), Failed> {
        let mut cuda = self.cuda(Dtype::Bf16, Constants::TINY);
        let matrix = cuda.upload_matrix(8, 32, &[0; 256]).map_err(undecided)?;
        let mut h = cuda.alloc_f32(32).map_err(undecided)?;
        for _ in 0..2 {
            let refused = cuda.embed(&matrix, &[8], &mut h);
            if !matches!(refused, Err(DeviceError::Launch(_))) {
                return Err(format!("a token outside the vocabulary: {refused:?}").into());
            }
            let refused = cuda.alloc_f32(1 << 40).map(|b| b.len());
            if !matches!(refused, Err(DeviceError::OutOfMemory { .. })) {
                return Err(format!("2^40 elements: {refused:?}").into());
            }
            cuda.embed(&matrix, &[7], &mut h).map_err(undecided)?;
            if cuda.read_f32(&h, 32).map_err(undecided)? != [0.0; 32] {
                return Err("the device does not work after a refusal".into());
            }
        }
        let program = std::env::current_exe()?;
        let child = std::process::Command::new(program).env(FAULT, "1").output()?;
        let text = String::from_utf8_lossy(&child.stderr);
        let named = text.contains("probe_fault") && text.matches("was lost").count() >= 2;
        if child.status.code() != Some(3) || !named {
            return Err(format!("a fault ended with {:?}: {text}", child.status).into());
        }
        Ok(())
    }

    fn note(&self, f: impl FnOnce(&mut Findings)) {
        f(&mut self.findings.lock().expect("no trial panics while it holds the lock"));
    }

    fn report(&self, findings: &Findings) -> serde_json::Value {
        let gpu = self.context.gpu();
        let unit = gpu.arch.matrix_unit();
        let rows = |ledger: &Ledger| -> Vec<serde_json::Value> {
            let row = |(key, count): (&x1::Key, &x1::Count)| {
                let mut row = json!(key);
                let count = json!(count);
                for (name, value) in count.as_object().into_iter().flatten() {
                    row[name] = value.clone();
                }
                row
            };
            ledger.counts().iter().map(row).collect()
        };
        json!({
            "schema": "lockstep.x1/1.0",
            "tool": lockstep::env::Tool::current(),
            "device": gpu.name,
            "arch": gpu.arch.to_string(),
            "driver": gpu.driver,
            "nvrtc": gpu.compiler.version(),
            "matrix_unit": {
                "terms": unit.unit.terms,
                "fraction_bits": unit.unit.fraction_bits,
                "verified": unit.verified,
            },
            "contract": super::evidence::contract(unit.unit),
            "kernels": super::evidence::kernels(),
            "cubins": self.context.facts().cubins,
            "seed": self.effort.seed,
            "operators": rows(&findings.operators),
            "probes": rows(&findings.probes),
            "controls": findings.controls,
            "layers": findings.schedules.iter().map(|s| s.layers).sum::<u64>()
                + findings.depth.iter().map(|d| d.layers).sum::<u64>(),
            "logits": findings.schedules.iter().map(|s| s.logits).sum::<u64>()
                + findings.depth.iter().map(|d| d.prefix + d.positions).sum::<u64>(),
            "schedules": findings.schedules,
            "full_depth": findings.depth,
        })
    }
}

/// The child of [`Bench::failures`]: faults, tries to go on, and ends with exit code 3.
pub(crate) fn fault(context: &Arc<Context>) -> ExitCode {
    let unit = context.gpu().arch.matrix_unit().unit;
    let contract = x1::contract(unit, Dtype::Bf16, Constants::TINY);
    let mut cuda = Cuda::new(contract, Arc::clone(context));
    for outcome in [cuda.probe_fault(), cuda.alloc_f32(1).map(drop)] {
        match outcome {
            Ok(()) => return ExitCode::SUCCESS,
            Err(error) => eprintln!("could not decide: {error}"),
        }
    }
    ExitCode::from(3)
}

fn judge(ledger: &Ledger) -> Result<(), Failed> {
    if ledger.held() { Ok(()) } else { Err(Failed::from(ledger.to_string())) }
}
