//! What a call does to the world.

use std::fmt;

use super::{ids::Invalid, json::Json};

/// The kind of an effect. `Unknown` is the default: guessing from names was wrong too often on recorded calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EffectKind {
    /// Nobody declared it.
    #[default]
    Unknown,
    /// Looks, and changes nothing.
    Read,
    /// Changes its resource.
    Write,
    /// Looks again and again at something that changes by itself.
    Poll,
    /// Looks by running something (tests, a compiler): it changes nothing that others read, and its repetition is worth
    /// little unless something changed.
    Check,
}

impl EffectKind {
    /// Every kind, in the order of its stored code.
    pub const ALL: [Self; 5] = [Self::Unknown, Self::Read, Self::Write, Self::Poll, Self::Check];

    /// True for what is declared to look, and to change nothing.
    #[must_use]
    pub const fn is_look(self) -> bool {
        matches!(self, Self::Read | Self::Poll | Self::Check)
    }

    /// The name used in the policy file and in SQL.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Read => "read",
            Self::Write => "write",
            Self::Poll => "poll",
            Self::Check => "check",
        }
    }
}

/// A path-like name of a thing in the world: `order/42`. Two overlap when one is a prefix of the other, by whole parts.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Resource(Box<str>);

impl Resource {
    /// The resource of that path.
    #[must_use]
    pub fn new(path: impl Into<String>) -> Self {
        Self(path.into().into())
    }

    /// The path.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True for the name of one thing (`order/42`), not of a kind (`invoice`) or of something left open (`order/`).
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.0.rsplit_once('/').is_some_and(|(kind, identity)| !kind.is_empty() && !identity.is_empty())
    }

    /// True when changing one may change the other.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        let mut mine = self.0.split('/').filter(|part| !part.is_empty());
        let mut theirs = other.0.split('/').filter(|part| !part.is_empty());
        loop {
            match (mine.next(), theirs.next()) {
                (Some(a), Some(b)) if a == b => {}
                (Some(_), Some(_)) => return false,
                _ => return true,
            }
        }
    }
}

/// A resource with holes for arguments: `order/{order_id}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceTemplate(Vec<Part>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Field(String),
}

impl fmt::Display for ResourceTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| match part {
            Part::Text(text) => f.write_str(text),
            Part::Field(name) => write!(f, "{{{name}}}"),
        })
    }
}

impl ResourceTemplate {
    /// The arguments that fill its holes, in their order. None: it names a type, and no thing of that type.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Field(name) => Some(name.as_str()),
        })
    }

    /// Reads a template; a hole names a top-level argument.
    ///
    /// # Errors
    /// [`Invalid`] naming `field` for an empty template or a brace without its partner.
    pub fn parse(field: &str, template: &str) -> Result<Self, Invalid> {
        if template.is_empty() {
            return Err(Invalid::new(field, "is empty"));
        }
        let mut parts = Vec::new();
        let mut rest = template;
        while let Some((text, hole)) = rest.split_once('{') {
            let Some((name, after)) = hole.split_once('}') else {
                return Err(Invalid::new(field, format!("has a '{{' without its '}}': {template:?}")));
            };
            parts.push(Part::Text(text.to_owned()));
            parts.push(Part::Field(name.to_owned()));
            rest = after;
        }
        if rest.contains('}') {
            return Err(Invalid::new(field, format!("has a '}}' without its '{{': {template:?}")));
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Self(parts))
    }

    /// The resource these arguments touch. It ends before the first hole that they leave open, and so overlaps with
    /// everything that hole could have named.
    #[must_use]
    pub fn fill(&self, arguments: &Json) -> Resource {
        let mut path = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => path.push_str(text),
                Part::Field(name) => match arguments.get(name) {
                    Some(Json::String(text)) => path.push_str(text),
                    Some(Json::Null) | None => break,
                    Some(other) => path.push_str(&other.canonical()),
                },
            }
        }
        Resource(path.into())
    }
}

/// Who shares what a call has done, so that nobody among them does it again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Share {
    /// A call tree.
    #[default]
    Tree,
    /// All sessions of one agent.
    Agent,
    /// All sessions of the tenant.
    Tenant,
}

impl Share {
    /// Every share, in the order of its stored code.
    pub const ALL: [Self; 3] = [Self::Tree, Self::Agent, Self::Tenant];
}

/// How long an earlier answer of a declared read stands in for another.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Fresh {
    /// As the policy says in general.
    #[default]
    Usual,
    /// So many milliseconds. With 0 it is read anew each time, unless a witness shows that nothing has changed.
    For(u64),
    /// Until this call tree writes what it reads: nobody else does.
    BySession,
    /// For good: what it reads never changes.
    Always,
}

/// What one call does to the world, after its arguments were looked at.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effect {
    /// Reads, writes, polls, or nobody knows.
    pub kind: EffectKind,
    /// What it touches. Absent: anything.
    pub resource: Option<Resource>,
    /// A write whose repetition harms: a payment, a message.
    pub once: bool,
    /// A write whose repetition is harmless.
    pub idempotent: bool,
    /// A write whose provider honours the idempotency key.
    pub key_honoured: bool,
    /// A write whose identical repetition is meant: scroll, append, take from a queue.
    pub repeatable: bool,
    /// It is done in steps, as a line of a shell: that it failed does not say that nothing was done.
    pub in_steps: bool,
    /// Who shares it; the tenant, for `once`.
    pub share: Share,
}

impl Effect {
    /// True for what has a row in the ledger. What is meant to be repeated is never looked up there.
    #[must_use]
    pub fn is_in_ledger(&self) -> bool {
        !self.repeatable && (self.kind == EffectKind::Write || self.share != Share::Tree)
    }

    /// True for a write that may have happened although it failed, and of which that matters.
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        self.kind == EffectKind::Write && !self.idempotent
    }

    /// True for what may have been done although it failed: a write, or what nobody has declared.
    #[must_use]
    pub fn may_have_acted(&self) -> bool {
        !self.kind.is_look() && !self.idempotent
    }

    /// True for a write whose double execution would be a second change: nobody downstream knows it again. Its provider
    /// does where it honours the idempotency key, and the execution `key_sent` received that.
    #[must_use]
    pub fn is_unsafe_to_repeat(&self, key_sent: bool) -> bool {
        self.may_have_happened() && !(self.key_honoured && key_sent)
    }

    /// True for a write of one named thing (`order/42`).
    #[must_use]
    pub fn writes_a_named_thing(&self) -> bool {
        self.kind == EffectKind::Write && self.resource.as_ref().is_some_and(Resource::is_named)
    }

    /// True when the resources of the two may be one thing; an absent resource is any.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        match (&self.resource, &other.resource) {
            (Some(a), Some(b)) => a.overlaps(b),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_overlap_by_whole_parts() {
        let overlap = |a: &str, b: &str| Resource::new(a).overlaps(&Resource::new(b));
        assert!(overlap("order/4", "order/4/items"));
        assert!(overlap("order/", "order/4"));
        assert!(!overlap("order/4", "order/42"));
        assert!(!overlap("order/4", "invoice/4"));
    }

    #[test]
    fn an_open_hole_widens_the_resource() {
        let template = ResourceTemplate::parse("resource", "order/{order_id}/lines").expect("valid");
        let fill = |text| template.fill(&super::super::json::parse(text).expect("valid"));
        assert_eq!(fill(r#"{"order_id":42}"#).as_str(), "order/42/lines");
        assert_eq!(fill("{}").as_str(), "order/");
        assert_eq!(template.to_string(), "order/{order_id}/lines");
        assert_eq!(template.fields().collect::<Vec<_>>(), ["order_id"]);
        assert!(ResourceTemplate::parse("resource", "order/{id").is_err());
        assert!(ResourceTemplate::parse("resource", "order/id}").is_err());
    }
}
