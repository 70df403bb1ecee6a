//! The real programs of coding agents, with the hooks that `callgate agents install` writes, and a model that says what
//! a script says (`model.mjs`). `make hosts` installs the programs and runs this; where one is not there, its tests say
//! so in a line and pass.

#[path = "../common/mod.rs"]
mod common;
#[path = "../serve/server.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod server;

mod agent;
mod behaviour;
mod stage;
mod work;
