//! Caller identity by certificate, with an additional token, or without a name.

use callgate_core::{
    domain::{audit::Actor, identity::Role},
    policy::Policy,
};
use callgate_proto::v1::{GetCallerRequest, server_service_client::ServerServiceClient};
use callgate_server::{auth::file, grpc::GrpcSettings};
use tonic::{Code, transport::Channel};

use crate::{
    clients::tls,
    common::{
        certificates::{Authority, Pair},
        in_time,
        wire::{Plane, pair, tls_channel, with_token},
    },
    credentials::who,
};

const AUTH: &str = "certificates:
- san: 'uri:spiffe://fleet.example/*'
  as: {tenant: acme, roles: [admin], name: of the certificate}
- san: 'dns:*'
  as: {tenant: acme, roles: [agent]}
";

/// Name and tenant of a caller.
async fn caller(channel: &Channel, token: Option<&str>) -> Result<(String, String), (Code, String)> {
    let mut server = ServerServiceClient::new(channel.clone());
    let told = in_time("an answer", server.get_caller(with_token(token, GetCallerRequest {}))).await;
    let caller = told.map_err(|status| pair(&status))?.into_inner().caller.expect("a caller");
    Ok((caller.name, caller.tenant))
}

struct Scene {
    plane: Plane,
    ours: Authority,
    fleet: Authority,
    _folder: tempfile::TempDir,
}

impl Scene {
    async fn start() -> Self {
        let (ours, fleet) = (Authority::new("ours"), Authority::new("fleet"));
        let (way, folder) = tls(&ours.server(), Some(&fleet), None);
        let plane = Plane::serve_with(&Policy::default(), &way, GrpcSettings::default()).await;
        plane
            .gate
            .identities
            .create_tenant("acme", &Default::default(), &Actor::from("root"))
            .await
            .expect("an answer");
        plane.gate.identities.map(file::read(AUTH).expect("a mapping")).await.expect("its tenant");
        Self { plane, ours, fleet, _folder: folder }
    }

    async fn connect(&self, certificate: &Pair) -> Channel {
        tls_channel(self.plane.address, &self.ours, Some(certificate)).await.expect("TLS")
    }
}

fn unauthenticated<T>() -> Result<T, (Code, String)> {
    Err((Code::Unauthenticated, "UNAUTHENTICATED".to_owned()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_counts_alone_in_its_own_tenant_and_a_wrong_one_is_no_certificate() {
    let scene = Scene::start().await;
    let channel = scene.connect(&scene.fleet.client(&[], &["spiffe://fleet.example/desk"])).await;
    let acme = Ok(("of the certificate".to_owned(), "acme".to_owned()));
    assert_eq!(caller(&channel, None).await, acme);
    let root = Actor::from("root");
    let default = callgate_core::domain::ids::DEFAULT_TENANT;
    let (token, known) =
        scene.plane.gate.identities.create_token(default, who("ann", &[Role::Agent]), None, &root).await.expect("made");
    let of_token = Ok(("ann".to_owned(), "default".to_owned()));
    assert_eq!(caller(&channel, Some(&token)).await, of_token, "and not the admin of another tenant");
    assert_eq!(caller(&channel, None).await, acme, "on one connection, each request by what it shows");
    // An invalid token is not replaced by the certificate.
    let mut changed = token.clone();
    changed.pop();
    for wrong in [changed.as_str(), "cg_agent_x", "eyJhbGciOiJub25lIn0.e30.", "x"] {
        assert_eq!(caller(&channel, Some(wrong)).await, unauthenticated(), "{wrong}");
    }
    scene.plane.gate.identities.revoke_token(default, &known.id, &root).await.expect("revoked");
    assert_eq!(caller(&channel, Some(&token)).await, unauthenticated(), "revoked");
    assert_eq!(caller(&channel, None).await, acme);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_without_a_name_is_nobodys_and_its_subject_is_no_name() {
    let scene = Scene::start().await;
    let named = scene.connect(&scene.fleet.client(&["desk.fleet"], &[])).await;
    assert_eq!(caller(&named, None).await, Ok(("desk.fleet".to_owned(), "acme".to_owned())));
    for subject in ["", "desk.fleet", "uri:spiffe://fleet.example/desk", "spiffe://fleet.example/desk"] {
        let channel = scene.connect(&scene.fleet.client_called(subject)).await;
        assert_eq!(caller(&channel, None).await, unauthenticated(), "{subject:?}");
    }
    // Names are checked one by one, by kind.
    for (dns, uri) in [("x", "http://fleet.example/desk"), ("spiffe.fleet.example", "dns:desk.fleet")] {
        let channel = scene.connect(&scene.fleet.client(&[], &[uri])).await;
        assert_eq!(caller(&channel, None).await, unauthenticated(), "{uri}");
        let channel = scene.connect(&scene.fleet.client(&[dns], &[uri])).await;
        assert_eq!(caller(&channel, None).await, Ok((dns.to_owned(), "acme".to_owned())), "an agent, and no admin");
    }
}
