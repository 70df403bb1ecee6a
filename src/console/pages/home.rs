//! `/`: the first page of those that somebody may see.

use axum::{Router, response::Redirect, routing::get};
use http::StatusCode;

use super::LINKS;
use crate::console::{Console, fault::Fault, visitor::Visitor};

pub(super) fn router() -> Router<Console> {
    Router::new().route("/", get(home))
}

async fn home(visitor: Visitor) -> Result<Redirect, Fault> {
    let first = LINKS.iter().find(|link| visitor.is_one_of(link.roles));
    let none = "your credential is for calls; none of the console's pages is for its roles";
    first.map(|link| Redirect::to(link.path)).ok_or_else(|| Fault::new(StatusCode::FORBIDDEN, none))
}
