//! The walls between rooms (docs/architecture.md#walls). A new exception is one line here, with its reason.

/// What one room may see.
#[derive(Debug)]
pub(crate) struct Wall {
    pub(crate) room: &'static str,
    /// Other rooms, or parts of them, each with its reason.
    pub(crate) rooms: &'static [(&'static str, &'static str)],
    /// Crates beside `std`, each with its reason; none is any that `never` does not name.
    pub(crate) crates: Option<&'static [(&'static str, &'static str)]>,
    /// Lists of names that must not stand in the room.
    pub(crate) never: &'static [&'static [&'static str]],
}

/// Time is an argument.
const NOW: &[&str] = &["SystemTime::now", "Instant::now", "Utc::now", "Local::now", "now_utc", "now_local"];
/// Only the day's time: tokio's `Instant` carries deadlines.
const DAYTIME: &[&str] = &["SystemTime", "Utc::now", "Local::now", "now_utc", "now_local"];
/// A pure room computes.
const EFFECTS: &[&str] = &[
    "async",
    "await",
    "Mutex",
    "RwLock",
    "Condvar",
    "mpsc",
    "spawn",
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "std::io",
    "std::thread",
];
/// Order is part of the answer.
const UNORDERED: &[&str] = &["HashMap", "HashSet", "RandomState"];
/// A pure room says what it has to say in its result.
const LOGS: &[&str] =
    &["trace!", "debug!", "info!", "warn!", "error!", "print!", "println!", "eprint!", "eprintln!", "dbg!"];
const EDGES: &[&str] =
    &["tokio", "sqlx", "tonic", "prost", "tracing", "opentelemetry", "reqwest", "hyper", "anyhow", "clap"];
const PURE: &[&[&str]] = &[NOW, EFFECTS, UNORDERED, LOGS, EDGES];
const WIRE: &[&str] = &["tonic", "prost"];
const SQL: &[&str] = &["sqlx"];
/// Words of the edges' own mirrors.
const MIRRORS: &[&str] = &["FromRow", "Message", "Serialize", "Deserialize"];

pub(crate) const WALLS: &[Wall] = &[
    Wall {
        room: "domain",
        rooms: &[],
        crates: Some(&[
            ("sha2", "fingerprints and digests"),
            ("hmac", "the same under a key"),
            ("hex", "their text"),
            ("serde_json", "the escapes of JSON strings"),
            ("regex", "masks the volatile parts of a result"),
            ("chrono", "reads the times of a result"),
            ("wildmatch", "patterns over tool names"),
        ]),
        never: &[NOW, EFFECTS, UNORDERED, LOGS, EDGES, MIRRORS],
    },
    Wall {
        room: "retry",
        rooms: &[("domain", "failures and advice")],
        crates: Some(&[
            ("regex", "reads providers' messages"),
            ("serde_json", "reads providers' error bodies"),
            ("chrono", "reads the dates of Retry-After"),
        ]),
        never: PURE,
    },
    Wall {
        room: "rules",
        rooms: &[("domain", "what rules look at"), ("retry", "what was learned")],
        crates: Some(&[
            ("cel", "conditions of the policy's owner"),
            ("regex", "patterns in conditions, compiled once"),
            ("chrono", "the times of conditions"),
            ("serde", "JSON as conditions read it, and a rule's parameters as its part of the policy sets them"),
            ("serde_json", "a rule's part of the policy"),
            ("schemars", "the published schema of that part"),
            ("strsim", "the tool that was meant"),
        ]),
        never: PURE,
    },
    Wall {
        room: "shell",
        rooms: &[("domain", "what an effect is")],
        crates: Some(&[
            ("tree_sitter", "the parser"),
            ("tree_sitter_bash", "its grammar"),
            ("serde", "the table's form"),
            ("serde_saphyr", "YAML"),
        ]),
        never: PURE,
    },
    Wall {
        room: "policy",
        rooms: &[
            ("domain", "facts about tools"),
            ("retry", "parameters of advice"),
            ("rules", "parameters of rules"),
            ("shell", "what a command line does"),
        ],
        crates: Some(&[
            ("serde", "the file's form"),
            ("serde_saphyr", "YAML"),
            ("serde_json", "schemas"),
            ("schemars", "the file's published schema"),
            ("jsonschema", "arguments and the file itself against schemas"),
            ("strsim", "did you mean"),
            ("regex", "effects by pattern"),
            ("phonenumber", "one form of phone numbers"),
            ("chrono", "one form of dates"),
            ("url", "one form of URLs"),
        ]),
        never: PURE,
    },
    Wall {
        room: "tool_list",
        rooms: &[("domain", "effects and resources, as a policy declares them")],
        crates: Some(&[
            ("serde", "the shapes of lists"),
            ("serde_json", "lists, and the schemas in them"),
            ("regex", "what descriptions enumerate"),
            ("tiktoken_rs", "what descriptions cost"),
        ]),
        never: PURE,
    },
    Wall {
        room: "mcp",
        rooms: &[],
        crates: Some(&[
            ("serde", "the members of messages"),
            ("serde_json", "messages as they are written"),
            ("jsonc_parser", "the settings of hosts, where comments and spaces stand"),
        ]),
        never: PURE,
    },
    Wall {
        room: "hosts",
        rooms: &[],
        crates: Some(&[("serde", "the shapes of events"), ("serde_json", "events, and answers to them")]),
        never: PURE,
    },
    Wall {
        room: "engine",
        rooms: &[
            ("domain", "trees and verdicts"),
            ("retry", "classifies failures, advises"),
            ("rules", "run over the tree"),
            ("policy", "by which it judges"),
        ],
        crates: Some(&[("serde_json", "the texts for the model")]),
        never: PURE,
    },
    Wall {
        room: "offline",
        rooms: &[
            ("domain", "calls and verdicts"),
            ("retry", "what was learned"),
            ("rules", "modes"),
            ("policy", "by which it judges"),
            ("engine", "decides, as it does for the gate"),
        ],
        crates: Some(&[
            ("serde", "recorded rows, lines and figures"),
            ("serde_json", "recorded rows"),
            ("sha2", "recorded results by their hash"),
            ("hex", "its text"),
            ("chrono", "the times of rows"),
        ]),
        never: PURE,
    },
    Wall {
        room: "auth",
        rooms: &[("domain", "who it is")],
        crates: Some(&[
            ("sha2", "what is kept of a token"),
            ("subtle", "compares without telling where"),
            ("crc32fast", "a token's checksum"),
            ("serde", "the file's form"),
            ("serde_saphyr", "YAML"),
            ("serde_json", "what a JWT claims, and key sets"),
            ("jsonwebtoken", "the form of JWTs"),
            ("ring", "their signatures"),
        ]),
        never: PURE,
    },
    Wall {
        room: "sealing",
        rooms: &[("domain", "whose values, and how they are hashed")],
        crates: Some(&[
            ("chacha20poly1305", "seals"),
            ("getrandom", "nonces, drawn by lot"),
            ("zeroize", "wipes keys"),
            ("base64", "the text of sealed values and keys"),
            ("hex", "the text of keys"),
            ("arc_swap", "keys, swapped under those who use them"),
            ("serde", "the file's form"),
            ("serde_saphyr", "YAML"),
        ]),
        never: &[NOW, SQL, WIRE, LOGS, &["tokio", "std::fs", "std::process", "anyhow", "clap", "opentelemetry"]],
    },
    Wall {
        room: "private_postgres",
        rooms: &[],
        crates: None,
        never: &[DAYTIME, SQL, WIRE, &["anyhow", "clap", "opentelemetry"]],
    },
    Wall {
        room: "store",
        rooms: &[
            ("domain", "what it keeps"),
            ("sealing", "as it keeps it"),
            ("clock", "this machine's, which a start compares the database's with"),
        ],
        crates: None,
        never: &[DAYTIME, WIRE, &["anyhow", "clap", "opentelemetry"]],
    },
    Wall { room: "telemetry", rooms: &[("domain", "verdicts")], crates: None, never: &[NOW, SQL, &["anyhow", "clap"]] },
    Wall {
        room: "gate",
        rooms: &[
            ("domain", "calls and verdicts"),
            ("auth", "checks credentials"),
            ("policy", "by which it judges"),
            ("engine", "decides"),
            ("store", "keeps"),
            ("sealing", "whose keys are here"),
            ("telemetry", "told once a verdict"),
            ("clock", "the only one who asks"),
            ("retry", "what was learned, read back for the engine"),
            ("offline", "another policy, tried on what is stored"),
        ],
        crates: None,
        never: &[NOW, SQL, WIRE, &["anyhow", "clap"]],
    },
    Wall {
        room: "listener",
        rooms: &[("clock", "how long the log has been silent")],
        crates: None,
        never: &[DAYTIME, SQL, WIRE, &["anyhow", "clap", "opentelemetry"]],
    },
    Wall {
        room: "web",
        rooms: &[("domain", "who asks"), ("telemetry", "what is counted")],
        crates: None,
        never: &[NOW, SQL, WIRE, &["anyhow", "clap", "opentelemetry"]],
    },
    Wall {
        room: "grpc",
        rooms: &[
            ("domain", "what is translated"),
            ("auth", "whose a new token is"),
            ("gate", "who is asked"),
            ("telemetry", "the caller's trace context"),
            ("clock", "how long the log has been silent"),
            ("hosts", "the dialects of hooks"),
            ("listener", "whose requests it answers"),
            ("web", "what is asked beside calls"),
        ],
        crates: None,
        never: &[NOW, SQL, &["anyhow", "clap"]],
    },
    Wall {
        room: "outgoing",
        rooms: &[],
        crates: None,
        never: &[DAYTIME, SQL, WIRE, &["anyhow", "clap", "opentelemetry"]],
    },
    Wall {
        room: "console",
        rooms: &[
            ("domain", "texts"),
            ("auth", "issuers by which people sign in"),
            ("policy", "what differs between two"),
            ("outgoing", "asks them"),
            ("gate", "keeps who is signed in"),
            ("grpc", "the services that pages are made of"),
            ("listener", "whose requests it answers"),
        ],
        crates: None,
        never: &[NOW, SQL, &["anyhow", "clap", "opentelemetry"]],
    },
    Wall { room: "config", rooms: &[], crates: None, never: &[NOW, SQL, WIRE] },
    Wall {
        room: "clock",
        rooms: &[("domain::time", "what it tells")],
        crates: Some(&[]),
        never: &[EDGES, UNORDERED, LOGS],
    },
    Wall { room: "cli", rooms: &[("", "assembles all")], crates: None, never: &[DAYTIME] },
    Wall { room: "bench", rooms: &[("", "measures all")], crates: None, never: &[] },
    Wall { room: "proto", rooms: &[], crates: None, never: &[NOW, SQL, LOGS] },
    Wall { room: "lib", rooms: &[("", "the map of all")], crates: None, never: &[NOW, EFFECTS, LOGS] },
    Wall { room: "main", rooms: &[("cli", "which it starts")], crates: None, never: &[NOW, SQL] },
];

/// Rooms that everybody may see, so that others may show parts of them as their own.
pub(crate) const OPEN_ROOMS: [&str; 1] = ["domain"];

/// Rooms of the crate `core`.
pub(crate) const CORE_ROOMS: [&str; 8] =
    ["domain", "retry", "rules", "shell", "policy", "engine", "offline", "tool_list"];

/// Rooms that only compute.
pub(crate) const PURE_ROOMS: [&str; 11] =
    ["domain", "retry", "rules", "policy", "shell", "tool_list", "mcp", "hosts", "auth", "engine", "offline"];

/// Files with lines that are better left whole.
pub(crate) const LONG_LINES: &[(&str, &str)] = &[
    ("src/mcp/", "messages, word for word"),
    ("src/core/retry/classify/cases/", "providers' answers, word for word"),
    ("src/core/retry/classify/lines.rs", "providers' answers, word for word"),
    ("src/core/retry/classify/text.rs", "one pattern a line"),
    ("tests/replay.rs", "lines of output, byte for byte"),
];
