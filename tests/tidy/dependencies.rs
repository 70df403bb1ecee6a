//! Dependencies: licenses, sources, and duplicate packages. Known vulnerabilities are left to `cargo deny check
//! advisories`, which needs a network.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path as FilePath,
    process::Command,
};

use serde_json::Value;

use super::ROOT;

/// The licenses that we accept; of alternatives one is enough.
const LICENCES: [&str; 10] = [
    "0BSD",
    "Apache-2.0",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CDLA-Permissive-2.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Zlib",
];
/// Where packages come from.
const SOURCE: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Packages with more than one version, each with the users of the older ones. Packages that only they need are listed,
/// too.
const DOUBLES: &[(&str, &str)] = &[
    ("base64", "all but lettre, whose version is newer"),
    ("bit-set", "jsonschema's and tiktoken-rs's fancy-regex"),
    ("bit-vec", "bit-set"),
    ("block-buffer", "sha2 of sqlx-core"),
    ("cpufeatures", "sha2 of sqlx-core"),
    ("crypto-common", "sha2 of sqlx-core"),
    ("digest", "sha2 of sqlx-core"),
    ("embedded-io", "postcard names two, and builds neither for us"),
    ("foldhash", "hashbrown of petgraph"),
    ("getrandom", "ring, and rand_core of opentelemetry_sdk"),
    ("hashbrown", "petgraph (protox, at build time) and sqlx-core"),
    ("nom", "phonenumber"),
    ("rand", "opentelemetry_sdk"),
    ("rand_core", "opentelemetry_sdk"),
    ("regex-syntax", "phonenumber's regex-cache"),
    ("sha2", "sqlx-core"),
    ("strum", "phonenumber"),
    ("strum_macros", "phonenumber"),
    ("syn", "a major version that half of the macros have not reached"),
    ("unicode-width", "miette (protox, at build time)"),
];

/// One package of the build.
#[derive(Debug)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) licence: String,
    /// None is this package itself.
    pub(crate) source: Option<String>,
}

/// Problems of the packages: licenses, sources, and unlisted or obsolete duplicates.
pub(crate) fn check(packages: &[Package], doubles: &[(&str, &str)]) -> Vec<String> {
    let mut found = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for Package { name, version, licence, source } in packages {
        versions.entry(name).or_default().insert(version);
        if !is_accepted(licence) {
            found.push(format!("{name} {version}: the licence {licence:?} is not among those that we accept"));
        }
        if source.as_ref().is_some_and(|source| source != SOURCE) {
            found.push(format!("{name} {version}: comes from {source:?}"));
        }
    }
    let named: BTreeSet<&str> = doubles.iter().map(|(name, _)| *name).collect();
    let double: BTreeSet<&str> = versions.iter().filter(|(_, all)| all.len() > 1).map(|(name, _)| *name).collect();
    found.extend(double.difference(&named).map(|name| format!("{name}: {:?} are built; name why", versions[name])));
    found.extend(named.difference(&double).map(|name| format!("{name}: is built once by now; take it off the list")));
    found
}

/// Does an SPDX expression leave us a license that we accept? `/` is an old form of OR.
pub(crate) fn is_accepted(licence: &str) -> bool {
    let words = licence.replace('/', " OR ").replace(['(', ')'], " ");
    let mut parts =
        words.split(" AND ").map(|part| part.split(" OR ").map(str::trim).any(|one| LICENCES.contains(&one)));
    !licence.is_empty() && parts.all(|is_accepted| is_accepted)
}

/// Every package that is built for this machine, dev-dependencies apart.
fn packages() -> Vec<Package> {
    let cargo = || Command::new(env!("CARGO"));
    let version = Command::new("rustc").arg("-vV").output().expect("rustc runs");
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host");
    let arguments = ["metadata", "--locked", "--format-version=1", "--filter-platform", host];
    let metadata = cargo().args(arguments).current_dir(ROOT).output().expect("cargo runs");
    let metadata: Value = serde_json::from_slice(&metadata.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&metadata.stderr)));
    let nodes: BTreeMap<&str, &Value> =
        array(&metadata["resolve"]["nodes"]).map(|node| (text(&node["id"]), node)).collect();
    let mut built = BTreeSet::new();
    let mut open = vec![text(&metadata["resolve"]["root"])];
    while let Some(id) = open.pop() {
        if built.insert(id) {
            let is_built = |dep: &&Value| array(&dep["dep_kinds"]).any(|kind| kind["kind"] != "dev");
            open.extend(array(&nodes[id]["deps"]).filter(is_built).map(|dep| text(&dep["pkg"])));
        }
    }
    let packages = array(&metadata["packages"]).filter(|package| built.contains(text(&package["id"])));
    let package = |package: &Value| Package {
        name: text(&package["name"]).to_owned(),
        version: text(&package["version"]).to_owned(),
        licence: text(&package["license"]).to_owned(),
        source: package["source"].as_str().map(str::to_owned),
    };
    packages.map(package).collect()
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[test]
fn dependencies_are_accepted_and_named() {
    let packages = packages();
    assert!(packages.len() > 100, "only {} packages were found", packages.len());
    let found = check(&packages, DOUBLES);
    assert!(found.is_empty(), "{} packages\n{}", found.len(), found.join("\n"));
}

#[test]
fn a_licence_a_source_and_a_double_that_nobody_accepted_are_seen() {
    let package = |name: &str, version: &str, licence: &str, source: Option<&str>| Package {
        name: name.to_owned(),
        version: version.to_owned(),
        licence: licence.to_owned(),
        source: source.map(str::to_owned),
    };
    let packages = [
        package("ours", "1", "Apache-2.0", None),
        package("free", "1", "GPL-3.0-only OR MIT", Some(SOURCE)),
        package("copyleft", "1", "MIT AND GPL-3.0-only", Some(SOURCE)),
        package("silent", "1", "", Some(SOURCE)),
        package("forked", "1", "MIT", Some("git+https://example.com/forked")),
        package("free", "2", "MIT/Apache-2.0", Some(SOURCE)),
    ];
    let found = check(&packages, &[("ours", "no longer")]).join("\n");
    for problem in ["copyleft 1", "silent 1", "forked 1", "free: {\"1\", \"2\"} are built", "ours: is built once"] {
        assert!(found.contains(problem), "{problem} is not in:\n{found}");
    }
    assert_eq!(found.lines().count(), 5, "{found}");
    assert!(is_accepted("(MIT OR Apache-2.0) AND Unicode-3.0"));
    assert!(is_accepted("Apache-2.0 WITH LLVM-exception OR MIT") && !is_accepted("LGPL-3.0-or-later"));
}

#[test]
fn cargo_deny_accepts_the_same_licences_and_source() {
    let text = fs::read_to_string(FilePath::new(ROOT).join("deny.toml")).expect("deny.toml");
    let list = text.split_once("allow = [").and_then(|(_, rest)| rest.split_once(']')).expect("a list").0;
    let accepted: Vec<&str> = list.split(',').map(|one| one.trim().trim_matches('"')).collect();
    assert_eq!(accepted[..accepted.len() - 1], LICENCES, "and a comma behind the last");
    assert!(text.contains(&format!("allow-registry = [\"{}\"]", SOURCE.trim_start_matches("registry+"))), "{text}");
}

#[test]
fn the_clients_have_the_servers_version() {
    let root = FilePath::new(ROOT);
    for (file, line) in [
        ("clients/python/pyproject.toml", format!("\nversion = \"{}\"\n", env!("CARGO_PKG_VERSION"))),
        ("clients/typescript/package.json", format!("\n  \"version\": \"{}\",\n", env!("CARGO_PKG_VERSION"))),
    ] {
        let text = fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(text.contains(&line), "{file} has another version than Cargo.toml: {line:?} is not in it");
    }
}
