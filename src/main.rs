//! The one binary: `callgate`.

fn main() -> std::process::ExitCode {
    callgate::cli::main()
}
