//! **callgate**: the policy plane between a fleet of LLM agents and their tools. Before a tool call an agent asks
//! `Evaluate`; after it, `Record`; after a context compaction, `GetSessionState`. Every call and its outcome is a row
//! in Postgres.
//!
//! # The idea
//!
//! A *session* with its sub-agents is a *call tree*: a value, folded from its recorded events. A *rule* is a pure
//! function from what is known to an optional finding. A *verdict* is the strictest finding. The *store* accepts a
//! verdict only if the tree has not moved since it was read; otherwise the gate judges again. Everything else is
//! translation or assembly.
//!
//! # Crates
//!
//! | crate | folder | holds |
//! |---|---|---|
//! | [`callgate_core`] | `src/core` | decides and learns: domain, rules, policies, the engine |
//! | [`callgate_proto`] | `src/proto` | the contract: generated messages and services, descriptors, times |
//! | `callgate` | `src` | this crate: the server, its clients, the commands |
//! | `callgate-bench` | `src/bench` | `bench` and `simulate`; not part of the product |
//!
//! # Modules of this crate
//!
//! | module | holds | depends on |
//! |---|---|---|
//! | [`cli`] | the commands | all |
//!
//! `mcp`, `hosts`, `auth` and all of core are pure: no `async`, no clock, no lock, no log; time is an argument.
//! `tests/tidy` reads every file and holds the walls.
//!
//! # One Evaluate, file by file
//!
//! 1. `grpc/service.rs`, `grpc/decode.rs`: message to `domain::call::Request`
//! 2. `gate/evaluate.rs`: the policy reads the call; from here on it is one closure that reads what crosses trees, and
//!    one that judges
//! 3. `gate/decide.rs`: the one loop. It finds the tree by `gate/trees.rs` (`store/cache.rs`, or
//!    `store/postgres/load.rs`), has the first closure read, takes a queue slot, and runs the second under the tree's
//!    lock
//! 4. `core/engine/evaluate.rs`: `core/rules/*.rs` each say what they have to say; the strictest finding decides
//! 5. `core/domain/tree/apply.rs`: the event is folded in; the tree is ahead of its commit
//! 6. `store/postgres/writer.rs`, `store/postgres/append.rs`: the event joins the open batch; the loop waits for the
//!    commit. A lost race drops the tree, and the loop runs again
//! 7. `gate/evaluate.rs`, after the commit: `gate/health.rs` counts the permit, `telemetry/verdict.rs` says it once
//! 8. `grpc/encode.rs` answers; an error is told by `grpc/status.rs`, one documented pair a variant
//!
//! `Record`, the commands of people (`gate/control.rs`) and what is only looked at (`gate/state.rs`) are closures of
//! the same loop, around `core/engine/record.rs`, `core/engine/control.rs` and `core/engine/state.rs`. What a failure
//! is worth retrying comes from `core/retry/advice.rs`, which weighs `core/retry/estimate.rs`;
//! `core/engine/follow_up.rs` tells what a later call followed up on, `store/postgres/profiles.rs` counts what came of
//! it, and `gate/learned.rs` reads the counts back. Whether models mend their arguments after a refusal is learned
//! beside it (`core/engine/self_correction.rs`, `core/retry/self_correction.rs`).
//!
//! # The policy, and people
//!
//! `core/policy/form.rs` holds a file against its own schema, `core/policy/compile` makes a
//! [`callgate_core::policy::Policy`] of it, and `Policy::propose` reads a call's arguments by it. `gate/policies.rs`
//! swaps the active one under running judgements. What people and systems do to a session (`core/engine/control.rs`: an
//! answer, a phase, a grant, a compaction) is an event of its tree like any other, so that a judgement made without
//! knowing of it is made again. The kill switch stands beside the trees (`core/domain/halt.rs`), and every replica
//! reads it each second.
//!
//! # Where to begin reading
//!
//! `core/domain/call.rs`, `core/domain/tree.rs`, `core/rules/repeat.rs`, `core/rules/same_call.rs` and its tests,
//! `core/engine/evaluate.rs`, `gate.rs`. A new rule is one file and one line in `core/rules/mod.rs`; its doc comment is
//! its manual; stories in `tests/traces/rules/` show where it fires, and where it does not (CONTRIBUTING.md#a-rule).

#[macro_use]
extern crate callgate_client;

pub mod cli;
