//! Notifications by e-mail, to an SMTP server on this machine.

use std::{path::PathBuf, sync::Arc};

use callgate_proto::v1::Decision;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader},
    net::TcpListener,
    sync::{Mutex, mpsc},
};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
};

use crate::{
    common::{
        certificates::{Authority, Pair},
        in_time,
        wire::{call, evaluate, question},
    },
    server::{Home, Server, path, ran},
};

/// A mail, with the commands of its conversation.
#[derive(Debug, Default)]
struct Conversation {
    /// Commands before and after STARTTLS.
    clear: Vec<String>,
    encrypted: Vec<String>,
    mail: String,
}

/// An SMTP server.
struct MailServer {
    address: String,
    conversations: Mutex<mpsc::UnboundedReceiver<Conversation>>,
}

/// Its answers.
#[derive(Clone)]
struct Answers {
    starttls: Option<TlsAcceptor>,
    /// The next answers to RCPT, the last one first; 250 after them.
    recipients: Arc<std::sync::Mutex<Vec<&'static str>>>,
}

impl MailServer {
    async fn start(certificate: Option<&Pair>, recipients: &[&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (tell, conversations) = mpsc::unbounded_channel();
        let recipients = Arc::new(std::sync::Mutex::new(recipients.to_vec()));
        let answers = Answers { starttls: certificate.map(acceptor), recipients };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (tell, answers) = (tell.clone(), answers.clone());
                tokio::spawn(async move {
                    let mut told = Conversation::default();
                    let mut stream = BufReader::new(stream);
                    stream.write_all(b"220 mail.example ESMTP\r\n").await.expect("writable");
                    let (mut clear, mut encrypted) = (Vec::new(), Vec::new());
                    if talk(&mut stream, &answers, true, (&mut clear, &mut told.mail)).await {
                        let acceptor = answers.starttls.clone().expect("it was offered");
                        if let Ok(stream) = acceptor.accept(stream.into_inner()).await {
                            let mut stream = BufReader::new(stream);
                            talk(&mut stream, &answers, false, (&mut encrypted, &mut told.mail)).await;
                        }
                    }
                    let _ = tell.send(Conversation { clear, encrypted, ..told });
                });
            }
        });
        Self { address, conversations: Mutex::new(conversations) }
    }

    async fn next(&self) -> Conversation {
        in_time("a conversation", async { self.conversations.lock().await.recv().await }).await.expect("it is open")
    }
}

fn acceptor(pair: &Pair) -> TlsAcceptor {
    let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes()).collect::<Result<Vec<_>, _>>();
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("a key");
    let config = rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().expect("versions").with_no_client_auth();
    TlsAcceptor::from(Arc::new(config.with_single_cert(chain.expect("a chain"), key).expect("a certificate")))
}

/// Answers commands until the end, or until STARTTLS: then true.
async fn talk<S: AsyncRead + AsyncWrite + Unpin>(
    stream: &mut BufReader<S>,
    answers: &Answers,
    is_clear: bool,
    (commands, mail): (&mut Vec<String>, &mut String),
) -> bool {
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await.is_ok_and(|read| read == 0) || line.is_empty() {
            return false;
        }
        let command = line.trim_end().to_owned();
        let verb = command.split(' ').next().unwrap_or_default().to_uppercase();
        commands.push(command);
        let offers = if is_clear && answers.starttls.is_some() { "250-STARTTLS\r\n" } else { "" };
        let answer = match verb.as_str() {
            "EHLO" => format!("250-mail.example\r\n{offers}250 AUTH PLAIN\r\n"),
            "STARTTLS" => "220 go on\r\n".to_owned(),
            "AUTH" => "235 2.7.0 it holds\r\n".to_owned(),
            "RCPT" => {
                let next = answers.recipients.lock().expect("no panic").pop();
                format!("{}\r\n", next.unwrap_or("250 2.1.5 ok"))
            }
            "DATA" => "354 go on\r\n".to_owned(),
            "QUIT" => "221 bye\r\n".to_owned(),
            _ => "250 ok\r\n".to_owned(),
        };
        let _ = stream.write_all(answer.as_bytes()).await;
        match verb.as_str() {
            "STARTTLS" => return true,
            "QUIT" => return false,
            "DATA" => {
                while !mail.ends_with("\r\n.\r\n") {
                    if stream.read_line(mail).await.is_ok_and(|read| read == 0) {
                        return false;
                    }
                }
                let _ = stream.write_all(b"250 2.0.0 queued\r\n").await;
            }
            _ => {}
        }
    }
}

/// A file with a mail server of this machine as its one destination.
fn file(home: &Home, server: &MailServer, authority: &Authority) -> PathBuf {
    let (password, ca) = (home.file("password", "hush-hush\n"), home.file("ca.pem", &authority.pem));
    home.file(
        "notifications.yaml",
        &format!(
            "console_url: https://plane.example
destinations:
- name: mail
  events: [requested]
  arguments: true
  email:
    server: '{}'
    from: 'callgate <callgate@plane.example>'
    to: [ann@plane.example, bob@plane.example]
    username: callgate
    password_file: {}
    ca_file: {}
",
            server.address,
            path(&password),
            path(&ca)
        ),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn email_goes_over_starttls_and_again_after_a_refusal() {
    let (home, authority) = (Home::with_cluster().await, Authority::new("mail"));
    let server = MailServer::start(Some(&authority.server()), &["451 4.3.0 later"]).await;
    let policy = "policy_engine: {authorization: {tiers: [{name: all, pattern: '*', action: hitl}]}}\n";
    let (policy, file) = (home.file("policy.yaml", policy), file(&home, &server, &authority));
    let callgate = Server::start(&home, &["--policy", path(&policy), "--notifications", path(&file)]);
    let refund = question("s1", call("c1", "refund_order", r#"{"order":7}"#));
    let asked = evaluate(&mut callgate.client().await, refund).await;
    assert_eq!(asked.decision(), Decision::Ask);
    let refused = server.next().await;
    assert!(refused.mail.is_empty(), "{refused:?}");
    let sent = server.next().await;
    assert!(sent.clear.iter().all(|line| line.starts_with("EHLO") || line == "STARTTLS"), "{:?}", sent.clear);
    let has = |part: &str| sent.encrypted.iter().any(|line| line.starts_with(part));
    assert!(has("AUTH PLAIN ") && has("MAIL FROM:<callgate@plane.example>"), "{:?}", sent.encrypted);
    assert!(has("RCPT TO:<ann@plane.example>") && has("RCPT TO:<bob@plane.example>"), "{:?}", sent.encrypted);
    let link = format!("https://plane.example/approvals/{}", asked.approval_id);
    for part in
        ["Subject: Approval requested: refund_order\r\n", "Session: s1", "Time left: ", r#"{"order":7}"#, link.as_str()]
    {
        assert!(sent.mail.contains(part), "{part}: {}", sent.mail);
    }
    assert!(!sent.mail.contains("hush"), "{}", sent.mail);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn email_is_not_sent_without_starttls_or_to_a_server_of_another_authority() {
    let (home, authority) = (Home::empty(), Authority::new("mail"));
    let clear = MailServer::start(None, &[]).await;
    let foreign = MailServer::start(Some(&Authority::new("other").server()), &[]).await;
    let refusing = MailServer::start(Some(&authority.server()), &["550 5.7.1 not here", "550 5.7.1 not here"]).await;
    for (server, problem) in
        [(&clear, "mail (email): not accepted: "), (&foreign, "certificate"), (&refusing, "not here")]
    {
        let file = file(&home, server, &authority);
        let (code, out, _) = ran(&["notifications", "test", "--notifications", path(&file)]).await;
        assert!(code == Some(1) && out.contains(problem), "{code:?}: {out}");
        let told = server.next().await;
        let commands = told.clear.join("\n");
        assert!(!commands.contains("AUTH") && !commands.contains("MAIL") && told.mail.is_empty(), "{told:?}");
    }
}
