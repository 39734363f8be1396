//! libibverbs as it is: declarations, and its functions loaded at run time.
//!
//! [`bindings`](self) comes from bindgen and holds types, constants and the signatures of exported
//! functions; nothing is linked. [`Api`] holds the functions, found with the symbol versions that
//! rdma-core promises to keep. Functions that the header defines inline are in `inline.rs`.

mod api;
// Generated; the names and their style are the header's.
#[allow(
    missing_docs,
    unreachable_pub,
    non_camel_case_types,
    non_upper_case_globals,
    non_snake_case,
    dead_code,
    clippy::all,
    clippy::undocumented_unsafe_blocks
)]
mod bindings;
mod inline;
mod zeroed;

pub use api::{Api, LoadFailure};
pub(crate) use api::{find, functions, open};
pub use bindings::*;
pub(crate) use inline::extension_op;
pub use inline::*;
pub use zeroed::{Plain, zeroed};
