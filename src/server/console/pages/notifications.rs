//! `/notifications`: the destinations of notifications, with their queues and a test.

use askama::Template;
use axum::{Router, response::Html, routing::get};
use serde::Deserialize;

use super::PEOPLE;
use crate::console::{Console, fault::PageError, filters, form::FormPost, frame::Frame, visitor::Visitor};
use callgate_proto::v1::{
    ListNotificationDestinationsRequest, NotificationDestination, Role, TestNotificationDestinationRequest,
    fleet_service_client::FleetServiceClient,
};

/// Its link, and the roles that see it.
pub(super) const PATH: &str = "/notifications";
pub(super) const ROLES: &[Role] = PEOPLE;

pub(super) fn router() -> Router<Console> {
    Router::new().route(PATH, get(list).post(test))
}

#[derive(Template)]
#[template(path = "notifications.html")]
struct Page {
    frame: Frame,
    destinations: Vec<NotificationDestination>,
    is_operator: bool,
    /// A tested destination, and its problem; empty without one.
    tested: Option<(String, String)>,
}

async fn list(visitor: Visitor) -> Result<Html<String>, PageError> {
    page(&visitor, None).await
}

#[derive(Deserialize)]
struct TestForm {
    #[serde(default)]
    name: String,
}

async fn test(FormPost { visitor, form }: FormPost<TestForm>) -> Result<Html<String>, PageError> {
    let asked = TestNotificationDestinationRequest { name: form.name.clone() };
    let result = FleetServiceClient::new(visitor.calls.clone()).test_notification_destination(asked).await?;
    page(&visitor, Some((form.name, result.into_inner().problem))).await
}

async fn page(visitor: &Visitor, tested: Option<(String, String)>) -> Result<Html<String>, PageError> {
    let asked = ListNotificationDestinationsRequest {};
    let found = FleetServiceClient::new(visitor.calls.clone()).list_notification_destinations(asked).await?;
    let frame = Frame::new(visitor, PATH, "Notifications");
    let is_operator = visitor.is_one_of(&[Role::Operator]);
    Ok(Html(Page { frame, destinations: found.into_inner().destinations, is_operator, tested }.render()?))
}
