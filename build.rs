//! Compiles `proto/` with protox, so that no protoc has to be installed, and keeps the descriptor set for reflection.
use std::{env, error::Error, fs, path::PathBuf};

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let services = ["approval", "gate", "grant", "policy", "profile", "session"];
    let descriptors =
        protox::compile(services.map(|service| format!("callgate/v1/{service}_service.proto")), ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("callgate.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}
