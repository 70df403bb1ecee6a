//! The file of `--notifications`: destinations, with the events, tenants and groups that each is notified of.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, anyhow, bail};
use serde::Deserialize;
use url::Url;
use zeroize::Zeroizing;

use super::{
    email::{EmailForm, EmailSettings},
    events::NotificationEvent,
    slack::{SlackForm, SlackSettings},
    webhook::{WebhookForm, WebhookSettings},
};
use callgate_core::domain::tenant::DEFAULT_TENANT_NAME;
use callgate_net::outgoing::is_here;

/// Destinations of a file.
const DESTINATIONS_MAX: usize = 100;
/// Characters of a destination's name.
const NAME_MAX: usize = 60;
/// The name for every tenant.
const ALL_TENANTS: &str = "*";

/// As the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NotificationsFile {
    console_url: String,
    destinations: Vec<DestinationForm>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DestinationForm {
    name: String,
    events: Vec<NotificationEvent>,
    #[serde(default = "default_tenants")]
    tenants: Vec<String>,
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    arguments: bool,
    webhook: Option<WebhookForm>,
    slack: Option<SlackForm>,
    email: Option<EmailForm>,
}

fn default_tenants() -> Vec<String> {
    vec![DEFAULT_TENANT_NAME.to_owned()]
}

/// The content of the file.
#[derive(Debug, Clone)]
pub(crate) struct Destinations(pub(super) Vec<Arc<NotificationDestination>>);

/// A destination.
#[derive(Debug)]
pub(super) struct NotificationDestination {
    pub(super) name: String,
    pub(super) events: BTreeSet<NotificationEvent>,
    tenants: Vec<String>,
    groups: Vec<String>,
    /// The arguments and the justification go with an approval request.
    pub(super) arguments: bool,
    /// URL of the console, without a slash at the end.
    pub(super) console: String,
    pub(super) channel: Channel,
}

/// The way to a destination.
#[derive(Debug)]
pub(super) enum Channel {
    /// A signed POST.
    Webhook(WebhookSettings),
    /// Blocks, with buttons.
    Slack(SlackSettings),
    /// A mail by SMTP.
    Email(Box<EmailSettings>),
}

impl Channel {
    /// The name used in the file, in metrics and in logs.
    pub(super) const fn as_str(&self) -> &'static str {
        match self {
            Self::Webhook(_) => "webhook",
            Self::Slack(_) => "slack",
            Self::Email(_) => "email",
        }
    }
}

impl NotificationDestination {
    /// True when it is notified of the events of a tenant.
    pub(super) fn is_of(&self, tenant: &str) -> bool {
        self.tenants.iter().any(|name| name == tenant || name == ALL_TENANTS)
    }

    /// Groups of its approval requests; empty is all.
    pub(super) fn groups(&self) -> &[String] {
        &self.groups
    }

    /// True when it is notified of an approval request for these groups. Without a filter, of every request.
    pub(super) fn is_for(&self, groups: &[String]) -> bool {
        self.groups.is_empty() || groups.iter().any(|group| self.groups.contains(group))
    }
}

impl Destinations {
    /// Reads the file, and the files that it names.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let text = fs::read_to_string(path).with_context(|| format!("cannot read --notifications {shown}"))?;
        Self::parse(&text).map_err(|error| anyhow!("--notifications {shown}: {error:#}"))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let form: NotificationsFile = serde_saphyr::from_str(text)?;
        if form.destinations.is_empty() || form.destinations.len() > DESTINATIONS_MAX {
            bail!("destinations: has to have 1 to {DESTINATIONS_MAX} entries");
        }
        safe_address("console_url", &form.console_url)?;
        let console = form.console_url.trim_end_matches('/');
        let mut all: Vec<Arc<NotificationDestination>> = Vec::new();
        for one in form.destinations {
            let name = one.name.clone();
            if all.iter().any(|known| known.name == name) {
                bail!("destinations: two have the name {name:?}");
            }
            all.push(Arc::new(destination(one, console).with_context(|| format!("destination {name:?}"))?));
        }
        Ok(Self(all))
    }
}

fn destination(form: DestinationForm, console: &str) -> anyhow::Result<NotificationDestination> {
    let DestinationForm { name, events, tenants, groups, arguments, webhook, slack, email } = form;
    let is_name = |char: char| char.is_ascii_alphanumeric() || "-_.".contains(char);
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(is_name) {
        bail!("name: has to have 1 to {NAME_MAX} letters, digits and `-_.`");
    }
    if events.is_empty() {
        bail!("events: is empty; name one of {}", NotificationEvent::ALL.map(NotificationEvent::as_str).join(", "));
    }
    if tenants.is_empty() {
        bail!("tenants: is empty; name a tenant, or \"{ALL_TENANTS}\" for all");
    }
    let channel = match (webhook, slack, email) {
        (Some(webhook), None, None) => Channel::Webhook(webhook.checked()?),
        (None, Some(slack), None) => Channel::Slack(slack.checked(arguments)?),
        (None, None, Some(email)) => Channel::Email(Box::new(email.checked()?)),
        _ => bail!("has to have one of `webhook`, `slack` and `email`"),
    };
    let (console, events) = (console.to_owned(), events.into_iter().collect());
    Ok(NotificationDestination { name, events, tenants, groups, arguments, console, channel })
}

/// The text of a named file, without space around it.
pub(super) fn secret_file(field: &str, path: &Path) -> anyhow::Result<Zeroizing<String>> {
    let read = fs::read_to_string(path).map(|text| Zeroizing::new(text.trim().to_owned()));
    read.with_context(|| format!("{field}: cannot read {}", path.display()))
}

/// The URL of a destination: of the file itself, or of one that it names.
pub(super) fn url(url: Option<String>, file: Option<&PathBuf>) -> anyhow::Result<String> {
    let url = match (url, file) {
        (Some(url), None) => url,
        (None, Some(file)) => secret_file("url_file", file)?.to_string(),
        _ => bail!("has to have either `url` or `url_file`"),
    };
    safe_address("url", &url)?;
    Ok(url)
}

/// By https, or to this machine. Errors never hold its text: it may be a secret.
fn safe_address(field: &str, text: &str) -> anyhow::Result<()> {
    let Ok(url) = Url::parse(text) else { bail!("{field}: is no URL, such as https://plane.example") };
    let is_safe = url.scheme() == "https" || url.scheme() == "http" && url.host().is_some_and(|host| is_here(&host));
    if !is_safe {
        bail!("{field}: has to begin with https:// (http:// for this machine alone)");
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const HEAD: &str = "console_url: https://plane.example/\ndestinations:\n";

    fn problem(text: &str) -> String {
        Destinations::parse(text).err().map(|error| format!("{error:#}")).unwrap_or_default()
    }

    #[test]
    fn destinations_with_a_fault_are_rejected_by_field() {
        let webhook = "webhook: {url: 'https://a.example', secret_file: /nowhere/at/all}";
        let approvers = "approvers: {U1: {name: x}}";
        for (text, told) in [
            ("console_url: https://a.example\ndestinations: []\n".to_owned(), "1 to 100 entries"),
            (format!("{HEAD}- {{name: a b, events: [requested], {webhook}}}\n"), "name: has to have"),
            (format!("{HEAD}- {{name: a, events: [], {webhook}}}\n"), "events: is empty; name one of requested"),
            (format!("{HEAD}- {{name: a, events: [asked], {webhook}}}\n"), "asked"),
            (format!("{HEAD}- {{name: a, events: [halted], tenants: [], {webhook}}}\n"), "tenants: is empty"),
            (format!("{HEAD}- {{name: a, events: [halted], hook: x, {webhook}}}\n"), "hook"),
            (format!("{HEAD}- {{name: a, events: [halted]}}\n"), "destination \"a\": has to have"),
            (format!("{HEAD}- {{name: a, events: [halted], {webhook}}}\n"), "secret_file: cannot read"),
            (
                format!("{HEAD}- {{name: a, events: [halted], webhook: {{url: 'http://a.example'}}}}\n"),
                "url: has to begin with https://",
            ),
            (format!("{HEAD}- {{name: a, events: [halted], webhook: {{url: hooks}}}}\n"), "url: is no URL"),
            (format!("{HEAD}- {{name: a, events: [halted], webhook: {{}}}}\n"), "either `url` or `url_file`"),
            (
                format!("{HEAD}- {{name: a, events: [halted], slack: {{url: 'https://a.example', {approvers}}}}}\n"),
                "signing_secret_file and approvers go together",
            ),
            ("console_url: http://plane.example\ndestinations: [{}]\n".to_owned(), "destinations"),
        ] {
            assert!(problem(&text).contains(told), "{text}: {}", problem(&text));
        }
    }

    /// A destination with a webhook and these filters.
    pub(in super::super) fn filtered(tenants: &[&str], groups: &[&str]) -> NotificationDestination {
        let owned = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect::<Vec<String>>();
        NotificationDestination {
            name: "a".to_owned(),
            events: NotificationEvent::ALL.into_iter().collect(),
            tenants: owned(tenants),
            groups: owned(groups),
            arguments: false,
            console: "https://plane.example".to_owned(),
            channel: Channel::Webhook(WebhookSettings::default()),
        }
    }

    #[test]
    fn filters_select_by_tenant_and_group() {
        let of = |tenants: &[&str], tenant: &str| filtered(tenants, &[]).is_of(tenant);
        assert!(of(&["default"], "default") && !of(&["default"], "acme") && of(&["*"], "acme"));
        let is_for = |filter: &[&str], groups: &[&str]| {
            filtered(&["*"], filter).is_for(&groups.iter().map(|one| (*one).to_owned()).collect::<Vec<String>>())
        };
        assert!(is_for(&[], &[]) && is_for(&[], &["finance"]) && is_for(&["heads", "finance"], &["finance"]));
        assert!(!is_for(&["finance"], &[]) && !is_for(&["finance"], &["heads"]), "it is for other approvers");
    }
}
