//! Outgoing requests: issuers' keys, sign-ins, webhooks. HTTPS, or plain HTTP to this machine; no redirects, no
//! proxies. SSRF protection: loopback addresses need the name of this machine, link-local ones are never used, because
//! a controlled name could otherwise reach metadata services.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use http::{HeaderName, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper_util::client::legacy::connect::dns::Name;
use tokio::{net::lookup_host, time::timeout};
use tower::service_fn;
use url::{Host, Position, Url};

use crate::client::{cause, client, tls};

/// Timeout of a request.
const LIMIT: Duration = Duration::from_secs(10);

/// Failure of a request, with the address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{url}: {problem}")]
pub struct RequestError {
    url: String,
    /// Problem.
    pub problem: String,
}

/// Response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpResponse {
    /// Its status.
    pub status: StatusCode,
    /// Body.
    pub body: String,
}

/// Request.
#[derive(Debug, Clone)]
pub struct HttpRequest {
    url: String,
    method: Method,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Bytes,
    authority: Option<PathBuf>,
}

impl HttpRequest {
    /// GET.
    #[must_use]
    pub fn get(url: &str) -> Self {
        Self { url: url.to_owned(), method: Method::GET, headers: Vec::new(), body: Bytes::new(), authority: None }
    }

    /// POST.
    #[must_use]
    pub fn post(url: &str, kind: HeaderValue, body: impl Into<Bytes>) -> Self {
        Self { method: Method::POST, body: body.into(), ..Self::get(url) }.header(header::CONTENT_TYPE, kind)
    }

    /// With this header.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Trusts only the authorities in this file.
    #[must_use]
    pub fn authority(mut self, ca: Option<&Path>) -> Self {
        self.authority = ca.map(Path::to_owned);
        self
    }

    /// Sends it; `max` is the maximum size of the response, in bytes.
    ///
    /// # Errors
    /// [`RequestError`] without a response within ten seconds; any status is a response.
    pub async fn send(&self, max: usize) -> Result<HttpResponse, RequestError> {
        let answer = timeout(LIMIT, self.answer(max)).await;
        let answer = answer.unwrap_or_else(|_| Err(format!("no answer within {} s", LIMIT.as_secs())));
        // The query may be a secret.
        let told = self.url.split(['?', '#']).next().unwrap_or_default();
        answer.map_err(|problem| RequestError { url: told.to_owned(), problem })
    }

    async fn answer(&self, max: usize) -> Result<HttpResponse, String> {
        let url = Url::parse(&self.url).map_err(|error| error.to_string())?;
        let Some(host) = url.host() else { return Err("it names no host".to_owned()) };
        let is_here = is_here(&host);
        if url.scheme() != "https" && !is_here {
            return Err("what comes by http:// can be anybody's: use https://".to_owned());
        }
        // A literal address needs no lookup.
        let literal = match host {
            Host::Domain(_) => None,
            Host::Ipv4(address) => Some(IpAddr::V4(address)),
            Host::Ipv6(address) => Some(IpAddr::V6(address)),
        };
        if let Some(address) = literal.filter(|address| !is_allowed(*address, is_here)) {
            return Err(describe_forbidden(address));
        }
        let mut request = Request::builder()
            .method(&self.method)
            .uri(&url[..Position::AfterQuery])
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, concat!("callgate/", env!("CARGO_PKG_VERSION")));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(self.body.clone())).map_err(|error| error.to_string())?;
        let resolver = service_fn(move |name: Name| lookup(name, is_here));
        let client = client(resolver, tls(self.authority.as_deref())?, Duration::ZERO);
        let response = client.request(request).await.map_err(|error| cause(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), max)
            .collect()
            .await
            .map_err(|error| format!("its answer cannot be read: {error}"))?
            .to_bytes();
        let body = String::from_utf8(body.to_vec()).map_err(|_| "its answer is no text".to_owned())?;
        Ok(HttpResponse { status, body })
    }
}

/// The allowed addresses of a name.
async fn lookup(name: Name, is_here: bool) -> io::Result<std::vec::IntoIter<SocketAddr>> {
    let (may, never): (Vec<_>, Vec<_>) =
        lookup_host((name.as_str(), 0)).await?.partition(|address| is_allowed(address.ip(), is_here));
    match (may.is_empty(), never.first()) {
        (true, Some(address)) => Err(io::Error::other(describe_forbidden(address.ip()))),
        (true, None) => Err(io::Error::other("its name has no address")),
        _ => Ok(may.into_iter()),
    }
}

fn describe_forbidden(address: IpAddr) -> String {
    format!("{address} is an address that nobody is asked at")
}

/// True for an allowed address; `is_here` if the name is that of this machine.
fn is_allowed(address: IpAddr, is_here: bool) -> bool {
    // The metadata service of EC2 over IPv6, which is on no link of its own.
    const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
    let address = unwrap_ipv4(address);
    if address.is_loopback() {
        return is_here;
    }
    let is_of_link = match address {
        IpAddr::V4(address) => address.is_link_local() || address.is_broadcast() || address.octets()[0] == 0,
        IpAddr::V6(address) => address.is_unicast_link_local() || address == METADATA,
    };
    !(is_of_link || address.is_unspecified() || address.is_multicast())
}

/// The IPv4 address inside an IPv6 one, in any of the embeddings.
fn unwrap_ipv4(address: IpAddr) -> IpAddr {
    let IpAddr::V6(whole) = address else { return address };
    let last = |[.., a, b]: [u16; 8]| IpAddr::V4(Ipv4Addr::from((u32::from(a) << 16) | u32::from(b)));
    match whole.segments() {
        // NAT64, and the old forms `::ffff:0:a.b.c.d` and `::a.b.c.d`.
        segments @ ([0x64, 0xff9b, ..] | [0, 0, 0, 0, 0xffff, 0, _, _]) => last(segments),
        segments @ [0, 0, 0, 0, 0, 0, a, b] if (a, b) > (0, 1) => last(segments),
        [0x2002, a, b, ..] => last([0, 0, 0, 0, 0, 0, a, b]),
        _ => address.to_canonical(),
    }
}

/// True for a host that names this machine.
#[must_use]
pub fn is_here(host: &Host<&str>) -> bool {
    match host {
        Host::Domain(name) => *name == "localhost",
        Host::Ipv4(address) => IpAddr::V4(*address).is_loopback(),
        Host::Ipv6(address) => IpAddr::V6(*address).is_loopback(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    /// A local server with a constant response, and its number of requests.
    async fn answers(answer: impl Into<Vec<u8>>) -> (String, Arc<AtomicUsize>) {
        let (answer, listener) = (answer.into(), TcpListener::bind("127.0.0.1:0").await.expect("a port"));
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let count = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&count);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                let _ = stream.read(&mut [0; 4_096]).await;
                let _ = stream.write_all(&answer).await;
            }
        });
        (url, count)
    }

    async fn problem(url: &str) -> String {
        HttpRequest::get(url).send(1_000).await.expect_err(url).problem
    }

    #[tokio::test]
    async fn link_local_address_is_forbidden_in_any_spelling() {
        for host in [
            "169.254.169.254",
            "2852039166",
            "0xa9fea9fe",
            "0251.0376.0251.0376",
            "169.254.43518",
            "[::ffff:169.254.169.254]",
            "[::ffff:a9fe:a9fe]",
            "[64:ff9b::a9fe:a9fe]",
            "[2002:a9fe:a9fe::1]",
            "[::169.254.169.254]",
            "[fe80::1]",
            "[fd00:ec2::254]",
            "0.0.0.0",
            "0.1.2.3",
            "[::]",
            "255.255.255.255",
            "224.0.0.1",
            "[ff02::1]",
        ] {
            let told = problem(&format!("https://{host}/latest/meta-data/")).await;
            assert!(told.ends_with("is an address that nobody is asked at"), "{host}: {told}");
        }
    }

    #[tokio::test]
    async fn plain_http_is_for_this_machine_alone() {
        for host in [
            "10.0.0.1",
            "keys.example",
            "127.0.0.1.nip.io",
            "localhost.example",
            "[::ffff:127.0.0.1]",
            "2130706434.example",
        ] {
            let told = problem(&format!("http://{host}/jwks")).await;
            assert!(told.ends_with("use https://"), "{host}: {told}");
        }
        for url in ["file:///etc/passwd", "ftp://localhost.example/", "gopher://10.0.0.1:70/"] {
            assert!(HttpRequest::get(url).send(1_000).await.is_err(), "{url}");
        }
    }

    #[test]
    fn a_name_leads_neither_to_this_machine_nor_to_its_link() {
        let of = |address: &str, is_here| is_allowed(address.parse().expect("an address"), is_here);
        for address in ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"] {
            assert!(!of(address, false), "{address} by the name of somebody else");
        }
        assert!(of("127.0.0.1", true) && of("::1", true));
        assert!(!of("169.254.169.254", true) && !of("0.0.0.0", true), "not by our own name either");
        for address in ["10.96.0.1", "192.168.1.9", "93.184.216.34", "fd12::1", "2606:2800::1"] {
            assert!(of(address, false), "{address}: issuers and receivers of a cluster have such");
        }
    }

    #[tokio::test]
    async fn a_redirect_is_an_answer_and_is_not_followed() {
        let (there, asked) = answers("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").await;
        for status in [301, 302, 303, 307, 308] {
            let head = format!("HTTP/1.1 {status} x\r\nlocation: {there}/\r\ncontent-length: 2\r\n\r\n{{}}");
            let (here, _) = answers(head).await;
            let answer = HttpRequest::get(&here).send(1_000).await.expect("an answer");
            assert_eq!((answer.status.as_u16(), answer.status.is_success()), (status, false));
        }
        assert_eq!(asked.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn an_answer_has_no_more_bytes_than_are_asked_for() {
        let long = format!("HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\n{}", "x".repeat(1_001));
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_owned()
            + &format!("64\r\n{}\r\n", "x".repeat(100)).repeat(50);
        for answer in [long, chunked] {
            let (url, _) = answers(answer).await;
            assert!(problem(&url).await.contains("cannot be read"), "{url}");
        }
        let (silent, _) = answers("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nx").await;
        assert!(problem(&silent).await.contains("cannot be read"));
    }
}
