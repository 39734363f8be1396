//! How requests end.

use warpverbs_mlx5::syndrome::Syndrome;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $value:literal => $syndrome:expr;)*) => {
        /// How a request ended: the values of `enum ibv_wc_status`.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum ProxyStatus {
            $($(#[$doc])* $name,)*
            /// A value without a name here.
            Other(u32),
        }

        impl ProxyStatus {
            /// Every named status, in order of its value.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The status of a number in `ibv_wc`.
            pub const fn from_value(value: u32) -> Self {
                match value {
                    $($value => Self::$name,)*
                    other => Self::Other(other),
                }
            }

            /// The number in `ibv_wc`.
            pub const fn value(self) -> u32 {
                match self {
                    $(Self::$name => $value,)*
                    Self::Other(value) => value,
                }
            }

            /// The syndrome from which a library for mlx5 makes this status. One that mlx5 has no
            /// syndrome for is told as `0xc0` and the status, so that none is lost; `None` is
            /// success.
            pub const fn syndrome(self) -> Option<Syndrome> {
                let named: Option<Syndrome> = match self {
                    $(Self::$name => $syndrome,)*
                    Self::Other(_) => None,
                };
                match (self, named) {
                    (Self::Success, _) => None,
                    (_, None) => Some(Syndrome::Unknown(0xc0 | (self.value() & 0x3f) as u8)),
                    (_, some) => some,
                }
            }
        }
    };
}

statuses! {
    /// It succeeded.
    #[default]
    Success = 0 => None;
    /// `LOC_LEN_ERR`.
    LocalLength = 1 => Some(Syndrome::LocalLength);
    /// `LOC_QP_OP_ERR`.
    LocalQpOp = 2 => Some(Syndrome::LocalQpOp);
    /// `LOC_EEC_OP_ERR`.
    LocalEecOp = 3 => None;
    /// `LOC_PROT_ERR`.
    LocalProtection = 4 => Some(Syndrome::LocalProt);
    /// `WR_FLUSH_ERR`.
    Flushed = 5 => Some(Syndrome::WrFlush);
    /// `MW_BIND_ERR`.
    WindowBind = 6 => Some(Syndrome::MwBind);
    /// `BAD_RESP_ERR`.
    BadResponse = 7 => Some(Syndrome::BadResp);
    /// `LOC_ACCESS_ERR`.
    LocalAccess = 8 => Some(Syndrome::LocalAccess);
    /// `REM_INV_REQ_ERR`.
    RemoteInvalidRequest = 9 => Some(Syndrome::RemoteInvalReq);
    /// `REM_ACCESS_ERR`.
    RemoteAccess = 10 => Some(Syndrome::RemoteAccess);
    /// `REM_OP_ERR`.
    RemoteOperation = 11 => Some(Syndrome::RemoteOp);
    /// `RETRY_EXC_ERR`.
    RetryExceeded = 12 => Some(Syndrome::TransportRetryExc);
    /// `RNR_RETRY_EXC_ERR`.
    RnrRetryExceeded = 13 => Some(Syndrome::RnrRetryExc);
    /// `LOC_RDD_VIOL_ERR`.
    LocalRddViolation = 14 => None;
    /// `REM_INV_RD_REQ_ERR`.
    RemoteInvalidRdRequest = 15 => None;
    /// `REM_ABORT_ERR`.
    RemoteAborted = 16 => Some(Syndrome::RemoteAborted);
    /// `INV_EECN_ERR`.
    InvalidEecn = 17 => None;
    /// `INV_EEC_STATE_ERR`.
    InvalidEecState = 18 => None;
    /// `FATAL_ERR`.
    Fatal = 19 => None;
    /// `RESP_TIMEOUT_ERR`.
    ResponseTimeout = 20 => None;
    /// `GENERAL_ERR`.
    General = 21 => None;
    /// `TM_ERR`.
    TagMatching = 22 => None;
    /// `TM_RNDV_INCOMPLETE`.
    TagRendezvousIncomplete = 23 => None;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_has_a_syndrome_of_its_own() {
        let all = ProxyStatus::ALL;
        assert_eq!(all.len(), 24);
        let mut seen = Vec::new();
        for (value, &status) in all.iter().enumerate() {
            assert_eq!(status.value(), value as u32);
            assert_eq!(ProxyStatus::from_value(value as u32), status);
            seen.extend(status.syndrome().map(Syndrome::value));
        }
        assert_eq!(seen.len(), 23, "only success has none");
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), 23);
        assert_eq!(ProxyStatus::from_value(99), ProxyStatus::Other(99));
        assert_eq!(ProxyStatus::Other(99).syndrome(), Some(Syndrome::Unknown(0xe3)));
    }
}
