//! Records the compiler's version for the environment tuple.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=RUSTC");
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output();
    let version = version.ok().and_then(|out| String::from_utf8(out.stdout).ok());
    println!("cargo:rustc-env=LOCKSTEP_RUSTC={}", version.as_deref().unwrap_or("").trim());
}
