//! `/tokens`: API tokens: list, creation, rotation and revocation.

use askama::Template;
use axum::{Router, extract::Query, response::Html, routing::get};
use prost_types::Duration;
use serde::Deserialize;

use crate::console::{Console, fault::PageError, filters, form::FormPost, frame::Frame, visitor::Visitor};
use callgate_proto::v1::{
    CreateTokenRequest, ListTokensRequest, RevokeTokenRequest, Role, RotateTokenRequest, Token,
    token_service_client::TokenServiceClient,
};

/// Its link.
pub(super) const PATH: &str = "/tokens";

pub(super) fn router() -> Router<Console> {
    Router::new().route(PATH, get(list).post(change))
}

/// Each role in words, with its permissions, in the order of the form.
const ROLES: [(Role, &str, &str); 5] = [
    (Role::Agent, "agent", "evaluates and reports calls, for agents"),
    (Role::Approver, "approver", "answers approval requests"),
    (Role::Operator, "operator", "halts, resumes, grants, settles"),
    (Role::Analyst, "analyst", "reads decisions, retries and the audit log"),
    (Role::Admin, "admin", "everything, including policies and tokens"),
];

#[derive(Template)]
#[template(path = "tokens.html")]
struct Page {
    frame: Frame,
    tokens: Vec<TokenRow>,
    next: String,
    /// A new token, which is shown here and never again.
    made: Option<(TokenRow, String)>,
    done: Option<String>,
    fault: Option<String>,
    /// Content of the form for a new one that was refused.
    form: Change,
    roles: [(Role, &'static str, &'static str); 5],
}

struct TokenRow {
    token: Token,
    roles: Vec<&'static str>,
    /// It is not valid any more.
    has_ended: bool,
    /// Lifetime of a replacement; none for ever.
    days: Option<i64>,
}

impl TokenRow {
    fn new(token: Token, now: i64) -> Self {
        let is_over = token.expire_time.as_ref().is_some_and(|end| end.seconds <= now);
        let has = |role: Role| token.roles().any(|one| one == role);
        let roles = ROLES.iter().filter(|(role, ..)| has(*role)).map(|(_, word, _)| *word).collect();
        let span = token.expire_time.as_ref().zip(token.create_time.as_ref());
        let days = span.map(|(end, made)| ((end.seconds - made.seconds) / 86_400).max(1));
        Self { roles, days, has_ended: is_over || token.revoke_time.is_some(), token }
    }
}

#[derive(Deserialize)]
struct TokensQuery {
    #[serde(default)]
    after: String,
}

/// A form of this page.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Change {
    what: String,
    id: String,
    name: String,
    agent: String,
    approver: String,
    operator: String,
    analyst: String,
    admin: String,
    groups: String,
    agents: String,
    any_session: String,
    days: String,
}

impl Change {
    fn has(&self, role: &Role) -> bool {
        self.roles().contains(role)
    }

    fn roles(&self) -> Vec<Role> {
        let ticks = [&self.agent, &self.approver, &self.operator, &self.analyst, &self.admin];
        let given = ROLES.iter().zip(ticks).filter(|(_, tick)| !tick.is_empty());
        given.map(|((role, ..), _)| *role).collect()
    }

    /// Lifetime; none for ever.
    fn ttl(&self) -> Result<Option<Duration>, PageError> {
        if self.days.trim().is_empty() {
            return Ok(None);
        }
        let days = self.days.trim().parse::<u16>().map_err(|_| PageError::field("days: must be a whole number"))?;
        Ok(Some(Duration { seconds: i64::from(days) * 86_400, nanos: 0 }))
    }
}

async fn list(visitor: Visitor, Query(place): Query<TokensQuery>) -> Result<Html<String>, PageError> {
    page(&visitor, place.after, PageMessages::default()).await
}

/// Messages of the page beside its list.
#[derive(Default)]
struct PageMessages {
    made: Option<(Token, String)>,
    done: Option<String>,
    fault: Option<String>,
    form: Change,
}

/// The answer is the page itself: a new token is shown once, and not stored.
async fn change(FormPost { visitor, form }: FormPost<Change>) -> Result<Html<String>, PageError> {
    let told = match create_token(&visitor, &form).await {
        Ok(told) => told,
        Err(fault) => PageMessages { fault: Some(fault.message().to_owned()), form, ..PageMessages::default() },
    };
    page(&visitor, String::new(), told).await
}

async fn create_token(visitor: &Visitor, form: &Change) -> Result<PageMessages, PageError> {
    let mut tokens = TokenServiceClient::new(visitor.calls.clone());
    match form.what.as_str() {
        "create" => {
            let list = |text: &str| text.split([',', ' ']).filter(|one| !one.is_empty()).map(str::to_owned).collect();
            let asked = CreateTokenRequest {
                name: form.name.trim().to_owned(),
                roles: form.roles().into_iter().map(Into::into).collect(),
                groups: list(&form.groups),
                agent_pattern: form.agents.trim().to_owned(),
                any_session: !form.any_session.is_empty(),
                ttl: form.ttl()?,
            };
            let answer = tokens.create_token(asked).await?.into_inner();
            Ok(PageMessages { made: answer.token.map(|token| (token, answer.secret)), ..PageMessages::default() })
        }
        "rotate" => {
            let asked = RotateTokenRequest { token_id: form.id.clone(), ttl: form.ttl()?, overlap: None };
            let answer = tokens.rotate_token(asked).await?.into_inner();
            Ok(PageMessages { made: answer.token.map(|token| (token, answer.secret)), ..PageMessages::default() })
        }
        "revoke" => {
            let revoked = tokens.revoke_token(RevokeTokenRequest { token_id: form.id.clone() }).await?.into_inner();
            let name = revoked.token.map(|token| token.name).unwrap_or_default();
            let done = format!("Token {} of {name} revoked.", form.id);
            Ok(PageMessages { done: Some(done), ..PageMessages::default() })
        }
        _ => Err(PageError::field("what: is no action of this form")),
    }
}

async fn page(visitor: &Visitor, page_token: String, told: PageMessages) -> Result<Html<String>, PageError> {
    let asked = ListTokensRequest { page_size: 50, page_token };
    let found = TokenServiceClient::new(visitor.calls.clone()).list_tokens(asked).await?.into_inner();
    let now = visitor.now.as_millis() / 1_000;
    let page = Page {
        frame: Frame::new(visitor, PATH, "Tokens"),
        tokens: found.tokens.into_iter().map(|token| TokenRow::new(token, now)).collect(),
        next: found.next_page_token,
        made: told.made.map(|(token, secret)| (TokenRow::new(token, now), secret)),
        done: told.done,
        fault: told.fault,
        form: told.form,
        roles: ROLES,
    };
    Ok(Html(page.render()?))
}
