//! E-mail by SMTP: over STARTTLS or TLS, and in the clear to this machine alone.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::{Context as _, anyhow, bail};
use lettre::{
    AsyncSmtpTransport, AsyncTransport as _, Message as Mail, Tokio1Executor,
    message::{
        Mailbox,
        header::{ContentType, HeaderName, HeaderValue},
    },
    transport::smtp::{
        authentication::Credentials,
        client::{Certificate, CertificateStore, Tls, TlsParameters},
    },
};
use serde::Deserialize;
use url::Host;
use zeroize::Zeroizing;

use super::{destinations, message::NotificationMessage};
use callgate_net::outgoing::is_here;

/// Timeout of each step of a conversation.
const STEP: Duration = Duration::from_secs(10);
/// Recipients of a destination.
const RECIPIENTS_MAX: usize = 50;

/// As the file has it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EmailForm {
    server: String,
    #[serde(default)]
    tls: TlsMode,
    from: String,
    to: Vec<String>,
    username: Option<String>,
    password_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
}

/// Encryption of the connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TlsMode {
    /// From STARTTLS on; a server without it is not used.
    #[default]
    Starttls,
    /// From the first byte on.
    Implicit,
    /// None: this machine alone.
    None,
}

/// A mail server, with sender and recipients.
pub(super) struct EmailSettings {
    host: String,
    port: u16,
    tls: TlsMode,
    authority: Option<Vec<u8>>,
    from: Mailbox,
    to: Vec<Mailbox>,
    login: Option<(String, Zeroizing<String>)>,
}

impl std::fmt::Debug for EmailSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmailSettings").field("host", &self.host).finish_non_exhaustive()
    }
}

impl EmailForm {
    pub(super) fn checked(self) -> anyhow::Result<EmailSettings> {
        let (host, port) = self.server.rsplit_once(':').unwrap_or_default();
        let Ok(port) = port.parse::<u16>() else { bail!("server: has to be HOST:PORT, such as smtp.example:587") };
        let parsed = Host::parse(host).map_err(|error| anyhow!("server: {host:?} is no host: {error}"))?;
        let parsed = match &parsed {
            Host::Domain(name) => Host::Domain(name.as_str()),
            Host::Ipv4(address) => Host::Ipv4(*address),
            Host::Ipv6(address) => Host::Ipv6(*address),
        };
        if self.tls == TlsMode::None && !is_here(&parsed) {
            bail!("tls: can be none for a server on this machine alone; use starttls or implicit");
        }
        if self.to.is_empty() || self.to.len() > RECIPIENTS_MAX {
            bail!("to: has to have 1 to {RECIPIENTS_MAX} addresses");
        }
        let mailbox = |field: &str, text: &str| {
            text.parse::<Mailbox>().map_err(|error| anyhow!("{field}: {text:?} is no address: {error}"))
        };
        let to = self.to.iter().map(|text| mailbox("to", text)).collect::<anyhow::Result<Vec<Mailbox>>>()?;
        let login = match (self.username, &self.password_file) {
            (None, None) => None,
            (Some(name), Some(file)) => Some((name, destinations::secret_file("password_file", file)?)),
            _ => bail!("username and password_file go together"),
        };
        let authority = self
            .ca_file
            .as_ref()
            .map(|path| fs::read(path).with_context(|| format!("ca_file: cannot read {}", path.display())));
        let (from, host) = (mailbox("from", &self.from)?, host.to_owned());
        Ok(EmailSettings { host, port, tls: self.tls, authority: authority.transpose()?, from, to, login })
    }
}

impl EmailSettings {
    /// Sends one message to all recipients.
    pub(super) async fn send(&self, id: &str, message: &NotificationMessage) -> Result<(), String> {
        let mail = self.mail(id, message)?;
        let server = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(self.host.as_str());
        let mut server = server.port(self.port).tls(self.tls()?).timeout(Some(STEP));
        if let Some((name, password)) = &self.login {
            server = server.credentials(Credentials::new(name.clone(), password.to_string()));
        }
        // The chain of causes has the server's answer, and no credential.
        server
            .build()
            .send(mail)
            .await
            .map(drop)
            .map_err(|error| self.without_recipients(&format!("{:#}", anyhow!(error))))
    }

    /// An answer of the server without the addresses that it repeats: all tenants of the destination may read it.
    fn without_recipients(&self, answer: &str) -> String {
        let addresses = self.to.iter().map(|to| regex::escape(to.email.as_ref())).collect::<Vec<_>>().join("|");
        match regex::RegexBuilder::new(&addresses).case_insensitive(true).build() {
            Ok(addresses) => addresses.replace_all(answer, "a recipient").into_owned(),
            Err(_) => "the mail server refused the message".to_owned(),
        }
    }

    fn tls(&self) -> Result<Tls, String> {
        if self.tls == TlsMode::None {
            return Ok(Tls::None);
        }
        let told = |error: lettre::transport::smtp::Error| format!("TLS cannot be used: {error}");
        let host = self.host.trim_matches(['[', ']']).to_owned();
        let mut tls = TlsParameters::builder(host).certificate_store(CertificateStore::WebpkiRoots);
        if let Some(pem) = &self.authority {
            tls = tls.certificate_store(CertificateStore::None);
            tls = tls.add_root_certificate(Certificate::from_pem(pem).map_err(told)?);
        }
        let tls = tls.build_rustls().map_err(told)?;
        Ok(if self.tls == TlsMode::Implicit { Tls::Wrapper(tls) } else { Tls::Required(tls) })
    }

    fn mail(&self, id: &str, message: &NotificationMessage) -> Result<Mail, String> {
        let mut mail = Mail::builder().from(self.from.clone()).message_id(Some(format!("<{id}@callgate>")));
        for to in &self.to {
            mail = mail.to(to.clone());
        }
        // No automatic reply answers it (RFC 3834).
        let automatic = HeaderName::new_from_ascii_str("Auto-Submitted");
        let mail = mail.subject(message.title.replace(char::is_control, " ")).header(ContentType::TEXT_PLAIN);
        let mail = mail.raw_header(HeaderValue::new(automatic, "auto-generated".to_owned()));
        mail.body(text(message)).map_err(|error| format!("the message cannot be encoded: {error}"))
    }
}

/// The body.
fn text(message: &NotificationMessage) -> String {
    let mut text = format!("{}\n\n", message.title);
    for (label, value) in &message.fields {
        text.push_str(&format!("{label}: {value}\n"));
    }
    if let Some(arguments) = &message.arguments {
        let cut = if arguments.is_whole { "" } else { " (cut; the console has all)" };
        text.push_str(&format!("\nArguments{cut}:\n{}\n", arguments.text));
    }
    text.push_str(&format!("\n{}\n{}\n", message.next_step, message.url));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notifications::{destinations::tests::filtered, message::ShownArguments};
    use callgate_core::domain::time::Timestamp;

    fn problem(text: &str) -> String {
        let form: EmailForm = serde_saphyr::from_str(text).expect("YAML");
        form.checked().err().map(|error| format!("{error:#}")).unwrap_or_default()
    }

    #[test]
    fn settings_with_a_fault_are_rejected_by_field() {
        let rest = "from: callgate@a.example\nto: [ann@a.example]\n";
        for (text, told) in [
            (format!("server: smtp.example\n{rest}"), "server: has to be HOST:PORT"),
            (format!("server: 'smtp.example:587'\ntls: none\n{rest}"), "tls: can be none for a server on this"),
            ("server: 'a.example:587'\nfrom: callgate\nto: [ann@a.example]\n".to_owned(), "from: \"callgate\" is no"),
            ("server: 'a.example:587'\nfrom: c@a.example\nto: []\n".to_owned(), "to: has to have 1 to 50"),
            (format!("server: 'a.example:587'\nusername: u\n{rest}"), "username and password_file go together"),
        ] {
            assert!(problem(&text).contains(told), "{text}: {}", problem(&text));
        }
        assert_eq!(problem(&format!("server: '127.0.0.1:25'\ntls: none\n{rest}")), "");
    }

    #[test]
    fn mail_has_one_subject_line_whatever_a_tool_is_named() {
        let form: EmailForm = serde_saphyr::from_str(
            "server: 'a.example:587'\nfrom: 'callgate <c@a.example>'\nto: [ann@a.example, bob@a.example]\n",
        )
        .expect("YAML");
        let settings = form.checked().expect("settings");
        let mut message = NotificationMessage::test(&filtered(&["*"], &[]), "default", Timestamp::from_millis(0));
        message.title = "pay\r\nBcc: eve@a.example".to_owned();
        message.arguments = Some(ShownArguments { text: "{\"to\":\"M\u{fc}ller\"}".to_owned(), is_whole: false });
        let mail = String::from_utf8(settings.mail("k1", &message).expect("a mail").formatted()).expect("text");
        let (head, _) = mail.split_once("\r\n\r\n").expect("a head");
        assert!(!head.lines().any(|line| line.starts_with("Bcc")), "{head}");
        assert!(
            head.contains("Message-ID: <k1@callgate>") && head.contains("Auto-Submitted: auto-generated"),
            "{head}"
        );
        assert!(text(&message).contains("Arguments (cut; the console has all):\n{\"to\":\"M\u{fc}ller\"}\n"));
    }

    #[test]
    fn answer_of_the_mail_server_is_reported_without_recipients() {
        let form = "server: 'a.example:587'\nfrom: c@a.example\nto: ['Ann <ann+x@a.example>', bob@a.example]\n";
        let form: EmailForm = serde_saphyr::from_str(form).expect("YAML");
        let settings = form.checked().expect("settings");
        let answer = settings.without_recipients("550 5.1.1 <Ann+X@a.example>, bob@a.example: no such user");
        assert_eq!(answer, "550 5.1.1 <a recipient>, a recipient: no such user");
    }
}
