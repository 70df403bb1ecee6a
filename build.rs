//! Build script of `src/proto`: compiles `proto/` with protox, so that no protoc has to be installed, and keeps the
//! descriptor set for reflection.
use std::{env, error::Error, fs, path::PathBuf};

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    let proto = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    println!("cargo:rerun-if-changed={}", proto.display());
    let services = [
        "approval", "audit", "fleet", "gate", "grant", "policy", "privacy", "profile", "server", "session", "tenant",
        "token",
    ];
    let descriptors =
        protox::compile(services.map(|service| format!("callgate/v1/{service}_service.proto")), [&proto])?;
    // No part of the contract, so neither reflection nor JSON has it.
    let envoy = protox::compile(["envoy/service/auth/v3/external_auth.proto"], [&proto])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("callgate.bin"), descriptors.encode_to_vec())?;
    let mut config = tonic_prost_build::Config::new();
    // By its name a message is told as JSON.
    config.enable_type_names();
    for (descriptors, config) in [(descriptors, config), (envoy, tonic_prost_build::Config::new())] {
        tonic_prost_build::configure()
            .extern_path(".google.rpc.Status", "::tonic_types::Status")
            // The method Connect would have the name of the constructor that this leaves out.
            .build_transport(false)
            .compile_fds_with_config(descriptors, config)?;
    }
    Ok(())
}
