//! Malformed arguments: no JSON object, truncated, with a duplicate key, or too deep. They arrive as raw text, and are
//! refused with a message that the model can act on.

use super::violation;
use crate::domain::{
    json::{self, Json},
    violation::Violation,
};

/// The violation of arguments that are no object.
pub(in crate::policy) fn check_object(arguments: &Json) -> Option<Violation> {
    let what = match arguments {
        Json::Object(_) => return None,
        Json::String(text) => problem(text),
        _ => NO_OBJECT.to_owned(),
    };
    Some(violation("arguments", "json", format!("the arguments {what}")))
}

const NO_OBJECT: &str = "must be one JSON object, such as {\"name\": \"value\"}";

fn problem(text: &str) -> String {
    match json::parse(text) {
        Ok(Json::String(inner)) if inner.trim_start().starts_with('{') => {
            "are a text that holds JSON: give the object itself, without quotes around it".to_owned()
        }
        Ok(_) => NO_OBJECT.to_owned(),
        Err(problem) if problem.contains("ends too early") || problem.contains("does not end") => {
            format!("were cut off after {} bytes: write them again in full, and shorter if they are long", text.len())
        }
        Err(problem) => format!("cannot be read: the text {problem}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mistake_is_told_in_words_that_help_to_mend_it() {
        for (text, expected) in [
            (
                r#"{"a":"#,
                "the arguments were cut off after 5 bytes: write them again in full, and shorter if they are long",
            ),
            (
                r#"{"a":"b"#,
                "the arguments were cut off after 7 bytes: write them again in full, and shorter if they are long",
            ),
            ("[1]", "the arguments must be one JSON object, such as {\"name\": \"value\"}"),
            (
                r#""{\"a\":1}""#,
                "the arguments are a text that holds JSON: give the object itself, without quotes around it",
            ),
            (
                r#"{"a":1,"a":2}"#,
                "the arguments cannot be read: the text has the key \"a\" twice in one object (byte 13)",
            ),
        ] {
            let told = check_object(&Json::String(text.to_owned())).expect("a violation");
            assert_eq!(told.message, expected, "{text}");
        }
        assert_eq!(check_object(&json::parse("{}").expect("JSON")), None);
    }
}
