//! Compiles `proto/` with protox, so that no protoc has to be installed, and keeps the descriptor set for reflection.
use std::{env, error::Error, fs, path::PathBuf};

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors =
        protox::compile(["callgate/v1/gate_service.proto", "callgate/v1/profile_service.proto"], ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("callgate.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
