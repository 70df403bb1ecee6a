//! What commands print for programs, in one way: a JSON object a line, a line a thing (docs/cli.md#json). A thing of
//! the contract has the contract's own JSON, with every field that always has a value.

use anyhow::Context as _;
use clap::Args;
use prost::Name;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, SerializeOptions};
use serde_json::Value;

use callgate_proto::v1;

/// For whom it is printed.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(super) struct Form {
    /// Print JSON, one object a line
    #[arg(long)]
    pub(super) json: bool,
}

impl Form {
    /// Prints one thing: as JSON, or as `text` does.
    pub(super) fn tell<M: Name>(self, message: &M, text: impl FnOnce(&M)) -> anyhow::Result<()> {
        if self.json {
            outln!("{}", line(message)?);
        } else {
            text(message);
        }
        Ok(())
    }

    /// Prints each of several things.
    pub(super) fn each<M: Name>(self, messages: &[M], mut text: impl FnMut(&M)) -> anyhow::Result<()> {
        messages.iter().try_for_each(|message| self.tell(message, &mut text))
    }
}

/// A message as one line of JSON.
pub(super) fn line<M: Name>(message: &M) -> anyhow::Result<String> {
    Ok(value(message)?.to_string())
}

/// A message as JSON.
pub(super) fn value<M: Name>(message: &M) -> anyhow::Result<Value> {
    let descriptor = descriptor(&M::full_name())?;
    let message = DynamicMessage::decode(descriptor, message.encode_to_vec().as_slice());
    let options = SerializeOptions::new().skip_default_fields(false);
    message
        .context("the answer does not fit the contract")?
        .serialize_with_options(serde_json::value::Serializer, &options)
        .context("the answer cannot be written as JSON")
}

fn descriptor(name: &str) -> anyhow::Result<MessageDescriptor> {
    use std::sync::OnceLock;
    static POOL: OnceLock<Option<DescriptorPool>> = OnceLock::new();
    let pool = POOL.get_or_init(|| DescriptorPool::decode(v1::DESCRIPTORS).ok());
    let found = pool.as_ref().and_then(|pool| pool.get_message_by_name(name));
    found.with_context(|| format!("the contract has no message {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Commands that list nothing and tell of no thing, or print what has a form of its own.
    const WITHOUT: &[&str] = &[
        "agents install",
        "agents uninstall",
        "backup verify",
        "completions",
        "database clock",
        "database distribute",
        "database retain",
        "database upgrade",
        "demo",
        "export",
        "health",
        "hook",
        "man",
        "mcp effects",
        "mcp wrap",
        "mcp-proxy",
        "policy init",
        "policy schema",
        "psql",
        "restore",
        "run",
        "serve",
        "tools import",
        "tools prompt",
    ];

    fn without(path: &str, command: &clap::Command, is_given: bool, all: &mut Vec<String>) {
        let subs: Vec<&clap::Command> =
            command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help").collect();
        let json = command.get_arguments().find(|arg| arg.get_long() == Some("json"));
        let is_given = is_given || json.is_some_and(clap::Arg::is_global_set);
        if subs.is_empty() && json.is_none() && !is_given {
            all.push(path.to_owned());
        }
        subs.into_iter().for_each(|sub| without(format!("{path} {}", sub.get_name()).trim_start(), sub, is_given, all));
    }

    #[test]
    fn every_command_that_lists_something_has_json() {
        let mut found = Vec::new();
        without("", &crate::cli::command(), false, &mut found);
        found.sort();
        assert_eq!(found, WITHOUT, "a command that prints a thing or a list takes Form; others stand in WITHOUT");
    }

    #[test]
    fn a_message_has_the_contracts_names_and_every_field_that_always_has_a_value() {
        let halt = v1::HaltState { scope: v1::HaltScope::Tool.into(), name: "pay".into(), ..v1::HaltState::default() };
        let told = line(&halt).expect("JSON");
        assert_eq!(told, r#"{"by":"","name":"pay","reason":"","scope":"HALT_SCOPE_TOOL"}"#);
    }
}
