//! The transport crate's posting protocol: the very files.
#![allow(dead_code, unused_imports, unused_macros)]

#[path = "../../transport/src/post/protocol.rs"]
pub(crate) mod protocol;
#[path = "../../transport/src/post/word.rs"]
pub(crate) mod word;
