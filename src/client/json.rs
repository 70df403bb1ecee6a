//! JSON output of commands: one object per line and item (docs/cli.md#json). Contract messages use the contract's JSON,
//! with every field that always has a value.

use anyhow::Context as _;
use clap::Args;
use prost::Name;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, SerializeOptions};
use serde_json::Value;

use callgate_proto::v1;

/// Output format of a command.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct OutputFormat {
    /// Print JSON, one object a line
    #[arg(long)]
    pub json: bool,
}

impl OutputFormat {
    /// Prints one item, as JSON or by `text`.
    pub fn print_item<M: Name>(self, message: &M, text: impl FnOnce(&M)) -> anyhow::Result<()> {
        if self.json {
            outln!("{}", to_line(message)?);
        } else {
            text(message);
        }
        Ok(())
    }

    /// Prints several items.
    pub fn print_items<M: Name>(self, messages: &[M], mut text: impl FnMut(&M)) -> anyhow::Result<()> {
        messages.iter().try_for_each(|message| self.print_item(message, &mut text))
    }
}

/// A message as one line of JSON.
pub fn to_line<M: Name>(message: &M) -> anyhow::Result<String> {
    Ok(value(message)?.to_string())
}

/// A message as JSON.
pub fn value<M: Name>(message: &M) -> anyhow::Result<Value> {
    let descriptor = descriptor(&M::full_name())?;
    let message = DynamicMessage::decode(descriptor, message.encode_to_vec().as_slice());
    let options = SerializeOptions::new().skip_default_fields(false);
    message
        .context("the answer does not match the contract")?
        .serialize_with_options(serde_json::value::Serializer, &options)
        .context("cannot write the answer as JSON")
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

    #[test]
    fn a_message_has_the_contracts_names_and_every_field_that_always_has_a_value() {
        let halt = v1::HaltState { scope: v1::HaltScope::Tool.into(), name: "pay".into(), ..v1::HaltState::default() };
        let told = to_line(&halt).expect("JSON");
        assert_eq!(told, r#"{"by":"","name":"pay","reason":"","scope":"HALT_SCOPE_TOOL"}"#);
    }
}
