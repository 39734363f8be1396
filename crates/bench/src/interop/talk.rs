//! Messages of the two programs over their control connection, one each way a step, so that
//! neither runs ahead.

use crate::interop::case::{Group, Status};
use crate::interop::side::Address;
use crate::rig::talk::{Talk as Connection, Words};
use anyhow::{Result, anyhow};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;
use warpverbs_meet::Listener;

/// The longest wait for the other program.
const LIMIT: Duration = Duration::from_secs(60);

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

/// Bytes and count of each measurement.
pub(crate) type Sizes = Vec<(u32, u32)>;

/// The bytes of an endpoint's handle, and of its memory's.
pub(crate) type Handles = (Vec<u8>, Vec<u8>);

/// The content of a message.
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
            $($variant($part),)*
            /// The sender's part in a step failed, and why.
            Failed(String),
        }

        impl Words for Item {
            const NAME: [u8; 6] = *b"wvintr";
            const VERSION: u16 = 3;
            const PROGRAM: &'static str = "warpverbs-interop";

            fn kind(&self) -> &'static str {
                match self {
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
    Hello(Hello), "hello";
    Next(Next), "group";
    Sizes(Sizes), "sizes";
    Done(()), "done";
    Address(Address), "address";
    Handles(Handles), "handles";
    Statuses(Vec<Status>), "statuses";
    Problems(Vec<String>), "problems";
}

/// The connection to the other program.
pub(crate) struct Talk(Connection<Item>);

impl Talk {
    /// Waits for the other program to connect.
    pub(crate) fn accept(at: SocketAddr) -> Result<Self> {
        Ok(Self(Listener::bind(at)?.accept(LIMIT)?))
    }

    /// Connects to the other program, which may still be starting.
    pub(crate) fn connect(to: SocketAddr) -> Result<Self> {
        Ok(Self(Connection::connect(&to.ip().to_string(), to.port(), LIMIT)?))
    }

    pub(crate) fn send<T: Part>(&mut self, part: T) -> Result<()> {
        Ok(self.0.send(part.wrap())?)
    }

    pub(crate) fn recv<T: Part>(&mut self) -> Result<T> {
        let item = self.0.recv(T::KIND, LIMIT)?;
        T::unwrap(item).map_err(|other| self.0.out_of_turn(other, T::KIND).into())
    }

    /// Both sides bring what they have done, or why they have not; an error of either is one of
    /// both, and leaves them in step. The outer error ends the connection.
    pub(crate) fn step<T: Part>(&mut self, own: Result<T>) -> Result<Result<(T, T)>> {
        self.0.send(match &own {
            Ok(part) => part.clone().wrap(),
            Err(error) => Item::Failed(format!("{error:#}")),
        })?;
        let theirs = match self.0.recv(T::KIND, LIMIT)? {
            Item::Failed(text) => Err(anyhow!("the other side: {text}")),
            item => Ok(T::unwrap(item).map_err(|other| self.0.out_of_turn(other, T::KIND))?),
        };
        Ok(own.and_then(|own| Ok((own, theirs?))))
    }
}
