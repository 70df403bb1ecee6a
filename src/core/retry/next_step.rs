//! Next steps after failures not worth a retry, by kind: one text for the response to the report and for later refusals
//! of the same call.

use crate::domain::failure::FailureKind;

/// True for the error of a creation whose result exists already.
#[must_use]
pub fn exists_already(error: &str) -> bool {
    let error = error.to_ascii_lowercase();
    ["already exists", "file exists", "duplicate"].iter().any(|word| error.contains(word))
}

/// Next step where an earlier attempt may have created the existing thing.
pub const MADE_EARLIER: &str =
    "An earlier attempt of this call, which got no clear answer, has most likely made it. Use what is there.";

/// Next step for the model. `error` is the error's line.
#[must_use]
pub fn next_step(kind: FailureKind, error: &str) -> &'static str {
    use FailureKind::{
        Auth, Conflict, Internal, InvalidArgument, Network, NotFound, Other, Permission, QuotaExhausted, RateLimited,
        Timeout, Unavailable,
    };
    match kind {
        Auth => {
            "Its credentials are not accepted, which no argument changes. Tell the user that access must be renewed."
        }
        Permission => "It is not permitted, which a repetition does not change. Tell the user, or do without it.",
        RateLimited => "It is limited and has refused too often. Go on with other work, or tell the user.",
        QuotaExhausted => "Its quota is used up, which waiting for a moment does not change. Tell the user.",
        Conflict => "Something else holds or has changed it. Read its present state first, then decide again.",
        NotFound => "What was asked for is not there. Look up the right name or id first, or ask the user for it.",
        InvalidArgument if exists_already(error) => "It exists already. Use what is there, or choose another name.",
        InvalidArgument => "Correct the arguments by what the error says, then call it again.",
        Timeout | Unavailable | Network | Internal => {
            "It does not work at the moment. Go on with other work, or tell the user that it is not available."
        }
        Other if error.is_empty() => "It gave no reason. Check the arguments, or tell the user.",
        Other => "Change what the error names, or tell the user.",
    }
}
