//! The only place with unsafe code: launches of the kernel that unpacks, and system calls without
//! a safe wrapper.

#![allow(unsafe_code)]

mod kernels {
    #![allow(unreachable_pub)]
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}
mod ring;
mod rxnfc;
mod socket;
mod udmabuf;

pub use ring::UNPACK_IMAGE;
pub(crate) use ring::{MOST_EACH, Resolved, Ring, Started};
pub(crate) use rxnfc::{FlowSpec, Rxnfc, rxnfc};
pub(crate) use socket::{next_error, receive, send_dmabuf, send_zerocopy, set_option};
pub(crate) use udmabuf::udmabuf;
