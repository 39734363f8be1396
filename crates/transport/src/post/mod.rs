//! Posting from the host.
#![allow(dead_code)]

#[cfg(test)]
mod model;
pub(crate) mod protocol;
pub(crate) mod word;
