//! Effect of a call: its kind, its resource, and the properties of its repetition.

use std::fmt;

use super::{closed_set::closed_set, ids::Invalid, json::Json};

closed_set! {
    /// The kind of an effect. `Unknown` is the default: guessing from names was wrong too often on recorded calls.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum EffectKind {
        /// Not declared.
        #[default]
        Unknown = "unknown",
        /// Reads, and changes nothing.
        Read = "read",
        /// Changes its resource.
        Write = "write",
        /// Reads repeatedly something that changes by itself.
        Poll = "poll",
        /// Reads by running something (tests, a compiler): changes nothing that others read, and is worth repeating
        /// only after a change.
        Check = "check",
    }
}

impl EffectKind {
    /// True for declared reads of any kind.
    #[must_use]
    pub const fn is_look(self) -> bool {
        matches!(self, Self::Read | Self::Poll | Self::Check)
    }
}

/// Path-like name of a resource: `order/42`. Two overlap when one is a prefix of the other, by whole segments.
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

    /// True for one named resource (`order/42`), not a type (`invoice`) or an open path (`order/`).
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

/// Resource template with placeholders for arguments: `order/{order_id}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceTemplate(Vec<TemplateSegment>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum TemplateSegment {
    Text(String),
    Field(String),
}

impl fmt::Display for ResourceTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| match part {
            TemplateSegment::Text(text) => f.write_str(text),
            TemplateSegment::Field(name) => write!(f, "{{{name}}}"),
        })
    }
}

impl ResourceTemplate {
    /// The arguments of its placeholders, in order. Empty for a resource type.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            TemplateSegment::Text(_) => None,
            TemplateSegment::Field(name) => Some(name.as_str()),
        })
    }

    /// Parses a template; a placeholder names a top-level argument.
    ///
    /// # Errors
    /// [`Invalid`] naming `field` for an empty template or an unbalanced brace.
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
            parts.push(TemplateSegment::Text(text.to_owned()));
            parts.push(TemplateSegment::Field(name.to_owned()));
            rest = after;
        }
        if rest.contains('}') {
            return Err(Invalid::new(field, format!("has a '}}' without its '{{': {template:?}")));
        }
        parts.push(TemplateSegment::Text(rest.to_owned()));
        Ok(Self(parts))
    }

    /// The resource of these arguments. It ends before the first placeholder without a value, and so overlaps with
    /// every value of it.
    #[must_use]
    pub fn fill(&self, arguments: &Json) -> Resource {
        let mut path = String::new();
        for part in &self.0 {
            match part {
                TemplateSegment::Text(text) => path.push_str(text),
                TemplateSegment::Field(name) => match arguments.get(name) {
                    Some(Json::String(text)) => path.push_str(text),
                    Some(Json::Null) | None => break,
                    Some(other) => path.push_str(&other.canonical()),
                },
            }
        }
        Resource(path.into())
    }
}

/// Scope of duplicate protection: the sessions among which an effect is not repeated.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum DuplicateScope {
    /// A call tree.
    #[default]
    Tree,
    /// All sessions of one agent.
    Agent,
    /// All sessions of the tenant.
    Tenant,
}

impl DuplicateScope {
    /// Every share, in the order of its stored code.
    pub const ALL: [Self; 3] = [Self::Tree, Self::Agent, Self::Tenant];
}

/// Freshness: how long a previous result of a declared read can replace a new one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Freshness {
    /// The policy's default.
    #[default]
    Usual,
    /// Milliseconds. With 0 every call is executed, unless a witness shows that nothing has changed.
    For(u64),
    /// Until this call tree writes the resource; there is no other writer.
    BySession,
    /// Forever: the resource is immutable.
    Always,
}

/// Effect of one call, with its arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effect {
    /// Kind.
    pub kind: EffectKind,
    /// Resource. Absent: any.
    pub resource: Option<Resource>,
    /// A write whose repetition does harm: a payment, a message.
    pub once: bool,
    /// A write whose repetition is harmless.
    pub idempotent: bool,
    /// A write whose provider honors the idempotency key.
    pub key_honoured: bool,
    /// A write whose identical repetition is intended: scroll, append, take from a queue.
    pub repeatable: bool,
    /// Executed in steps, like a line of a shell: a failure does not exclude partial effects.
    pub in_steps: bool,
    /// Scope of duplicate protection; the tenant, for `once`.
    pub share: DuplicateScope,
}

impl Effect {
    /// True for effects with a ledger row. Declared repeatable ones have none.
    #[must_use]
    pub fn is_in_ledger(&self) -> bool {
        !self.repeatable && (self.kind == EffectKind::Write || self.share != DuplicateScope::Tree)
    }

    /// True for a write whose failure leaves open whether it happened, where that matters.
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        self.kind == EffectKind::Write && !self.idempotent
    }

    /// True for effects that may exist after a failure: of a write, or an undeclared call.
    #[must_use]
    pub fn may_have_acted(&self) -> bool {
        !self.kind.is_look() && !self.idempotent
    }

    /// True for a write whose second execution would be a second change. A provider that honors the idempotency key
    /// prevents that if the execution received it (`key_sent`).
    #[must_use]
    pub fn is_unsafe_to_repeat(&self, key_sent: bool) -> bool {
        self.may_have_happened() && !(self.key_honoured && key_sent)
    }

    /// True for a write of one named resource (`order/42`).
    #[must_use]
    pub fn writes_a_named_thing(&self) -> bool {
        self.kind == EffectKind::Write && self.resource.as_ref().is_some_and(Resource::is_named)
    }

    /// True when the resources can be the same; an absent resource is any.
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
