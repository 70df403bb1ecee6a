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
//! # The rooms
//!
//! | room | is | knows |
//! |---|---|---|
//! | [`domain`] | the nouns: calls, effects, fingerprints, call trees, verdicts | nobody |
//! | [`retry`] | is a retry worth it: classify, estimate, advise | domain |
//! | [`rules`] | one rule a file | domain, retry |
//! | [`policy`] | the owner's file, compiled | domain, retry, rules, shell |
//! | [`engine`] | two pure functions: evaluate, record | domain, retry, rules, policy |
//! | [`shell`] | what a line of a shell does | domain |
//! | [`mcp`] | what goes between an MCP client and its server | nobody |
//! | [`tool_list`] | lists of tools: read, imported, one lint a file | domain |
//! | [`hosts`] | what coding agents say to a hook, and hear | nobody |
//! | [`auth`] | who somebody is, by what they show | domain |
//! | [`offline`] | what needs no server: a plane in memory, replay, simulation | domain, retry, rules, policy, engine |
//! | [`private_postgres`] | a PostgreSQL of our own: programs, files, accounts | nobody |
//! | [`sealing`] | values sealed with keys of their tenants | domain |
//! | [`store`] | Postgres, a cache in front of it | domain, sealing |
//! | [`telemetry`] | logs, spans, metrics | domain |
//! | [`gate`] | load, decide, append | domain, auth, retry, engine, policy, offline, store, sealing, telemetry, clock |
//! | [`listener`] | connections: addresses, TLS, limits | clock |
//! | [`outgoing`] | one small request to somebody else | nobody |
//! | [`web`] | what is asked over HTTP alone | domain, telemetry |
//! | [`grpc`] | the contract of `proto/` | domain, auth, gate, telemetry, clock, hosts, listener, web |
//! | [`console`] | a fleet in a browser, over the services | domain, auth, policy, gate, grpc, listener, outgoing |
//! | [`cli`] | the commands | all |
//!
//! The first eleven rooms are pure: no `async`, no clock, no lock, no log; time is an argument. `tests/tidy` reads
//! every file and holds the walls.
//!
//! # One Evaluate, file by file
//!
//! 1. `grpc/service.rs`, `grpc/decode.rs`: message to `domain::call::Request`
//! 2. `gate/evaluate.rs`: the policy reads the call; from here on it is one closure that reads what crosses trees, and
//!    one that judges
//! 3. `gate/decide.rs`: the one loop. It finds the tree by `gate/trees.rs` (`store/cache.rs`, or
//!    `store/postgres/load.rs`), has the first closure read, takes a queue slot, and runs the second under the tree's
//!    lock
//! 4. `engine/evaluate.rs`: `rules/*.rs` each say what they have to say; the strictest finding decides
//! 5. `domain/tree/apply.rs`: the event is folded in; the tree is ahead of its commit
//! 6. `store/postgres/writer.rs`, `append.rs`: the event joins the open batch; the loop waits for the commit. A lost
//!    race drops the tree, and the loop runs again
//! 7. `gate/evaluate.rs`, after the commit: `gate/health.rs` counts the permit, `telemetry/verdict.rs` says it once
//! 8. `grpc/encode.rs` answers; an error is told by `grpc/status.rs`, one documented pair a variant
//!
//! `Record`, the commands of people (`gate/control.rs`) and what is only looked at (`gate/state.rs`) are closures of
//! the same loop, around `engine/record.rs`, `engine/control.rs` and `engine/state.rs`. What a failure is worth
//! retrying comes from `retry/advice.rs`, which weighs `retry/estimate.rs`; `engine/follow_up.rs` tells what a later
//! call followed up on, `store/postgres/profiles.rs` counts what came of it, and `gate/learned.rs` reads the counts
//! back. Whether models mend their arguments after a refusal is learned beside it (`engine/self_correction.rs`,
//! `retry/self_correction.rs`).
//!
//! # The policy, and people
//!
//! `policy/form.rs` holds a file against its own schema, `policy/compile` makes a [`policy::Policy`] of it, and
//! `Policy::propose` reads a call's arguments by it. `gate/policies.rs` swaps the active one under running judgements.
//! What people and systems do to a session (`engine/control.rs`: an answer, a phase, a grant, a compaction) is an event
//! of its tree like any other, so that a judgement made without knowing of it is made again. The kill switch stands
//! beside the trees (`domain/halt.rs`), and every replica reads it each second.
//!
//! # Where to begin reading
//!
//! `domain/call.rs`, `domain/tree.rs`, `rules/repeat.rs`, `rules/same_call.rs` and its tests, `engine/evaluate.rs`,
//! `gate.rs`. A new rule is one file and one line in `rules/mod.rs`; its doc comment is its manual; stories
//! in `tests/traces/rules/` show where it fires, and where it does not (CONTRIBUTING.md#a-rule).

#[cfg(test)]
extern crate self as callgate;

pub mod auth;
pub mod cli;
pub mod clock;
pub mod config;
pub mod console;
pub mod domain;
pub mod engine;
pub mod gate;
pub mod grpc;
pub mod hosts;
pub mod listener;
pub mod mcp;
pub mod offline;
pub mod outgoing;
pub mod policy;
pub mod private_postgres;
pub mod retry;
pub mod rules;
pub mod sealing;
pub mod shell;
pub mod store;
pub mod telemetry;
pub mod tool_list;
pub mod web;
