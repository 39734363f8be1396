//! The only place with unsafe code: system calls without a safe wrapper.

#![allow(unsafe_code)]

mod message;
mod rxnfc;
mod socket;
pub mod stream;
mod udmabuf;

pub(crate) use rxnfc::{FlowSpec, Rxnfc, rxnfc};
pub(crate) use socket::{next_error, receive, send_dmabuf, send_zerocopy, set_option};
pub(crate) use udmabuf::udmabuf;
