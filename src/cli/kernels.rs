//! `lockstep kernels`: compile every kernel for every supported architecture. Needs NVRTC, no GPU.

use clap::Args;
use lockstep::device::cuda::{Arch, Compiler, Program, options};

use super::out::say;
use super::{CliError, Exit};

/// Matrix instructions in PTX.
const MATRIX: &str = "mma.sync.aligned.m16n8k16";
/// Forms that round otherwise than the contract says.
const INEXACT: [&str; 3] = [".approx", ".ftz", "fma.rz"];

#[derive(Args, Debug)]
pub(super) struct Kernels {
    /// Exit with 1 when a kernel of a matrix file has no matrix instruction, or one has an inexact instruction.
    #[arg(long)]
    check: bool,
}

/// A kernel in the compiler's log.
#[derive(Debug, Default, PartialEq, Eq)]
struct Usage {
    name: String,
    registers: u32,
    spill_bytes: u32,
}

impl Kernels {
    pub(super) fn run(&self) -> Result<Exit, CliError> {
        let compiler = Compiler::new(None).map_err(CliError::undecided)?;
        say!("NVRTC {}, {}", compiler.version(), options(Arch::CHECKED[0])[1..].join(" "));
        let (mut missing, mut inexact) = (Vec::new(), Vec::new());
        let (mut kernels, mut spilling) = (0, 0);
        for arch in Arch::CHECKED {
            for program in Program::all() {
                let compiled = compiler.cubin_and_ptx(&program, arch);
                let (cubin, ptx) =
                    compiled.map_err(|e| CliError { exit: Exit::Broken, line: e.to_string() })?;
                say!("{arch} {program} {}", cubin.sha256);
                if let Some(word) = INEXACT.iter().find(|word| ptx.contains(**word)) {
                    inexact.push(format!("{word} in {program} for {arch}"));
                }
                for usage in usages(&cubin.log) {
                    kernels += 1;
                    spilling += u32::from(usage.spill_bytes > 0);
                    let Usage { name, registers, spill_bytes } = &usage;
                    say!("    {name}: {registers} registers, {spill_bytes} bytes spilled");
                    if program.source.has_matrix && needs_matrix(name) && !has_matrix(&ptx, name) {
                        missing.push(format!("{name} of {program} for {arch}"));
                    }
                }
            }
        }
        say!("{kernels} kernels, {spilling} of them spill");
        if kernels == 0 {
            return Err(CliError::undecided("the compiler's log names no kernel"));
        }
        for (what, list) in
            [("without a matrix instruction", &missing), ("inexact instructions", &inexact)]
        {
            if !list.is_empty() {
                say!("{what}: {}", list.join(", "));
            }
        }
        if self.check && !(missing.is_empty() && inexact.is_empty()) {
            return Ok(Exit::Broken);
        }
        Ok(Exit::Held)
    }
}

/// Folds add up what other kernels multiplied; the other controls and scalars multiply nothing.
fn needs_matrix(kernel: &str) -> bool {
    !kernel.ends_with("_fold")
        && !matches!(kernel, "control_fma" | "control_k8" | "probe_scalars" | "probe_fault")
}

/// Whether the body of `kernel` holds a matrix instruction.
fn has_matrix(ptx: &str, kernel: &str) -> bool {
    let Some(at) = ptx.find(&format!(".entry {kernel}(")) else { return false };
    let body = &ptx[at..];
    let end = body[1..].find(".entry ").map_or(body.len(), |end| end + 1);
    body[..end].contains(MATRIX)
}

/// What the log of `--ptxas-options=-v` says of each kernel.
fn usages(log: &str) -> Vec<Usage> {
    let mut usages: Vec<Usage> = Vec::new();
    for line in log.lines() {
        if let Some(rest) = line.split("Compiling entry function '").nth(1) {
            let name = rest.split('\'').next().unwrap_or_default().to_owned();
            usages.push(Usage { name, ..Usage::default() });
        }
        let Some(usage) = usages.last_mut() else { continue };
        let before = |word: &str| {
            let text = line.split(word).next()?;
            text.split_whitespace().next_back()?.parse::<u32>().ok()
        };
        if line.contains("bytes spill stores") {
            usage.spill_bytes = before("bytes spill stores").unwrap_or(0);
        }
        if line.contains("Used ") && line.contains(" registers") {
            usage.registers = before(" registers").unwrap_or(0);
        }
    }
    usages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_and_spills_are_read_from_the_log() {
        let log = "ptxas info    : 0 bytes gmem\n\
            ptxas info    : Compiling entry function 'a_walk' for 'sm_90'\n\
            ptxas info    : Function properties for a_walk\n\
            ptxas         .     264 bytes stack frame, 736 bytes spill stores, 492 bytes spill loads\n\
            ptxas info    : Used 255 registers, used 1 barriers, 34816 bytes smem\n\
            ptxas info    : Compiling entry function 'b' for 'sm_90'\n\
            ptxas info    : Used 32 registers, used 0 barriers\n";
        let expected =
            [("a_walk", 255, 736), ("b", 32, 0)].map(|(name, registers, spill_bytes)| Usage {
                name: name.into(),
                registers,
                spill_bytes,
            });
        assert_eq!(usages(log), expected);
    }

    #[test]
    fn a_matrix_instruction_counts_for_its_own_kernel_only() {
        let ptx = format!(".visible .entry a(\n{{ {MATRIX}; }}\n.visible .entry b(\n{{ add; }}\n");
        assert!(has_matrix(&ptx, "a"));
        assert!(!has_matrix(&ptx, "b"));
        assert!(!has_matrix(&ptx, "c"));
    }
}
