//! Tasks of this repository. Run as `cargo xtask TASK`.

fn main() {}
