//! How work requests and receives end.

use crate::Rkey;
use core::fmt;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        /// How a work request ended: the values of `enum ibv_wc_status`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        #[doc(alias = "ibv_wc_status")]
        pub enum Status {
            $($(#[$doc])* $name,)*
            /// A value without a name here, or one of transports that are not used.
            Unknown(u32),
        }

        impl Status {
            /// Every named status, in order of its value.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The status of a value of `enum ibv_wc_status`.
            #[inline]
            pub const fn from_value(value: u32) -> Self {
                match value {
                    $($value => Self::$name,)*
                    other => Self::Unknown(other),
                }
            }

            /// The value in `enum ibv_wc_status`.
            #[inline]
            pub const fn value(self) -> u32 {
                match self {
                    $(Self::$name => $value,)*
                    Self::Unknown(value) => value,
                }
            }
        }

        impl fmt::Display for Status {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$name => f.write_str($text),)*
                    Self::Unknown(value) => write!(f, "unknown status {value}"),
                }
            }
        }
    };
}

statuses! {
    /// It succeeded.
    #[default]
    Success = 0, "success";
    /// A message was longer than allowed, or than its receive.
    LocalLength = 1, "local length error";
    /// The QP cannot execute the request, or the request is malformed.
    LocalQpOperation = 2, "local QP operation error";
    /// A local key, its bounds or its rights forbid the access.
    LocalProtection = 4, "local protection error";
    /// The QP failed, or was moved to ERR, before this was executed.
    Flushed = 5, "work request flushed";
    /// A memory window could not be bound.
    WindowBind = 6, "memory window bind error";
    /// The response does not fit the request.
    BadResponse = 7, "bad response";
    /// The peer's access to local memory was refused; reported with a receive.
    LocalAccess = 8, "local access error";
    /// The peer refused the request as malformed or not allowed.
    RemoteInvalidRequest = 9, "remote invalid request";
    /// The peer's key, its bounds or its rights forbid the access.
    RemoteAccess = 10, "remote access error";
    /// The peer could not execute the request.
    RemoteOperation = 11, "remote operation error";
    /// No response after all retries.
    RetryExceeded = 12, "transport retries exceeded";
    /// The peer had no receive posted, after all retries.
    RnrRetryExceeded = 13, "receiver-not-ready retries exceeded";
    /// The peer aborted the operation.
    RemoteAborted = 16, "remote aborted";
    /// The device failed.
    Fatal = 19, "fatal device error";
    /// A response came too late.
    ResponseTimeout = 20, "response timeout";
    /// None of the others.
    General = 21, "general error";
}

impl core::error::Error for Status {}

/// How a message arrived, and what it delivered besides its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ReceivedKind {
    /// SEND.
    #[default]
    Send,
    /// SEND with immediate data.
    SendImm(u32),
    /// SEND that invalidated this key of the receiver.
    SendInvalidate(Rkey),
    /// RDMA WRITE with immediate data; the bytes are where the writer put them.
    WriteImm(u32),
}

impl ReceivedKind {
    /// Whether the bytes are in the receive's own memory.
    #[inline]
    pub const fn fills_receive(self) -> bool {
        !matches!(self, Self::WriteImm(_))
    }
}

/// A work request or a receive that is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// As it was posted.
    pub id: u64,
    /// How it ended. After a failure, only `id` and `vendor` are valid besides.
    pub status: Status,
    /// The device's own code of a failure, without a public meaning.
    pub vendor: u32,
    /// Bytes of the message, if it is a receive.
    pub byte_len: u32,
    /// How the message arrived, if it is a receive.
    pub kind: ReceivedKind,
}

/// A kind of work queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueKind {
    /// A QP's send queue.
    Send,
    /// A QP's receive queue.
    Receive,
    /// A shared receive queue.
    Shared,
}

impl fmt::Display for QueueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Shared => "shared receive",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn values_and_words_of_statuses_come_back() {
        for value in 0..40 {
            let status = Status::from_value(value);
            assert_eq!(status.value(), value);
            let named = !matches!(status, Status::Unknown(_));
            assert_eq!(Status::ALL.contains(&status), named, "{value}");
            assert_eq!(status.to_string().contains("unknown"), !named);
        }
        assert_eq!(Status::ALL.len(), 17);
    }
}
