//! Messages, one-sided writes and reads, and notifications over several TCP sockets.

pub mod protocol;
