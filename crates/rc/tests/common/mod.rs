//! Two connections, memory and receives for each, and links between them, under a virtual clock.
#![allow(dead_code, reason = "each test binary uses a part")]

pub(crate) mod host;
pub(crate) mod link;
pub(crate) mod pair;
pub(crate) mod peer;
