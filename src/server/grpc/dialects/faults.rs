//! Faults of JSON bodies: the field by its path in the contract, the fault, and the allowed values.

use prost_reflect::{DeserializeOptions, DynamicMessage, FieldDescriptor, Kind, MessageDescriptor};
use serde_path_to_error::{Segment, Track};

use crate::grpc::{malformed::MalformedField, status::clip_text};

/// A field outside the contract is a fault.
pub(super) const OPTIONS: DeserializeOptions = DeserializeOptions::new().deny_unknown_fields(true);
/// Beginning of the decoder's error about such a field, before its name and an apostrophe.
const UNKNOWN: &str = "unrecognized field name '";

/// The fault of a body that is no message `takes`. Reads the body a second time, since a path costs more than the
/// message.
pub(super) fn find_fault(takes: &MessageDescriptor, json: &[u8]) -> MalformedField {
    let (mut text, mut track) = (serde_json::Deserializer::from_slice(json), Track::new());
    let tracked = serde_path_to_error::Deserializer::new(&mut text, &mut track);
    let read = DynamicMessage::deserialize_with_options(takes.clone(), tracked, &OPTIONS);
    let Err(error) = read.and_then(|_| text.end()) else {
        return MalformedField::new("body", "cannot be read");
    };
    let place = if error.is_data() { FieldPath::of(takes, track) } else { FieldPath::body(takes) };
    let error = error.to_string();
    match error.strip_prefix(UNKNOWN).and_then(|rest| rest.rsplit_once('\'')) {
        Some((name, _)) => place.unknown_field(name),
        None => place.wrong_value(&error),
    }
}

/// A place in a message.
struct FieldPath {
    /// As a path in the request: `call.arguments_json`; empty for the body.
    path: String,
    /// The field there.
    field: Option<FieldDescriptor>,
    /// The message there, or around it.
    message: MessageDescriptor,
}

impl FieldPath {
    fn body(takes: &MessageDescriptor) -> Self {
        Self { path: String::new(), field: None, message: takes.clone() }
    }

    fn of(takes: &MessageDescriptor, track: Track) -> Self {
        let mut place = Self::body(takes);
        for segment in &track.path() {
            match segment {
                Segment::Map { key } => place.enter(key),
                Segment::Seq { index } => place.path.push_str(&format!("[{index}]")),
                Segment::Enum { .. } | Segment::Unknown => {}
            }
        }
        place
    }

    /// Goes on to a field by either of its names.
    fn enter(&mut self, key: &str) {
        let field = self.message.get_field_by_json_name(key).or_else(|| self.message.get_field_by_name(key));
        self.path = self.with(field.as_ref().map_or(key, |field| field.name()));
        if let Some(Kind::Message(message)) = field.as_ref().map(FieldDescriptor::kind) {
            self.message = message;
        }
        self.field = field;
    }

    fn with(&self, name: &str) -> String {
        let name = clip_text(name);
        if self.path.is_empty() { name } else { format!("{}.{name}", self.path) }
    }

    fn unknown_field(&self, name: &str) -> MalformedField {
        let known: Vec<String> = self.message.fields().map(|field| field.json_name().to_owned()).collect();
        let has = if known.is_empty() { "no fields".to_owned() } else { known.join(", ") };
        MalformedField::new(self.with(name), format!("is no field of {}, which has {has}", self.message.name()))
    }

    fn wrong_value(&self, error: &str) -> MalformedField {
        let error = clip_text(error);
        match self.field.as_ref().map(FieldDescriptor::kind) {
            _ if self.path.is_empty() => {
                MalformedField::new("body", format!("is no {} in JSON: {error}", self.message.name()))
            }
            Some(Kind::Enum(set)) => {
                let members = set.values().filter(|member| member.number() != 0);
                let allowed: Vec<String> = members.map(|member| member.name().to_owned()).collect();
                MalformedField::new(&*self.path, format!("must be one of {}: {error}", allowed.join(", ")))
            }
            _ => MalformedField::new(&*self.path, format!("has a value of another kind: {error}")),
        }
    }
}
