//! The messages of each method, by the contract's descriptors, and their JSON.

use std::{collections::BTreeMap, sync::Arc};

use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, MethodDescriptor, SerializeOptions};
use tonic::Status;

use super::faults;
use callgate_proto::v1;

/// All methods, by their path.
#[derive(Debug, Clone)]
pub(super) struct MethodMessages(Arc<BTreeMap<String, Method>>);

/// Message types of a method's request and response.
#[derive(Debug, Clone)]
pub(super) struct Method {
    takes: MessageDescriptor,
    gives: MessageDescriptor,
    /// True where several messages go one way.
    pub(super) streams: bool,
}

impl From<MethodDescriptor> for Method {
    fn from(method: MethodDescriptor) -> Self {
        let streams = method.is_client_streaming() || method.is_server_streaming();
        Self { takes: method.input(), gives: method.output(), streams }
    }
}

impl MethodMessages {
    /// Those of the contract.
    pub(super) fn new() -> Self {
        let pool = DescriptorPool::decode(v1::DESCRIPTORS).unwrap_or_default();
        let services: Vec<_> = pool.services().collect();
        let methods = services.iter().flat_map(|service| service.methods());
        let by_path = methods.map(|method| {
            let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
            (path, method.into())
        });
        Self(Arc::new(by_path.collect()))
    }

    /// The method of a path.
    pub(super) fn of(&self, path: &str) -> Option<Method> {
        self.0.get(path).cloned()
    }
}

impl Method {
    /// A request in JSON as bytes of protobuf. An empty body is an empty request.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` with the field at fault; a field outside the contract is one.
    pub(super) fn request(&self, json: &[u8]) -> Result<Vec<u8>, Status> {
        let json = if json.iter().all(u8::is_ascii_whitespace) { b"{}" } else { json };
        let mut text = serde_json::Deserializer::from_slice(json);
        let read = DynamicMessage::deserialize_with_options(self.takes.clone(), &mut text, &faults::OPTIONS);
        let message = read.and_then(|message| text.end().map(|()| message));
        Ok(message.map_err(|_| faults::find_fault(&self.takes, json))?.encode_to_vec())
    }

    /// An answer in JSON.
    ///
    /// # Errors
    /// A message without a form in JSON.
    pub(super) fn answer(&self, bytes: &[u8]) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
        let message = DynamicMessage::decode(self.gives.clone(), bytes)?;
        let mut json = Vec::with_capacity(2 * bytes.len());
        let options = SerializeOptions::new();
        message.serialize_with_options(&mut serde_json::Serializer::new(&mut json), &options)?;
        Ok(json)
    }
}
