//! Slack: messages of blocks to an incoming webhook, with buttons where approvers are named. All texts of models are
//! plain text, which Slack does not parse.

use std::{collections::BTreeMap, path::PathBuf};

use anyhow::bail;
use http::HeaderValue;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::{
    destinations::{self, NotificationDestination},
    message::NotificationMessage,
    webhook::ANSWER_BYTES_MAX,
};
use callgate_net::outgoing::HttpRequest;

/// Characters of a header block.
const HEADER_MAX: usize = 150;
/// Characters of the text for notifications of the client.
const PREVIEW_MAX: usize = 1_000;

/// The `action_id` of each button.
pub(super) const APPROVE: &str = "approve";
pub(super) const DENY: &str = "deny";

/// As the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SlackForm {
    url: Option<String>,
    url_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    signing_secret_file: Option<PathBuf>,
    #[serde(default)]
    approvers: BTreeMap<String, Approver>,
}

/// The identity of a user of Slack.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Approver {
    /// Name of the approver, as in their other credentials.
    pub(super) name: String,
    /// Approver groups.
    #[serde(default)]
    pub(super) groups: Vec<String>,
}

/// An incoming webhook of a Slack app.
pub(super) struct SlackSettings {
    url: String,
    ca: Option<PathBuf>,
    pub(super) buttons: Option<SlackButtons>,
}

/// Buttons of its messages.
pub(super) struct SlackButtons {
    pub(super) signing_secret: Zeroizing<Vec<u8>>,
    /// By the id of a user.
    pub(super) approvers: BTreeMap<String, Approver>,
}

impl std::fmt::Debug for SlackSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Its address is a secret too.
        f.debug_struct("SlackSettings").finish_non_exhaustive()
    }
}

/// The value of a button.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ButtonValue {
    pub(super) destination: String,
    pub(super) tenant: String,
    pub(super) approval_id: String,
}

impl SlackForm {
    pub(super) fn checked(self, has_arguments: bool) -> anyhow::Result<SlackSettings> {
        let url = destinations::url(self.url, self.url_file.as_ref())?;
        let buttons = match (&self.signing_secret_file, self.approvers.is_empty()) {
            (None, true) => None,
            (Some(file), false) => {
                let secret = destinations::secret_file("signing_secret_file", file)?;
                if secret.is_empty() {
                    bail!("signing_secret_file: is empty; it holds the signing secret of the Slack app");
                }
                if !has_arguments {
                    bail!("arguments: has to be true where approvers may answer: nobody approves unseen arguments");
                }
                let signing_secret = Zeroizing::new(secret.as_bytes().to_vec());
                Some(SlackButtons { signing_secret, approvers: checked_approvers(self.approvers)? })
            }
            _ => bail!("signing_secret_file and approvers go together: buttons need both"),
        };
        Ok(SlackSettings { url, ca: self.ca_file, buttons })
    }
}

fn checked_approvers(approvers: BTreeMap<String, Approver>) -> anyhow::Result<BTreeMap<String, Approver>> {
    for (user, approver) in &approvers {
        let is_id = user.starts_with(['U', 'W']) && user.chars().all(|char| char.is_ascii_alphanumeric());
        if !is_id {
            bail!("approvers: {user:?} is no id of a Slack user, such as U012AB3CD");
        }
        if approver.name.trim().is_empty() {
            bail!("approvers: {user} has no name; give the name of the approver in callgate");
        }
    }
    Ok(approvers)
}

impl SlackSettings {
    /// Sends one message. Errors do not hold the address, which is a secret.
    pub(super) async fn send(
        &self,
        destination: &NotificationDestination,
        message: &NotificationMessage,
    ) -> Result<(), String> {
        post(&self.url, self.ca.as_deref(), &payload(destination, self.buttons.is_some(), message)).await
    }
}

/// Sends a payload to an address of Slack.
pub(super) async fn post(url: &str, ca: Option<&std::path::Path>, payload: &Value) -> Result<(), String> {
    let request = HttpRequest::post(url, HeaderValue::from_static("application/json"), payload.to_string());
    let response = request.authority(ca).send(ANSWER_BYTES_MAX).await.map_err(|failed| failed.problem)?;
    match response.status.is_success() {
        true => Ok(()),
        // Slack names the fault in the body: invalid_blocks, no_service.
        false => {
            let fault: String = response.body.chars().filter(|char| !char.is_control()).take(100).collect();
            Err(format!("it answers {} {fault}", response.status))
        }
    }
}

/// The message as Block Kit has it.
pub(super) fn payload(
    destination: &NotificationDestination,
    has_buttons: bool,
    message: &NotificationMessage,
) -> Value {
    let fields = message.fields.iter().map(|(label, value)| plain_text(&format!("{label}: {value}")));
    let mut blocks = vec![json!({ "type": "header", "text": plain_text(&cut(&message.title, HEADER_MAX)) })];
    let fields: Vec<Value> = fields.collect();
    if !fields.is_empty() {
        blocks.push(json!({ "type": "section", "fields": fields }));
    }
    if let Some(arguments) = message.arguments.as_ref().filter(|arguments| !arguments.text.is_empty()) {
        let text = json!([{ "type": "text", "text": arguments.text }]);
        let element = json!({ "type": "rich_text_preformatted", "elements": text });
        blocks.push(json!({ "type": "rich_text", "elements": [element] }));
    }
    blocks.push(json!({ "type": "section", "text": plain_text(&message.next_step) }));
    let link = format!("<{}|Open in the console>", message.url);
    blocks.push(json!({ "type": "context", "elements": [{ "type": "mrkdwn", "text": link, "verbatim": true }] }));
    if let Some(approval_id) = message.open_request.as_ref().filter(|_| has_buttons) {
        let (destination, tenant) = (destination.name.clone(), message.tenant.clone());
        let value = ButtonValue { destination, tenant, approval_id: approval_id.clone() };
        let is_whole = message.arguments.as_ref().is_some_and(|arguments| arguments.is_whole);
        blocks.push(buttons(&serde_json::to_string(&value).unwrap_or_default(), is_whole));
        if !is_whole {
            let text = plain_text("The arguments are cut. Open the console to approve the call.");
            blocks.push(json!({ "type": "context", "elements": [text] }));
        }
    }
    json!({ "text": preview(message), "blocks": blocks, "unfurl_links": false, "unfurl_media": false })
}

/// Only a call whose arguments are shown as a whole can be approved.
fn buttons(value: &str, can_approve: bool) -> Value {
    let approve = json!({
        "type": "button",
        "action_id": APPROVE,
        "style": "primary",
        "text": plain_text("Approve"),
        "value": value,
        "confirm": {
            "title": plain_text("Approve this call?"),
            "text": plain_text("The agent will execute it with the arguments that are shown."),
            "confirm": plain_text("Approve"),
            "deny": plain_text("Cancel"),
        },
    });
    let deny = json!({
        "type": "button", "action_id": DENY, "style": "danger", "text": plain_text("Deny"), "value": value,
    });
    json!({ "type": "actions", "elements": if can_approve { vec![approve, deny] } else { vec![deny] } })
}

fn plain_text(text: &str) -> Value {
    json!({ "type": "plain_text", "text": text, "emoji": false })
}

/// The text for notifications of the client, which Slack parses: its control characters are escaped.
fn preview(message: &NotificationMessage) -> String {
    let text = cut(&message.in_one_line(), PREVIEW_MAX);
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn cut(text: &str, max: usize) -> String {
    text.chars().take(max).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::notifications::{destinations::tests::filtered, message::ShownArguments};
    use callgate_core::domain::time::Timestamp;

    fn message(is_whole: bool) -> NotificationMessage {
        let destination = filtered(&["*"], &[]);
        let mut message = NotificationMessage::test(&destination, "default", Timestamp::from_millis(0));
        message.title = "x".repeat(500);
        message.fields = vec![("Tool", "<!channel> & co".to_owned())];
        message.arguments = Some(ShownArguments { text: "{\"note\":\"<!here>\"}".to_owned(), is_whole });
        message.open_request = Some("a-1".to_owned());
        message
    }

    fn actions(payload: &Value) -> Vec<&str> {
        let blocks = payload["blocks"].as_array().expect("blocks");
        let actions = blocks.iter().filter(|block| block["type"] == "actions");
        actions
            .flat_map(|block| block["elements"].as_array().expect("elements"))
            .filter_map(|one| one["action_id"].as_str())
            .collect()
    }

    #[test]
    fn payload_has_texts_of_models_as_plain_text_alone() {
        let payload = payload(&filtered(&["*"], &[]), true, &message(true));
        let text = payload["text"].as_str().expect("a text");
        assert!(text.contains("&lt;!channel&gt; &amp; co") && !text.contains('<'), "{text}");
        let marked = payload["blocks"].to_string().matches("mrkdwn").count();
        assert_eq!(marked, 1, "the link alone: {payload}");
        assert_eq!(payload["blocks"][0]["text"]["text"].as_str().map(str::len), Some(HEADER_MAX));
    }

    #[test]
    fn buttons_approve_only_arguments_that_are_shown_as_a_whole() {
        let destination = filtered(&["*"], &[]);
        assert_eq!(actions(&payload(&destination, true, &message(true))), [APPROVE, DENY]);
        assert_eq!(actions(&payload(&destination, true, &message(false))), [DENY]);
        assert!(actions(&payload(&destination, false, &message(true))).is_empty(), "nobody may answer here");
        let closed = NotificationMessage { open_request: None, ..message(true) };
        assert!(actions(&payload(&destination, true, &closed)).is_empty(), "it is answered");
    }
}
