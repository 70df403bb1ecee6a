//! Console over HTTP, without a browser: permissions and actions. Tests with a browser are in tests/browser.

mod approvals;
mod bulk;
mod fleet;
mod forged;
mod issuer;
mod learning;
mod policy;
mod sessions;
mod sign_in;
mod traces;

use std::{collections::BTreeMap, net::SocketAddr};

use callgate_core::{domain::identity::Role, policy::Policy};
use callgate_net::listener::TransportSettings;
use callgate_server::{console, grpc::GrpcSettings};
use http::{HeaderMap, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use url::form_urlencoded;

use crate::{
    common::{in_time, wire::Plane},
    credentials::{token, who},
};

/// A server with its console.
pub(crate) async fn serve_console(policy: &Policy) -> Plane {
    Plane::serve_with(
        policy,
        &TransportSettings::default(),
        GrpcSettings { pages: Some(console::router), ..GrpcSettings::default() },
    )
    .await
}

/// A browser.
pub(crate) struct Browser {
    client: Client<HttpConnector, Full<Bytes>>,
    address: SocketAddr,
    /// Headers of each request beside those of a form.
    pub(crate) headers: BTreeMap<&'static str, String>,
    csrf: String,
}

/// Response in a browser.
pub(crate) struct Page {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) html: String,
}

impl Page {
    /// Where it leads to; empty where it leads nowhere.
    pub(crate) fn location(&self) -> &str {
        self.headers.get(header::LOCATION).map_or("", |to| to.to_str().expect("ASCII"))
    }

    /// The page itself, and not an error.
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.status, StatusCode::OK, "{}", self.html);
        self.html
    }
}

impl Browser {
    pub(crate) fn new(plane: &Plane) -> Self {
        let client = Client::builder(TokioExecutor::new()).build_http();
        Self { client, address: plane.address, headers: BTreeMap::new(), csrf: String::new() }
    }

    /// One that is signed in with this token.
    pub(crate) async fn with_token(plane: &Plane, token: &str) -> Self {
        let mut browser = Self::new(plane);
        let page = browser.post("/sign-in", &[("token", token)]).await;
        assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
        browser
    }

    /// A browser signed in with these roles, by a new token.
    pub(crate) async fn of(plane: &Plane, name: &str, roles: &[Role]) -> Self {
        let (token, _) = token(&plane.gate, who(name, roles)).await;
        Self::with_token(plane, &token).await
    }

    /// A browser signed in without authentication.
    pub(crate) async fn sign_in_as(plane: &Plane, name: &str) -> Self {
        let mut browser = Self::new(plane);
        let page = browser.post("/sign-in", &[("name", name)]).await;
        assert_eq!(page.status, StatusCode::SEE_OTHER, "{}", page.html);
        browser
    }

    pub(crate) async fn get(&mut self, path: &str) -> Page {
        self.send(Method::GET, path, String::new()).await
    }

    /// A form of one of our pages.
    pub(crate) async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Page {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("csrf", &self.csrf);
        let form = form.extend_pairs(fields).finish();
        self.send(Method::POST, path, form).await
    }

    /// Sends a raw body.
    pub(crate) async fn send(&mut self, method: Method, path: &str, body: String) -> Page {
        let mut request = Request::builder().method(method).uri(format!("http://{}{path}", self.address));
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        }
        let request = request.body(Full::new(body.into())).expect("a request");
        let response = in_time("an answer", self.client.request(request)).await.expect("an answer");
        let (parts, body) = response.into_parts();
        let bytes = in_time("all of it", body.collect()).await.expect("all of it").to_bytes();
        let html = String::from_utf8(bytes.to_vec()).expect("UTF-8");
        if let Some(cookie) = parts.headers.get(header::SET_COOKIE) {
            let cookie = cookie.to_str().expect("ASCII").split(';').next().unwrap_or_default();
            self.headers.insert("cookie", cookie.to_owned());
        }
        if let Some((_, rest)) = html.split_once("name=\"csrf\" value=\"") {
            rest.split('"').next().unwrap_or_default().clone_into(&mut self.csrf);
        }
        Page { status: parts.status, headers: parts.headers, html }
    }
}
