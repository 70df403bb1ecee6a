//! The one binary: `callgate`.

/// What a pair of calls allocates costs half as much with it (Cargo.toml).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    callgate::cli::main()
}
