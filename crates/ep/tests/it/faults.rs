//! Ranks that stop.
