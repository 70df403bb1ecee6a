//! Who a request comes from. Until callers carry credentials it is what they say of themselves in the metadata, never a
//! field of a request: a message that names its own author could not be kept once credentials name them.

use tonic::{Request, Status};

use super::{limits::TEXT_BYTES_MAX, status};

/// The metadata that names the caller.
pub const BY: &str = "callgate-by";

/// Who sends this request.
pub(super) fn of<T>(request: &Request<T>) -> Result<String, Status> {
    let Some(value) = request.metadata().get(BY) else { return Err(status::caller_unknown("is missing")) };
    let name = value.to_str().map(str::trim).unwrap_or_default();
    match name {
        "" => Err(status::caller_unknown("is empty, or has other characters than those of ASCII")),
        name if name.len() > TEXT_BYTES_MAX => {
            Err(status::caller_unknown(&format!("is longer than {TEXT_BYTES_MAX} bytes")))
        }
        name => Ok(name.to_owned()),
    }
}

/// Who sends this request; `otherwise` where it does not say.
pub(super) fn of_or<T>(request: &Request<T>, otherwise: &str) -> Result<String, Status> {
    if request.metadata().contains_key(BY) { of(request) } else { Ok(otherwise.to_owned()) }
}
