//! Expectations of a story's summary for a model without context.

use super::stage::{Stage, Step};
use crate::{domain::ids::SessionId, domain::session_state::Extent, engine::summary_tokens};

impl Stage {
    fn summary(&self) -> Result<String, String> {
        let session = SessionId::parse("session", &self.session).map_err(|invalid| invalid.problem)?;
        let state = self.world.state(&self.policy, &session, Extent::default(), self.now);
        Ok(state.ok_or("the session has no call yet")?.summary_for_model)
    }

    /// The summary is this, word for word.
    pub(super) fn expect_summary(&self, expected: &str) -> Step {
        let got = self.summary()?;
        if got.trim() == expected.trim() { Ok(()) } else { Err(format!("expected:\n{expected}\ngot:\n{got}")) }
    }

    pub(super) fn summary_step(&self, text: &str) -> Step {
        let got = self.summary()?;
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let (is_so, what) = match word {
            "says" => (got.contains(rest), format!("a summary that says {rest:?}")),
            "lacks" => (!got.contains(rest), format!("a summary without {rest:?}")),
            "at" => {
                let most =
                    rest.split_whitespace().find_map(|word| word.parse::<usize>().ok()).ok_or("how many tokens?")?;
                (summary_tokens(&got) <= most, format!("at most {most} tokens, not {}", summary_tokens(&got)))
            }
            _ => return Err(format!("no word of a summary: {word}")),
        };
        if is_so { Ok(()) } else { Err(format!("expected {what}; got:\n{got}")) }
    }
}
