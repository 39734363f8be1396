//! Sending without copies: which sends the network still reads.

mod ledger;
mod sender;

pub use ledger::{Completion, SendError, Sends};
pub use sender::{Outgoing, Zerocopy};
