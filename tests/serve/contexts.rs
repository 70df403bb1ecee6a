//! Contexts file: servers by name, each with its credential, which is sent nowhere else.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use crate::server::{Home, Server, path, program, ran, run_to_end};

/// Output of a command with this contexts file and environment, and its exit code.
async fn with(config: &Path, environment: &[(&str, &str)], line: &str) -> (Option<i32>, String, String) {
    let mut command = program();
    command.args(line.split(' ')).env("CALLGATE_CONFIG", config).envs(environment.iter().copied());
    run_to_end(command).await
}

fn restrict_file_mode(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("ours");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_context_is_a_server_with_its_credential() {
    let home = Home::with_cluster().await;
    let server = Server::start(&home, &[]);
    let url = format!("http://{}", server.address);
    let (code, token, error) = ran(&["tokens", "create", "ops", "--role", "admin,operator", "--server", &url]).await;
    assert_eq!(code, Some(0), "{error}");
    assert!(error.contains("Tenant: default") && error.contains("operator,admin"), "{error}");
    let elsewhere = ["tokens", "create", "x", "--role", "agent", "--tenant", "acme", "--server", &url];
    let (code, _, error) = ran(&elsewhere).await;
    assert!(code == Some(1) && error.contains("--tenant acme needs --database-url"), "{error}");
    restrict_file_mode(&home.file("ops.token", &token));
    let text = format!(
        "contexts:\n  here: {{server: '{url}', token_file: ops.token}}\n  inline: {{server: '{url}', token: {}}}\n  \
         asked: {{server: '{url}', token_command: [cat, {}]}}\n  bare: {{server: '{url}'}}\n",
        token.trim(),
        home.file("ops.token", &token).display()
    );
    let config = home.file("contexts.yaml", &text);
    restrict_file_mode(&config);

    for name in ["here", "inline", "asked"] {
        let (code, said, error) = with(&config, &[], &format!("tokens list --context {name}")).await;
        assert!(code == Some(0) && said.contains("ops"), "{name}: {said}{error}");
    }
    let refused = |(code, said, error): (Option<i32>, String, String), why: &str| {
        assert_eq!(code, Some(1), "{said}{error}");
        assert!(error.contains(why), "{why}: {error}");
    };
    refused(with(&config, &[], "tokens list --context bare").await, "[UNAUTHENTICATED]");
    refused(with(&config, &[], "tokens list --context nowhere").await, "has no context \"nowhere\": it has ");

    // Chosen once, it is the one that is meant; its credential does not go to a server that is named otherwise.
    assert_eq!(with(&config, &[], "contexts use here").await.1, "here is the current context\n");
    assert_eq!(with(&config, &[], "tokens list").await.0, Some(0));
    refused(with(&config, &[], &format!("tokens list --server {url}")).await, "[UNAUTHENTICATED]");
    refused(with(&config, &[("CALLGATE_SERVER", &url)], "tokens list").await, "[UNAUTHENTICATED]");
    // Flags precede the environment, and the environment the file.
    let wrong = [("CALLGATE_TOKEN", "cg_wrong")];
    refused(with(&config, &wrong, "tokens list").await, "[UNAUTHENTICATED]");
    assert_eq!(with(&config, &wrong, "tokens list --context here").await.0, Some(0));
    let both = [("CALLGATE_SERVER", "http://127.0.0.1:1"), ("CALLGATE_CONTEXT", "here")];
    refused(with(&config, &both, "tokens list").await, "are both set");
    assert_eq!(with(&config, &both, "tokens list --context here").await.0, Some(0));

    let (_, listed, _) = with(&config, &[], "contexts list").await;
    let (_, shown, _) = with(&config, &[], "contexts show inline --json").await;
    assert!(listed.contains(&format!("* here    {url}  (a token file)")), "{listed}");
    assert!(shown.contains("\"token\":\"TEXT\"") && !shown.contains(token.trim()), "{shown}");

    // Others than the owner may neither read a token nor change its target.
    fs::set_permissions(&config, fs::Permissions::from_mode(0o644)).expect("ours");
    refused(with(&config, &[], "tokens list").await, &format!("others may read it: chmod 600 {}", path(&config)));
    restrict_file_mode(&config);
    let file = home.file("ops.token", &token);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("ours");
    refused(with(&config, &[], "tokens list").await, "every user of this machine may read it");
}
