//! Compiler of tools that run shell lines.

use super::Compiler;
use crate::policy::{file::ToolSection, tool::CommandLine};

impl Compiler {
    /// The argument of a tool that holds a shell line.
    pub(super) fn command_line(&mut self, path: &str, keys: &ToolSection) -> Option<CommandLine> {
        let Some(line) = keys.command_line.clone() else {
            if keys.working_directory.is_some() {
                self.wrong(format!("{path}.working_directory"), "has no effect without command_line");
            }
            return None;
        };
        let at = format!("{path}.command_line");
        if keys.effect.is_some() || keys.side_effect_resource.is_some() {
            self.wrong(&at, "is what effect and side_effect_resource are read from: give either, not both");
        }
        let fields = keys.schema.as_ref().and_then(|schema| schema.get("properties")?.as_object());
        for (at, field) in [(at, Some(&line)), (format!("{path}.working_directory"), keys.working_directory.as_ref())] {
            if let (Some(fields), Some(field)) = (fields, field)
                && !fields.contains_key(field)
            {
                self.wrong(at, format!("names {field}, which the schema has not"));
            }
        }
        Some(CommandLine { line, folder: keys.working_directory.clone() })
    }
}
