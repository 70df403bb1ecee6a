//! Linker configuration that counts uninstrumented code: copies and comparisons of the C library, and precompiled
//! searches of Rust.

use std::{env, fs, path::Path, process::Command};

/// Library functions that scan a text by themselves: parameters and result, and the scanned length of `text` until
/// `found`.
const SEARCHES: [(&str, &str, &str, &str); 3] = [
    (
        "_4core5slice6memchr14memchr_aligned",
        "x: u8, text: &[u8]",
        "Option<usize>",
        "Some(at) => at, None => text.len()",
    ),
    (
        "_4core5slice6memchr7memrchr",
        "x: u8, text: &[u8]",
        "Option<usize>",
        "Some(at) => text.len() - at, None => text.len()",
    ),
    ("_4core3str5count14do_count_chars", "text: &str", "usize", "_ => text.len()"),
];

fn main() {
    let rustc = env::var("RUSTC").expect("cargo sets it");
    let arguments = ["--print", "target-libdir", "--target", &env::var("TARGET").expect("cargo sets it")];
    let folder = Command::new(rustc).args(arguments).output().expect("rustc runs").stdout;
    let folder = String::from_utf8(folder).expect("a path");
    let is_core = |name: &str| name.starts_with("libcore-") && name.ends_with(".rlib");
    let mut files = fs::read_dir(folder.trim()).expect("the standard library").flatten().map(|entry| entry.path());
    let core = files.find(|path| path.file_name().is_some_and(|name| is_core(&name.to_string_lossy())));
    let core = fs::read(core.expect("libcore")).expect("readable");
    let mut wrappers = String::new();
    for (name, takes, gives, went) in SEARCHES {
        // A missing one is not counted: the counter's self-test fails then.
        let Some(symbol) = symbol(&core, name) else { continue };
        let given = if takes.starts_with('x') { "x, text" } else { "text" };
        wrappers.push_str(&format!(
            "unsafe extern \"Rust\" {{\n\
                 #[link_name = \"__real_{symbol}\"] safe fn real{symbol}({takes}) -> {gives};\n\
             }}\n\
             #[unsafe(export_name = \"__wrap_{symbol}\")]\n\
             #[allow(non_snake_case, clippy::match_single_binding)]\n\
             fn wrap{symbol}({takes}) -> {gives} {{\n\
                 let found = real{symbol}({given});\n\
                 add(match found {{ {went} }});\n\
                 found\n\
             }}\n"
        ));
        println!("cargo::rustc-link-arg-bins=-Wl,--wrap={symbol}");
    }
    for symbol in ["memcpy", "memmove", "memcmp", "bcmp", "memset"] {
        println!("cargo::rustc-link-arg-bins=-Wl,--wrap={symbol}");
    }
    let out = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("searches.rs"), wrappers).expect("writable");
    println!("cargo::rerun-if-changed=build.rs");
}

/// The whole symbol that ends so, among the library's bytes.
fn symbol(library: &[u8], name: &str) -> Option<String> {
    let at = library.windows(name.len()).position(|bytes| bytes == name.as_bytes())?;
    let start = library[..at].iter().rposition(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_')? + 1;
    String::from_utf8(library[start..at + name.len()].to_vec()).ok()
}
