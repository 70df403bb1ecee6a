//! Layers within a crate: which module may use which. Between crates `[dependencies]` say it. A new exception is one
//! line here.

use super::{Problems, is_test};

/// A module of a crate.
struct Layer {
    folder: &'static str,
    /// Modules of the same crate.
    uses: &'static [&'static str],
    /// Crates that its own may use, and it may not.
    never: &'static [&'static str],
}

const fn layer(folder: &'static str, uses: &'static [&'static str], never: &'static [&'static str]) -> Layer {
    Layer { folder, uses, never }
}

/// Modules that are not named here put others together.
const LAYERS: &[Layer] = &[
    layer("src/core/domain", &[], &["cel", "jsonschema"]),
    layer("src/core/retry", &["domain"], &["cel", "jsonschema"]),
    layer("src/core/shell", &["domain"], &["cel", "jsonschema"]),
    layer("src/core/tool_list", &["domain"], &["cel", "jsonschema"]),
    layer("src/core/rules", &["domain", "retry"], &["jsonschema"]),
    layer("src/core/policy", &["domain", "retry", "rules", "shell"], &[]),
    layer("src/core/engine", &["domain", "retry", "rules", "policy"], &[]),
    layer("src/core/offline", &["domain", "retry", "rules", "policy", "engine"], &[]),
    layer("src/store/sealing", &[], &["sqlx", "tokio", "tracing"]),
    layer("src/agent/hosts", &[], &["tokio", "tonic", "anyhow", "callgate_net"]),
    layer("src/agent/mcp", &[], &["tokio", "tonic", "anyhow", "callgate_net"]),
    layer("src/agent/hooks", &["hosts"], &["anyhow"]),
    layer("src/server/auth", &[], &["tokio", "sqlx", "tonic", "tracing", "callgate_net", "callgate_store"]),
    layer("src/server/telemetry", &[], &["sqlx", "anyhow"]),
    layer("src/server/config.rs", &[], &["sqlx", "tonic"]),
    layer("src/server/gate", &["auth", "telemetry"], &["sqlx", "tonic", "prost", "anyhow", "callgate_proto"]),
    layer("src/server/web", &["telemetry"], &["sqlx", "tonic", "prost", "anyhow"]),
    layer("src/server/grpc", &["auth", "gate", "telemetry", "web"], &["sqlx", "anyhow", "callgate_store"]),
    layer("src/server/console", &["auth", "gate", "grpc"], &["sqlx", "anyhow", "callgate_store"]),
];

/// Forbidden uses by the module of this file.
pub(crate) fn check(path: &str, text: &str) -> Problems {
    let is_of = |layer: &&Layer| {
        path.strip_prefix(layer.folder).is_some_and(|rest| rest.starts_with(['/', '.']) || rest.is_empty())
    };
    let Some(layer) = LAYERS.iter().find(is_of) else { return Vec::new() };
    if is_test(path) {
        return Vec::new();
    }
    let name = layer.folder.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
    let mut found = Vec::new();
    for (line, module) in below("crate", text) {
        if module != name && !layer.uses.contains(&module.as_str()) {
            found.push((line, format!("{name} may not use crate::{module}")));
        }
    }
    for never in layer.never {
        found.extend(below(never, text).into_iter().map(|(line, _)| (line, format!("{name} may not use {never}"))));
    }
    found
}

/// The names after `root::`, with their lines: one, or each of a group, without comments and `#[cfg(test)]` parts.
pub(crate) fn below(root: &str, text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let untested = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default();
    let lines: Vec<&str> =
        untested.split('\n').map(|line| if line.trim_start().starts_with("//") { "" } else { line }).collect();
    let text = lines.join("\n");
    for (at, _) in text.match_indices(&format!("{root}::")) {
        if text[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | ':' | '$')) {
            continue;
        }
        let line = text[..at].matches('\n').count() + 1;
        let rest = &text[at + root.len() + 2..];
        found.extend(heads(rest).into_iter().map(|head| (line, head)));
    }
    found
}

/// The first name, or the first of each in a group.
fn heads(path: &str) -> Vec<String> {
    let name = |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = path.strip_prefix('{') else { return vec![name(path)] };
    let (mut depth, mut heads, mut is_first) = (1, Vec::new(), true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => is_first = true,
            c if is_first && (c.is_alphanumeric() || c == '_') => {
                heads.push(name(&group[at..]));
                is_first = false;
            }
            _ => {}
        }
        if depth == 0 {
            break;
        }
    }
    heads
}

#[test]
fn forbidden_use_is_detected_in_any_form() {
    let said = |path: &str, text: &str| check(path, text).into_iter().map(|(_, problem)| problem).collect::<Vec<_>>();
    for (path, text, problem) in [
        ("src/core/rules/x.rs", "use crate::policy::Policy;", "rules may not use crate::policy"),
        (
            "src/core/rules/x.rs",
            "use crate::{\n    domain::{call, ids},\n    policy::{self, Policy},\n};",
            "rules may not use crate::policy",
        ),
        ("src/core/domain/x/y.rs", "fn f() { crate::rules::f() }", "domain may not use crate::rules"),
        ("src/server/gate.rs", "use sqlx::Row;", "gate may not use sqlx"),
        ("src/server/gate/x.rs", "pub(super) use crate::grpc::Front;", "gate may not use crate::grpc"),
        ("src/server/grpc/x.rs", "fn f() -> callgate_store::Store {}", "grpc may not use callgate_store"),
        ("src/agent/hosts/x.rs", "use tokio::time;", "hosts may not use tokio"),
    ] {
        assert_eq!(said(path, text), [problem], "{path}: {text}");
    }
    for (path, text) in [
        (
            "src/core/rules/x.rs",
            "//! [`crate::policy`]\nuse crate::{domain::call, retry};\n#[cfg(test)]\nmod tests { use crate::engine; }",
        ),
        ("src/core/rules/x/tests.rs", "use crate::engine;"),
        ("src/core/domainx/x.rs", "use crate::rules;"),
        ("src/server/serve.rs", "use crate::{console, gate};"),
    ] {
        assert_eq!(said(path, text), [""; 0], "{path}: {text}");
    }
}

#[test]
fn each_layer_is_there() {
    let missing = LAYERS.iter().filter(|layer| !std::path::Path::new(super::ROOT).join(layer.folder).exists());
    assert_eq!(missing.map(|layer| layer.folder).collect::<Vec<_>>(), [""; 0]);
}
