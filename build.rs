//! Compiles `proto/` with protox, so that no protoc has to be installed, and keeps the descriptor set for reflection.
//! Lists the files of `migrations/`, so that they are in the binary.
use std::{
    env,
    error::Error,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let services = [
        "approval", "audit", "fleet", "gate", "grant", "policy", "privacy", "profile", "server", "session", "tenant",
        "token",
    ];
    let descriptors =
        protox::compile(services.map(|service| format!("callgate/v1/{service}_service.proto")), ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("callgate.bin"), descriptors.encode_to_vec())?;
    let mut config = tonic_prost_build::Config::new();
    // By its name a message is told as JSON.
    config.enable_type_names();
    tonic_prost_build::configure()
        .extern_path(".google.rpc.Status", "::tonic_types::Status")
        // The method Connect would have the name of the constructor that this leaves out.
        .build_transport(false)
        .compile_fds_with_config(descriptors, config)?;
    println!("cargo:rerun-if-changed=migrations");
    fs::write(out.join("migrations.rs"), migrations(&Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("migrations"))?)?;
    Ok(())
}

/// `0001_tenant.sql` is version 1, "tenant".
fn migrations(folder: &Path) -> Result<String, Box<dyn Error>> {
    let mut files = fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, std::io::Error>>()?;
    files.sort();
    let mut list = String::from("const FILES: &[(i64, &str, &str)] = &[\n");
    for file in files.iter().filter(|file| file.extension().is_some_and(|end| end == "sql")) {
        let name = file.file_stem().and_then(|name| name.to_str()).ok_or("a migration's name is no text")?;
        let (version, does) = name.split_once('_').ok_or_else(|| format!("{name}: a migration is NNNN_what.sql"))?;
        let (version, does) = (version.parse::<i64>()?, does.replace('_', " "));
        writeln!(list, "    ({version}, {does:?}, include_str!({file:?})),")?;
    }
    list.push_str("];\n");
    Ok(list)
}
