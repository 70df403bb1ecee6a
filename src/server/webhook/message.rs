//! Body and signature of a webhook for an approval request, by [Standard Webhooks](https://www.standardwebhooks.com).

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use super::file::{Format, Webhook};
use callgate_core::domain::{inbox::Question, route::ApprovalRoute, tool::RiskLevel, visible::is_visible};

/// The longest name in a text for people, in characters.
const NAME: usize = 120;

/// An approval request, with its route and risk.
pub(super) struct RequestMessage<'a> {
    pub(super) question: &'a Question,
    pub(super) route: &'a ApprovalRoute,
    pub(super) risk: RiskLevel,
    pub(super) because: Vec<&'static str>,
}

/// The body.
pub(super) fn body(webhook: &Webhook, told: &RequestMessage<'_>) -> String {
    let RequestMessage { question, route, .. } = told;
    let id: String = url::form_urlencoded::byte_serialize(question.approval_id.as_bytes()).collect();
    let link = format!("{}/approvals/{id}", webhook.console);
    let text = text(told, &link);
    if webhook.format == Format::Slack {
        return json!({ "text": text }).to_string();
    }
    let mut data = json!({
        "approval_id": question.approval_id,
        "tenant": webhook.tenant,
        "session_id": question.session,
        "agent_id": question.agent,
        "call_id": question.call_id,
        "tool": question.tool,
        "risk": told.risk.as_str(),
        "risk_reasons": told.because,
        "group": route.group,
        "required_approvals": route.people,
        "args_digest": hex::encode(question.args_digest.0),
        "policy_version": question.policy,
        "create_time": question.asked_at.to_string(),
        "expire_time": question.expires_at.to_string(),
        "url": link,
    });
    if webhook.arguments {
        data["arguments_json"] = Value::from(question.arguments.as_str());
        data["justification"] = Value::from(question.justification.as_deref());
    }
    json!({ "type": "approval.requested", "timestamp": question.asked_at.to_string(), "text": text, "data": data })
        .to_string()
}

/// For people, as chats show it.
fn text(told: &RequestMessage<'_>, link: &str) -> String {
    let RequestMessage { question, route, .. } = told;
    let agent = question.agent.as_ref().map(|agent| format!(", asked by {}", plain(agent))).unwrap_or_default();
    format!(
        "*{}* waits for {} ({} risk{agent}), until {}. <{link}|Look at it and answer>",
        plain(&question.tool),
        plain(&route.describe_approvers()),
        told.risk.as_str().to_lowercase(),
        question.expires_at,
    )
}

/// A name that a model may have chosen: nothing in it is markup, mentions anybody or hides.
fn plain(name: &str) -> String {
    let is_markup = |char: char| "<>&*_~`|@\n\t".contains(char) || !is_visible(char);
    name.chars().take(NAME).map(|char| if is_markup(char) && !"_".contains(char) { '·' } else { char }).collect()
}

/// The header `webhook-signature`.
pub(super) fn signature(secret: &[u8], id: &str, at_s: i64, body: &str) -> String {
    // A key of any length will do.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else { return String::new() };
    mac.update(format!("{id}.{at_s}.{body}").as_bytes());
    format!("v1,{}", BASE64.encode(mac.finalize().into_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_as_the_standards_own_example_has_it() {
        let secret = BASE64.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("base64");
        let body = r#"{"test": 2432232314}"#;
        let signed = signature(&secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_name_is_no_markup_and_calls_nobody() {
        assert_eq!(plain("refund_order"), "refund_order");
        assert_eq!(plain("<!channel> *x* @here\u{202e}\n"), "·!channel· ·x· ·here··");
        assert_eq!(plain(&"x".repeat(500)).len(), NAME);
    }
}
