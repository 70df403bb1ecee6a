//! Bound on the bytes of large requests at work or waiting. All other bounds count requests, and four thousand of the
//! largest would be sixteen gigabytes.

use std::sync::Arc;

use prost::Message;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use super::{
    limits::{LARGE_BYTES_MAX, LARGE_FROM_BYTES},
    status,
};

/// Remaining bytes for large requests. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct LargeMessageLimit(Arc<Semaphore>);

impl Default for LargeMessageLimit {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LARGE_BYTES_MAX)))
    }
}

impl LargeMessageLimit {
    /// Room for a request until the returned permit is dropped; a small one needs none.
    ///
    /// # Errors
    /// `OVERLOADED` while others have it all.
    pub(super) fn hold(&self, request: &impl Message) -> Result<Option<OwnedSemaphorePermit>, Status> {
        let bytes = request.encoded_len();
        if bytes < LARGE_FROM_BYTES {
            return Ok(None);
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        Arc::clone(&self.0).try_acquire_many_owned(bytes).map(Some).map_err(|_| status::too_large_together())
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;
    use crate::grpc::limits::MESSAGE_BYTES_MAX;
    use callgate_proto::v1;

    #[test]
    fn large_requests_have_room_for_so_many_bytes_and_small_ones_always() {
        let large = LargeMessageLimit::default();
        let of = |bytes: usize| v1::RecordRequest { result: Some("x".repeat(bytes)), ..Default::default() };
        let (largest, small) = (of(MESSAGE_BYTES_MAX - 100), of(LARGE_FROM_BYTES - 100));
        let mut held = Vec::new();
        while let Ok(place) = large.hold(&largest) {
            held.push(place.expect("it is large"));
        }
        assert_eq!(held.len(), LARGE_BYTES_MAX / MESSAGE_BYTES_MAX);
        assert_eq!(large.hold(&largest).unwrap_err().code(), Code::ResourceExhausted);
        assert!(large.hold(&small).expect("room").is_none());
        held.pop();
        assert!(large.hold(&largest).is_ok());
    }
}
