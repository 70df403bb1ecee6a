//! Stored tool inventories: one file per server, below the user's state folder.

use std::{
    fs,
    io::{ErrorKind, Write as _},
    path::PathBuf,
};

use anyhow::Context as _;

use crate::{mcp::inventory::Inventory, pending_call};

/// Inventory file of a server.
#[derive(Debug, Clone)]
pub(super) struct InventoryFile(PathBuf);

impl InventoryFile {
    pub(super) fn of(server: &str) -> anyhow::Result<Self> {
        let folder = pending_call::folder("mcp").context("the user has no home directory")?;
        Ok(Self(folder.join(format!("{}.json", normalize_server_name(server)))))
    }

    /// The stored inventory; none for a new server.
    pub(super) fn load(&self) -> anyhow::Result<Option<Inventory>> {
        let path = self.0.display();
        match fs::read_to_string(&self.0) {
            Ok(text) => serde_json::from_str(&text)
                .map(Some)
                .with_context(|| format!("cannot read {path}; remove it to start without known tools of this server")),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read {path}")),
        }
    }

    /// Stores the inventory atomically.
    pub(super) fn save(&self, inventory: &Inventory) -> anyhow::Result<()> {
        let written = || format!("cannot write {}", self.0.display());
        let folder = self.0.parent().with_context(written)?;
        fs::create_dir_all(folder).with_context(written)?;
        let mut file = tempfile::NamedTempFile::new_in(folder).with_context(written)?;
        let text = serde_json::to_string_pretty(inventory).with_context(written)?;
        file.write_all(text.as_bytes()).and_then(|()| file.flush()).with_context(written)?;
        file.persist(&self.0).with_context(written)?;
        Ok(())
    }
}

/// A server's name as coding agents write it in tool names.
pub(super) fn normalize_server_name(server: &str) -> String {
    server.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' || c == '_' { c } else { '_' }).collect()
}
