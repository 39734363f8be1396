//! Messages of the two programs over their control connection, one each way a step, so that
//! neither runs ahead.

use crate::interop::case::{Group, Status};
use crate::interop::side::Address;
use crate::rig::talk::{self, Words};
use anyhow::{Result, anyhow};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The longest wait for the other program.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A program's description of its NIC.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) nic: String,
    /// Its ability as a responder, see [`Traits`](crate::interop::case::Traits).
    pub(crate) invalidates: bool,
    pub(crate) rxe: bool,
    pub(crate) kernels: bool,
}

/// The next group, and whether the program that gets this posts the work; `None` is the end.
pub(crate) type Next = Option<(bool, Group)>;

/// A side's part in a step.
pub(crate) trait Part: Clone {
    const KIND: &'static str;
    fn wrap(self) -> Item;
    fn unwrap(item: Item) -> Result<Self, Item>;
}

macro_rules! items {
    ($($variant:ident($part:ty), $kind:literal;)*) => {
        /// A message.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        pub(crate) enum Item {
            Hello(Hello),
            Next(Next),
            $($variant($part),)*
            /// The sender's part in a step failed, and why.
            Failed(String),
        }

        impl Words for Item {
            const NAME: [u8; 6] = *b"wvintr";
            const VERSION: u16 = 4;
            const PROGRAM: &'static str = "warpverbs-interop";

            fn kind(&self) -> &'static str {
                match self {
                    Self::Hello(_) => "hello",
                    Self::Next(_) => "group",
                    $(Self::$variant(_) => $kind,)*
                    Self::Failed(_) => "failure",
                }
            }
        }

        $(impl Part for $part {
            const KIND: &'static str = $kind;

            fn wrap(self) -> Item {
                Item::$variant(self)
            }

            fn unwrap(item: Item) -> Result<Self, Item> {
                match item {
                    Item::$variant(part) => Ok(part),
                    other => Err(other),
                }
            }
        })*
    };
}

items! {
    Done(()), "done";
    Address(Address), "address";
    Statuses(Vec<Status>), "statuses";
    Problems(Vec<String>), "problems";
}

/// The connection to the other program.
pub(crate) type Talk = talk::Talk<Item>;

/// Both sides bring what they have done, or why they have not; an error of either is one of both, and
/// leaves them in step. The outer error ends the connection.
pub(crate) fn step<T: Part>(talk: &mut Talk, own: Result<T>) -> Result<Result<(T, T)>> {
    talk.send(match &own {
        Ok(part) => part.clone().wrap(),
        Err(error) => Item::Failed(format!("{error:#}")),
    })?;
    let theirs = match talk.recv(T::KIND, LIMIT)? {
        Item::Failed(text) => Err(anyhow!("the other side: {text}")),
        item => Ok(T::unwrap(item).map_err(|other| talk.out_of_turn(other, T::KIND))?),
    };
    Ok(own.and_then(|own| Ok((own, theirs?))))
}
