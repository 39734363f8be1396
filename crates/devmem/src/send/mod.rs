//! Sending without copies: which sends the network still reads.

mod ledger;
mod sender;

pub use ledger::{Completion, SendError, Sends};
pub(crate) use sender::Zerocopy;
pub use sender::{Outgoing, ZerocopySender};
