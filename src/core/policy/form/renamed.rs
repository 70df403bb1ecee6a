//! Renamed keys of a policy: a text with an old key is rejected with the new one, and a stored policy is read with it.

use serde_json::Value;

/// The sections of renamed keys, below `policy_engine` (`*` is any key or item), the old keys and the new ones.
pub(super) const RENAMED: &[(&str, &str, &str)] = &[
    ("", "cooldown", "tool_circuit_breaker"),
    ("loops", "breaker", "global_circuit_breaker"),
    ("rules", "breaker", "global_circuit_breaker"),
    ("rules", "cooldown", "tool_circuit_breaker"),
    ("approvals.routes.*", "people", "required_approvals"),
    ("growth", "patience", "max_waits"),
    ("retry", "explore", "probe_share"),
    ("retry", "rate_limit_run", "max_consecutive_rate_limits"),
    ("retry", "saved_up", "burst"),
    ("retry", "unless_wait_honoured", "exclude_honored_waits"),
    ("storage", "keep", "not_secret"),
    ("tool_schemas.*", "by_session", "private_to_call_tree"),
    ("tool_schemas.*", "key_honoured", "key_honored"),
];

/// The new name of a key or rule, if it is one of these.
pub(super) fn new_name<'a>(old: &str, known: &[&'a str]) -> Option<&'a str> {
    let mut found = RENAMED.iter().filter(|(_, name, _)| *name == old).map(|(.., new)| *new);
    found.find_map(|new| known.iter().find(|known| **known == new).copied())
}

/// Gives the old keys of a stored policy their new names.
pub(super) fn rename(file: &mut Value) {
    for (section, old, new) in RENAMED {
        if let Some(engine) = file.get_mut(super::ENGINE) {
            let parts: Vec<&str> = section.split('.').filter(|part| !part.is_empty()).collect();
            rename_in(engine, &parts, old, new);
        }
    }
}

fn rename_in(value: &mut Value, section: &[&str], old: &str, new: &str) {
    match (section, value) {
        ([], Value::Object(keys)) => {
            if let Some(value) = keys.remove(old) {
                keys.entry(new).or_insert(value);
            }
        }
        (["*", rest @ ..], Value::Object(keys)) => keys.values_mut().for_each(|one| rename_in(one, rest, old, new)),
        (["*", rest @ ..], Value::Array(items)) => items.iter_mut().for_each(|one| rename_in(one, rest, old, new)),
        ([key, rest @ ..], Value::Object(keys)) => {
            keys.get_mut(*key).into_iter().for_each(|one| rename_in(one, rest, old, new));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::RENAMED;
    use crate::policy::{Policy, PolicyError, compile, compile_stored};

    /// A policy with this value at the old key, as JSON, which is YAML too.
    fn policy(section: &str, old: &str, value: &Value) -> String {
        let parts = section.rsplit('.').filter(|part| !part.is_empty());
        let engine = parts.fold(json!({old: value}), |inner, part| match part {
            "*" => json!({"look": inner}),
            "routes" => json!({"routes": [inner["look"]]}),
            part => json!({part: inner}),
        });
        json!({"policy_engine": engine}).to_string()
    }

    #[test]
    fn renamed_keys_are_rejected_with_their_new_names() {
        for (section, old, new) in RENAMED {
            let text = policy(section, old, &json!({}));
            let problems: Vec<String> = compile(&text).expect_err(&text).iter().map(ToString::to_string).collect();
            let expected = format!("`{old}` is now `{new}`");
            assert!(problems.iter().any(|problem| problem.contains(&expected)), "{text}: {problems:?}");
        }
    }

    /// The policy without its version, or its problems.
    fn read(compiled: Result<Policy, Vec<PolicyError>>) -> Result<String, Vec<String>> {
        let policy = compiled.map(|policy| format!("{:?}", Policy { version: "".into(), ..policy }));
        policy.map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn renamed_keys_of_stored_policies_are_read() {
        for (section, old, new) in RENAMED {
            for value in [json!({}), json!(2), json!(0.5), json!(true), json!(["a"])] {
                let [old, new] = [old, new].map(|key| policy(section, key, &value));
                assert_eq!(read(compile_stored(&old)), read(compile(&new)), "{old}");
            }
        }
    }
}
