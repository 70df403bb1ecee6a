//! Real programs of coding agents with the hooks of `callgate agents install`, and a scripted model (`model.mjs`).
//! `make hosts` installs the programs and runs this; tests of a missing program print a line and pass.

#[path = "../common/mod.rs"]
mod common;
#[path = "../serve/server.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod server;

mod agent;
mod behaviour;
mod stage;
mod work;
