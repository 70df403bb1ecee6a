//! OAuth through the proxy (docs/mcp.md#oauth). A client accepts a protected resource only under the address that it
//! uses (RFC 9728), and an authorization server gives tokens for the MCP server's own address alone (RFC 8707). So the
//! proxy shows its own address to the client and names the MCP server's to the authorization server: it stands in for
//! the endpoints that take a `resource`.

use std::{ops::Range, sync::Arc};

use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use parking_lot::Mutex;
use serde_json::{Map, Value};
use url::{Position, Url, form_urlencoded};

use super::{
    Site,
    admission::{self, Refusal},
    decoded::DecodedBody,
    reply::{Body, JSON, head, whole},
};

/// Well-known paths: of the resource, of its authorization server.
const RESOURCE: &str = "/.well-known/oauth-protected-resource";
const SERVERS: [&str; 2] = ["/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"];
/// The proxy's own endpoints, in place of the authorization server's.
const AUTHORIZE: &str = "/.callgate/authorize";
const TOKEN: &str = "/.callgate/token";
/// Maximum size of metadata, and of a token request or response, in bytes.
const ANSWER_BYTES_MAX: usize = 256 << 10;
/// Metadata that would lead around the proxy's endpoints, or contradict them.
const LEFT_OUT: [&str; 4] = [
    "pushed_authorization_request_endpoint",
    "device_authorization_endpoint",
    "mtls_endpoint_aliases",
    "signed_metadata",
];
const FORM: &str = "application/x-www-form-urlencoded";

/// Findings about the MCP server's authorization.
#[derive(Default)]
pub(super) struct OAuthState {
    /// Address of the resource metadata, from the newest challenge.
    challenged: Mutex<Option<Url>>,
    found: Mutex<Option<Arc<AuthorizationMetadata>>>,
}

/// Metadata of the MCP server and its first authorization server.
struct AuthorizationMetadata {
    /// None for servers of 2025-03-26, which are their own authorization servers.
    resource: Option<Map<String, Value>>,
    server: Option<Map<String, Value>>,
}

/// A request about authorization.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Endpoint {
    ResourceMetadata,
    ServerMetadata,
    Authorize,
    Token,
}

impl Endpoint {
    /// The endpoint of a request; none for one to the MCP server.
    pub(super) fn of(request: &Parts, mcp: &Url) -> Option<Self> {
        let path = request.uri.path();
        match request.method {
            _ if path == mcp.path() => None,
            Method::GET if path.strip_prefix(RESOURCE).is_some_and(|rest| rest.is_empty() || rest == mcp.path()) => {
                Some(Self::ResourceMetadata)
            }
            Method::GET if SERVERS.contains(&path) => Some(Self::ServerMetadata),
            Method::GET if path == AUTHORIZE => Some(Self::Authorize),
            Method::POST if path == TOKEN => Some(Self::Token),
            _ => None,
        }
    }
}

/// True for a response by which a server asks for authorization: it has not executed the request.
pub(super) fn is_challenge(head: &http::response::Parts) -> bool {
    let is_bearer = |value: &HeaderValue| value.as_bytes().to_ascii_lowercase().starts_with(b"bearer");
    matches!(head.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
        && head.headers.get_all(header::WWW_AUTHENTICATE).iter().any(is_bearer)
}

/// Names the proxy's address of the resource metadata in a challenge, and remembers the server's.
pub(super) fn show_own_metadata(site: &Site, own: &str, headers: &mut HeaderMap) {
    let challenges: Vec<HeaderValue> = headers.get_all(header::WWW_AUTHENTICATE).iter().cloned().collect();
    headers.remove(header::WWW_AUTHENTICATE);
    for challenge in challenges {
        let named = challenge.to_str().ok().and_then(|text| Some((text, find_metadata(text)?)));
        let replaced = named.and_then(|(text, at)| {
            *site.authorization.challenged.lock() =
                Url::parse(&text[at.clone()]).ok().filter(|url| is_allowed(site, url));
            let (before, after) = (text[..at.start].trim_end_matches('"'), text[at.end..].trim_start_matches('"'));
            format!("{before}\"{own}{RESOURCE}{}\"{after}", site.upstream.url().path()).parse().ok()
        });
        headers.append(header::WWW_AUTHENTICATE, replaced.unwrap_or(challenge));
    }
}

/// The place of `resource_metadata` in a challenge, without its quotes.
fn find_metadata(challenge: &str) -> Option<Range<usize>> {
    const NAME: &str = "resource_metadata";
    let name = challenge.to_ascii_lowercase().find(NAME)? + NAME.len();
    let after = challenge[name..].trim_start().strip_prefix('=')?.trim_start();
    let value = after.strip_prefix('"').unwrap_or(after);
    let start = challenge.len() - value.len();
    Some(start..start + value.find(['"', ',', ' ']).unwrap_or(value.len()))
}

/// True for an encrypted connection, and for a plain one where the MCP server's is plain too.
fn is_allowed(site: &Site, url: &Url) -> bool {
    url.scheme() == "https" || url.scheme() == "http" && site.upstream.url().scheme() == "http"
}

/// Answers a request about authorization; `own` is the proxy's origin.
pub(super) async fn answer(
    site: &Site,
    endpoint: Endpoint,
    request: &Parts,
    body: Incoming,
    own: &str,
) -> Result<Response<Body>, Refusal> {
    if matches!(endpoint, Endpoint::ResourceMetadata | Endpoint::ServerMetadata) {
        *site.authorization.found.lock() = None;
    }
    let found = find(site).await?;
    let own_resource = format!("{own}{}", site.upstream.url().path());
    match endpoint {
        Endpoint::ResourceMetadata => {
            let mut resource = found.resource.clone().ok_or_else(|| missing("protected resource"))?;
            resource.insert("resource".to_owned(), own_resource.into());
            resource.remove("signed_metadata");
            if found.server.as_ref().is_some_and(takes_stand_in) {
                resource.insert("authorization_servers".to_owned(), Value::from(vec![own]));
            }
            Ok(whole(head(StatusCode::OK, JSON), Value::from(resource).to_string().into()))
        }
        Endpoint::ServerMetadata => {
            let mut server = found.stand_in()?.clone();
            LEFT_OUT.iter().for_each(|name| drop(server.remove(*name)));
            for (name, value) in [("issuer", ""), ("authorization_endpoint", AUTHORIZE), ("token_endpoint", TOKEN)] {
                server.insert(name.to_owned(), format!("{own}{value}").into());
            }
            Ok(whole(head(StatusCode::OK, JSON), Value::from(server).to_string().into()))
        }
        Endpoint::Authorize => {
            let mut to = found.endpoint(site, "authorization_endpoint")?;
            let query = request.uri.query().unwrap_or_default();
            let pairs = found.name_resource(query.as_bytes());
            to.query_pairs_mut().extend_pairs(pairs);
            let mut answer = head(StatusCode::FOUND, "text/plain");
            answer.headers.insert(header::LOCATION, HeaderValue::try_from(to.as_str()).map_err(|_| missing("usable"))?);
            Ok(whole(answer, Bytes::new()))
        }
        Endpoint::Token => send_token_request(site, &found, request, body).await,
    }
}

/// Sends a token request for the MCP server's own address.
async fn send_token_request(
    site: &Site,
    found: &AuthorizationMetadata,
    request: &Parts,
    body: Incoming,
) -> Result<Response<Body>, Refusal> {
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let body =
        body.map_err(|error| (StatusCode::BAD_REQUEST, format!("callgate mcp-proxy: token request: {error}\n")))?;
    let body =
        form_urlencoded::Serializer::new(String::new()).extend_pairs(found.name_resource(&body.to_bytes())).finish();
    let mut sent = Request::new(Full::new(Bytes::from(body)));
    *sent.method_mut() = Method::POST;
    *sent.headers_mut() = admission::forward_headers(&request.headers);
    sent.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(FORM));
    let (mut head, body) = fetch(site, found.endpoint(site, "token_endpoint")?, sent).await?;
    head.headers = admission::without_hops(&head.headers);
    Ok(whole(head, body.into()))
}

impl AuthorizationMetadata {
    /// The metadata of an authorization server that the proxy can stand in for.
    fn stand_in(&self) -> Result<&Map<String, Value>, Refusal> {
        self.server.as_ref().filter(|server| takes_stand_in(server)).ok_or_else(|| missing("authorization server"))
    }

    fn endpoint(&self, site: &Site, name: &str) -> Result<Url, Refusal> {
        let url = self.stand_in()?.get(name).and_then(Value::as_str).and_then(|url| Url::parse(url).ok());
        url.filter(|url| is_allowed(site, url)).ok_or_else(|| missing(name))
    }

    /// The parameters of a request with the MCP server's own address as `resource`.
    fn name_resource(&self, form: &[u8]) -> Vec<(String, String)> {
        let real = self.resource.as_ref().and_then(|resource| resource.get("resource")?.as_str());
        let pairs = form_urlencoded::parse(form).map(|(name, value)| {
            let value = real.filter(|_| name == "resource").map_or_else(|| value.into_owned(), str::to_owned);
            (name.into_owned(), value)
        });
        pairs.collect()
    }
}

/// False for a server that states its name in its responses (RFC 9207), since its clients compare it, and for one that
/// takes requests on another way only.
fn takes_stand_in(server: &Map<String, Value>) -> bool {
    let is = |name: &str| server.get(name).and_then(Value::as_bool) == Some(true);
    !is("authorization_response_iss_parameter_supported") && !is("require_pushed_authorization_requests")
}

fn missing(what: &str) -> Refusal {
    (StatusCode::NOT_FOUND, format!("callgate mcp-proxy: the MCP server has no {what} metadata\n"))
}

/// The metadata, fetched once between two requests for them.
async fn find(site: &Site) -> Result<Arc<AuthorizationMetadata>, Refusal> {
    if let Some(found) = site.authorization.found.lock().clone() {
        return Ok(found);
    }
    let mcp = site.upstream.url();
    let challenged = site.authorization.challenged.lock().clone();
    let own_paths = [format!("{RESOURCE}{}", mcp.path()), RESOURCE.to_owned()];
    let resource = fetch_first(site, challenged.into_iter().chain(own_paths.iter().map(|path| at(mcp, path)))).await?;
    let issuer = match &resource {
        Some(resource) => resource.get("authorization_servers").and_then(|servers| servers.get(0)?.as_str()),
        None => Some(&mcp[..Position::BeforePath]),
    };
    let issuer = issuer.and_then(|issuer| Url::parse(issuer).ok()).filter(|url| is_allowed(site, url));
    let server = match issuer {
        Some(issuer) => fetch_first(site, list_server_metadata(&issuer).into_iter()).await?,
        None => None,
    };
    let found = Arc::new(AuthorizationMetadata { resource, server });
    *site.authorization.found.lock() = Some(Arc::clone(&found));
    Ok(found)
}

/// Addresses of an issuer's metadata, in the order in which clients ask.
fn list_server_metadata(issuer: &Url) -> Vec<Url> {
    let path = issuer.path().trim_end_matches('/');
    let mut urls: Vec<Url> = SERVERS.iter().map(|name| at(issuer, &format!("{name}{path}"))).collect();
    urls.extend((!path.is_empty()).then(|| at(issuer, &format!("{path}{}", SERVERS[1]))));
    urls
}

/// Another path of the same origin.
fn at(url: &Url, path: &str) -> Url {
    let mut url = url.clone();
    url.set_path(path);
    url.set_query(None);
    url.set_fragment(None);
    url
}

/// The first metadata that exists.
async fn fetch_first(site: &Site, urls: impl Iterator<Item = Url>) -> Result<Option<Map<String, Value>>, Refusal> {
    for url in urls {
        let mut request = Request::new(Full::new(Bytes::new()));
        *request.headers_mut() = admission::forward_headers(&HeaderMap::new());
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static(JSON));
        let (head, body) = fetch(site, url, request).await?;
        if let Some(found) = serde_json::from_slice(&body).ok().filter(|_| head.status.is_success()) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// A whole response, in plain bytes.
async fn fetch(
    site: &Site,
    url: Url,
    mut request: Request<Full<Bytes>>,
) -> Result<(http::response::Parts, Vec<u8>), Refusal> {
    let failed = |why: &str| {
        (
            StatusCode::BAD_GATEWAY,
            format!("callgate mcp-proxy: no answer from {}: {why}\n", &url[..Position::AfterPath]),
        )
    };
    *request.uri_mut() = url.as_str().parse().map_err(|_| failed("its address is none"))?;
    let response = site.upstream.send_to(request).await.map_err(|failure| failed(&failure.why))?;
    let (mut head, body) = response.into_parts();
    let (body, coding) = DecodedBody::new(&mut head.headers, body);
    coding.map_err(|coding| failed(&format!("its compression ({coding}) is unknown")))?;
    let body = body.collect(ANSWER_BYTES_MAX).await.map_err(|why| failed(&why))?;
    Ok((head, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metadata_of_a_challenge_is_found() {
        for (challenge, url) in [
            (r#"Bearer resource_metadata="https://a.example/m", scope="x""#, Some("https://a.example/m")),
            (r#"Bearer error="e", Resource_Metadata = "https://a.example/m""#, Some("https://a.example/m")),
            ("Bearer resource_metadata=https://a.example/m, scope=x", Some("https://a.example/m")),
            (r#"Bearer resource_metadata="unclosed"#, Some("unclosed")),
            ("Bearer resource_metadata", None),
            (r#"Bearer realm="x""#, None),
        ] {
            assert_eq!(find_metadata(challenge).map(|at| &challenge[at]), url, "{challenge}");
        }
    }

    #[test]
    fn issuer_metadata_is_looked_for_where_clients_do() {
        let listed = |issuer: &str| {
            let urls = list_server_metadata(&Url::parse(issuer).expect("a URL"));
            urls.iter().map(|url| url.as_str().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(
            listed("https://a.example/"),
            [
                "https://a.example/.well-known/oauth-authorization-server",
                "https://a.example/.well-known/openid-configuration"
            ]
        );
        assert_eq!(
            listed("https://a.example/t1"),
            [
                "https://a.example/.well-known/oauth-authorization-server/t1",
                "https://a.example/.well-known/openid-configuration/t1",
                "https://a.example/t1/.well-known/openid-configuration",
            ]
        );
    }
}
