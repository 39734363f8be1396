//! How a request or a receive ended.

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        /// Why a request or a receive failed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
        pub enum Status {
            $($(#[$doc])* #[error($text)] $name,)*
        }

        impl Status {
            /// All of them, in order of their syndromes.
            pub const ALL: &[Status] = &[$(Status::$name),*];

            /// The syndrome byte of an error CQE.
            pub const fn syndrome(self) -> u8 {
                match self {
                    $(Status::$name => $value,)*
                }
            }
        }
    };
}

statuses! {
    /// The message is longer than the receive.
    LocalLength = 0x01, "local length error";
    /// The caller could not read or write its own memory.
    LocalProtection = 0x04, "local protection error";
    /// The connection failed before this was executed.
    Flushed = 0x05, "work request flushed";
    /// The response does not fit the request.
    BadResponse = 0x10, "bad response";
    /// A write with immediate data that its key forbids ends the receive that it would consume.
    LocalAccess = 0x11, "local access error";
    /// The peer refused the request as malformed or not allowed; a receive ends with it if its
    /// message wanted to invalidate a key that may not be.
    RemoteInvalidRequest = 0x12, "remote invalid request";
    /// The peer's key, bounds or rights forbid the access.
    RemoteAccess = 0x13, "remote access error";
    /// The peer failed on its own.
    RemoteOperation = 0x14, "remote operation error";
    /// No answer after all retries.
    RetryExceeded = 0x15, "transport retries exceeded";
    /// The peer had no receive posted after all retries.
    RnrRetryExceeded = 0x16, "receiver-not-ready retries exceeded";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syndromes_ascend_and_differ() {
        assert!(Status::ALL.is_sorted_by(|a, b| a.syndrome() < b.syndrome()));
        assert_eq!(Status::RetryExceeded.syndrome(), 0x15);
        assert_eq!(Status::RnrRetryExceeded.syndrome(), 0x16);
        assert_eq!(Status::Flushed.syndrome(), 0x05);
    }
}
