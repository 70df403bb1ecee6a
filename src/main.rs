//! The one binary: `callgate`.

/// Halves the allocation cost of a pair of calls (Cargo.toml).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    callgate::cli::main()
}
