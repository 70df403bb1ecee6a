//! The console: a fleet in a browser, served beside the calls. Pages are rendered here, and everything that they show
//! or do goes through the services of the contract, as the page's user: their roles, their tenant, the same errors, the
//! same audit.
//!
//! `visitor.rs` resolves the user, `session.rs` keeps them signed in, `frame.rs` is the frame of each page, and
//! `pages/` has one file a page, with its template of the same name in `templates/`. Scripts and styles are in
//! `assets/`.

mod arguments;
mod assets;
mod fault;
mod filters;
mod form;
mod frame;
mod headers;
mod jobs;
mod labels;
mod live;
mod pages;
mod session;
mod visitor;

use std::sync::Arc;

use axum::{
    Router, middleware,
    response::{IntoResponse as _, Redirect, Response},
};
use http::{HeaderMap, Method, StatusCode, Uri, header};
use tonic::Status;
use tower_http::compression::CompressionLayer;

use self::fault::PageError;
use crate::{gate::Identities, grpc::Inside};

/// State that all pages share.
#[derive(Debug, Clone)]
struct Console {
    inside: Inside,
    /// For console sessions; all other requests go through `inside`.
    identities: Arc<Identities>,
    /// Backtests that were begun here.
    jobs: Arc<jobs::Jobs>,
    trace_url: Option<Arc<str>>,
}

/// The pages over these services.
pub fn router(inside: Inside, identities: Arc<Identities>, trace_url: Option<Arc<str>>) -> Router {
    let console = Console { inside, identities, jobs: Arc::default(), trace_url };
    pages::router()
        .merge(assets::router())
        .merge(live::router())
        .fallback(nowhere)
        .layer(middleware::from_fn_with_state(console.clone(), fault::frame_errors))
        .layer(CompressionLayer::new())
        .layer(middleware::from_fn(headers::guard))
        .with_state(console)
}

/// Text in the place of the pages.
const WITHOUT_PAGES: &str = "The console needs a database, and this server stores everything in memory: start it \
                             without --memory.\n";

/// Routes in the place of the pages, on a server without a database.
pub fn without_pages(_: Inside, _: Arc<Identities>, _: Option<Arc<str>>) -> Router {
    let answer = async |headers: HeaderMap| match is_grpc(&headers) {
        true => Status::unimplemented("").into_http(),
        false => (StatusCode::NOT_FOUND, WITHOUT_PAGES).into_response(),
    };
    Router::new().fallback(answer).layer(middleware::from_fn(headers::guard))
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// Handles unknown paths. One with a slash too many is redirected to its page.
async fn nowhere(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    match uri.path().strip_suffix('/') {
        // Calls that no service takes end here too.
        _ if is_grpc(&headers) => Status::unimplemented("").into_http(),
        Some(page) if method == Method::GET && !page.ends_with('/') => Redirect::to(page).into_response(),
        _ => PageError::new(StatusCode::NOT_FOUND, "no page has this address").into_response(),
    }
}
