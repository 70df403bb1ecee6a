//! Build script of the store: lists the files of `migrations/` with their texts. sqlx's macro would compile the whole
//! driver a second time, for the compiler.
use std::{env, error::Error, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("../../migrations");
    println!("cargo:rerun-if-changed={}", folder.display());
    let files: Result<Vec<PathBuf>, _> = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut files = files?;
    files.retain(|file| file.extension().is_some_and(|end| end == "sql"));
    files.sort();
    let list =
        files.iter().map(|file| format!("({:?}, include_str!({file:?})),\n", file.file_stem().unwrap_or_default()));
    let list = format!("&[\n{}]\n", list.collect::<String>());
    Ok(fs::write(PathBuf::from(env::var("OUT_DIR")?).join("migrations.rs"), list)?)
}
