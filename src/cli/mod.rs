//! The commands. This room may use every other; it alone prints, and it alone uses `anyhow`.

pub mod replay;
pub mod trace;
