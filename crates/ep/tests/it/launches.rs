//! The host's side.
