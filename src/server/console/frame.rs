//! Frame of each page: title, navigation links, and the signed-in user.

use std::sync::Arc;

use super::{pages::LINKS, visitor::Visitor};
use callgate_proto::v1::Role;

/// The base of every page's template (`frame.html`).
pub(super) struct Frame {
    /// Of the window, and of the page's first heading.
    pub(super) title: String,
    /// The path of the link that is shown as where they are.
    pub(super) at: &'static str,
    pub(super) name: String,
    pub(super) tenant: String,
    pub(super) csrf: String,
    /// No credential is required here, so that the signed-in user is a name alone.
    pub(super) is_open: bool,
    pub(super) links: Vec<NavigationLink>,
    trace_url: Option<Arc<str>>,
}

/// A link of the navigation.
#[derive(Debug, Clone, Copy)]
pub(super) struct NavigationLink {
    pub(super) path: &'static str,
    pub(super) text: &'static str,
    /// `g` and this letter lead there.
    pub(super) key: char,
    /// Roles that see it: one of these, or an admin.
    pub(super) roles: &'static [Role],
}

impl Frame {
    /// The frame of a user's page, below one of [`LINKS`].
    pub(super) fn new(visitor: &Visitor, at: &'static str, title: impl Into<String>) -> Self {
        let caller = &visitor.known.caller;
        Self {
            title: title.into(),
            at,
            name: caller.name.clone(),
            tenant: caller.tenant.clone(),
            csrf: visitor.csrf.clone(),
            is_open: caller.credential() == callgate_proto::v1::CredentialKind::None,
            links: LINKS.into_iter().filter(|link| visitor.may_open(link)).collect(),
            trace_url: visitor.trace_url.clone(),
        }
    }

    /// Address of the trace with this id, where one is known and the server has a template.
    pub(super) fn trace(&self, id: &str) -> Option<String> {
        self.trace_url.as_ref().filter(|_| !id.is_empty()).map(|template| template.replace("{trace_id}", id))
    }
}
