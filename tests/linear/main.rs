//! Linearity: readers of foreign text take no more steps per byte for longer texts. `counted` is a separate program,
//! built here with instrumentation of every basic block, dependencies and C included: no reader can be missed.

#![cfg(target_os = "linux")]
#![allow(clippy::print_stdout, reason = "figures")]

use std::{env, process::Command};

/// The compilers' flags: each basic block calls the counter.
const RUSTFLAGS: &str = "-C passes=sancov-module -C llvm-args=-sanitizer-coverage-level=3 \
                         -C llvm-args=-sanitizer-coverage-trace-pc";
const CFLAGS: &str = "-fsanitize-coverage=trace-pc";
/// Optimized packages build slower than they run.
const PROFILE: [&str; 2] = ["profile.dev.debug=false", "profile.dev.package.callgate-core.opt-level=0"];

#[test]
fn readers_of_foreign_text_take_linear_steps() {
    let rustc = Command::new("rustc").arg("-vV").output().expect("rustc").stdout;
    let rustc = String::from_utf8(rustc).expect("UTF-8");
    let host = rustc.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host");
    // A target that is named leaves build scripts and macros, which have no counter, as they are.
    let mut cargo = Command::new(env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned()));
    cargo.current_dir(env!("CARGO_MANIFEST_DIR")).args(["run", "--quiet", "--locked", "-p", "callgate-linear"]);
    cargo.args(["--target", host, "--target-dir", "target/linear"]);
    cargo.args(PROFILE.iter().flat_map(|setting| ["--config", setting]));
    cargo.env_remove("CARGO_ENCODED_RUSTFLAGS").env("RUSTFLAGS", RUSTFLAGS).env("CFLAGS", CFLAGS);
    let counted = cargo.output().expect("cargo runs");
    println!("{}", String::from_utf8_lossy(&counted.stdout));
    assert!(counted.status.success(), "{}", String::from_utf8_lossy(&counted.stderr));
}
