//! Attributes of a connection.

use core::time::Duration;

use warpverbs_wire::{Mtu, Psn, Qpn, RnrTimer};

/// Timeout of acknowledgements, as a code of 5 bits: 4.096 µs × 2^code; 0 is never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckTimeout(u8);

impl AckTimeout {
    /// No timeout.
    pub const NEVER: AckTimeout = AckTimeout(0);

    /// The timeout of a code, or `None` above 31.
    pub const fn from_code(code: u8) -> Option<AckTimeout> {
        if code < 32 { Some(AckTimeout(code)) } else { None }
    }

    /// The code, 0 to 31.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time, or `None` for never.
    pub const fn duration(self) -> Option<Duration> {
        match self.0 {
            0 => None,
            code => Some(Duration::from_nanos(4096 << code)),
        }
    }
}

/// Attributes of a connection. Both ends choose theirs; what must agree says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The peer's queue pair.
    pub dest_qpn: Qpn,
    /// Path MTU; the same at both ends.
    pub mtu: Mtu,
    /// PSN of the first request sent; the peer's [`rq_psn`](Self::rq_psn).
    pub sq_psn: Psn,
    /// PSN of the first request expected; the peer's [`sq_psn`](Self::sq_psn).
    pub rq_psn: Psn,
    /// Time without progress after which requests are sent again.
    //= [exc.exact-timeout]
    pub timeout: AckTimeout,
    /// Times that requests are sent again without progress, 0 to 7.
    pub retry: u8,
    /// Times that a request is sent again to a peer without receive, 0 to 6; 7 is for ever.
    pub rnr_retry: u8,
    /// How long the peer is asked to wait for a receive.
    pub min_rnr_timer: RnrTimer,
    /// READs and atomics outstanding at most; not more than the peer's
    /// [`max_dest_rd_atomic`](Self::max_dest_rd_atomic).
    pub max_rd_atomic: u8,
    /// READs and atomics of the peer that may be outstanding: so many can be replayed.
    pub max_dest_rd_atomic: u8,
    /// Requests posted and not yet polled as completions, at most.
    pub send_depth: u32,
    /// PSNs outstanding at most, those of expected responses included; up to 2^22.
    pub window: u32,
    /// Bytes outstanding at most, those of expected responses included; each packet counts for
    /// [`Config::PACKET_OVERHEAD`] more. One packet, or one READ request, may always go. May be
    /// changed later: [`Connection::limit_bytes`](crate::Connection::limit_bytes).
    pub window_bytes: u64,
    /// A READ is sent as requests of at most this many packets of response, 1 to `window`, so that
    /// the responses outstanding fit the window.
    pub read_chunk: u32,
    /// A WRITE without immediate data of at most this many packets is sent as this many messages of one
    /// packet each, if those before it have shown that its key reaches all of its range; 0 for
    /// none. Full packets are of one length then, which links that carry trains of such make use
    /// of.
    //= [exc.write-split]
    pub write_split: u32,
    /// At the latest every this many request packets an acknowledgement is requested.
    pub ack_interval: u32,
    /// The oldest packet is sent again as soon as clearly more than a round trip, at least this
    /// time, passed without progress. Such resends do not count as retries. `None` waits for
    /// `timeout`.
    pub early_resend: Option<Duration>,
}

impl Config {
    /// A packet's cost for its receiver in addition to payload, about: headers, and the socket
    /// buffer's overhead.
    pub const PACKET_OVERHEAD: u64 = 512;

    /// How long a peer that lives and has no processor is waited for. From then on its silence
    /// counts like that of any other: a stopped process is an error after this time and
    /// (`retry` + 1) timeouts.
    pub const STANDSTILL: Duration = Duration::from_secs(10);

    /// Usual values towards `dest_qpn`: MTU 1024, PSNs from 0, a timeout of 67 ms,
    /// seven retries, receiver-not-ready for ever.
    pub const fn new(dest_qpn: Qpn) -> Config {
        Config {
            dest_qpn,
            mtu: Mtu::B1024,
            sq_psn: Psn::from_low_bits(0),
            rq_psn: Psn::from_low_bits(0),
            timeout: AckTimeout(14),
            retry: 7,
            rnr_retry: 7,
            min_rnr_timer: RnrTimer::from_code(12),
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            send_depth: 256,
            window: 256,
            window_bytes: u64::MAX,
            read_chunk: 64,
            write_split: 0,
            ack_interval: 32,
            early_resend: Some(Duration::from_micros(200)),
        }
    }

    /// Every attribute is within its range.
    ///
    /// # Errors
    /// The first one that is not.
    pub const fn check(&self) -> Result<(), ConfigError> {
        let rows = [
            (Attribute::Retry, self.retry as u32, 0, 7),
            (Attribute::RnrRetry, self.rnr_retry as u32, 0, 7),
            (Attribute::SendDepth, self.send_depth, 1, 1 << 24),
            (Attribute::Window, self.window, 1, 1 << 22),
            (Attribute::ReadChunk, self.read_chunk, 1, self.window),
            (Attribute::AckInterval, self.ack_interval, 1, u32::MAX),
        ];
        let mut row = 0;
        while row < rows.len() {
            let (attribute, found, min, max) = rows[row];
            if found < min || found > max {
                return Err(ConfigError { attribute, found, min, max });
            }
            row += 1;
        }
        Ok(())
    }
}

/// An attribute with a limited range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// [`Config::retry`].
    Retry,
    /// [`Config::rnr_retry`].
    RnrRetry,
    /// [`Config::send_depth`].
    SendDepth,
    /// [`Config::window`].
    Window,
    /// [`Config::read_chunk`].
    ReadChunk,
    /// [`Config::ack_interval`].
    AckInterval,
}

impl core::fmt::Display for Attribute {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Attribute::Retry => "retry",
            Attribute::RnrRetry => "rnr_retry",
            Attribute::SendDepth => "send_depth",
            Attribute::Window => "window",
            Attribute::ReadChunk => "read_chunk",
            Attribute::AckInterval => "ack_interval",
        })
    }
}

/// An attribute out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{attribute} is {found}, expected {min} to {max}")]
pub struct ConfigError {
    /// Which one.
    pub attribute: Attribute,
    /// Its value.
    pub found: u32,
    /// The least it may be.
    pub min: u32,
    /// The most it may be.
    pub max: u32,
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn timeouts_are_those_of_the_specification() {
        let nanos = |code| AckTimeout::from_code(code).and_then(AckTimeout::duration);
        assert_eq!(nanos(0), None);
        assert_eq!(nanos(1), Some(Duration::from_nanos(8192)));
        assert_eq!(nanos(14), Some(Duration::from_nanos(67_108_864)));
        assert_eq!(nanos(31), Some(Duration::from_nanos(4096 << 31)));
        assert_eq!(AckTimeout::from_code(32), None);
    }

    #[test]
    fn each_attribute_out_of_range_is_named() {
        let good = Config::new(Qpn::default());
        assert_eq!(good.check(), Ok(()));
        let bad = Config { read_chunk: 257, ..good };
        let error = bad.check().unwrap_err();
        assert_eq!(error.to_string(), "read_chunk is 257, expected 1 to 256");
        for (bad, attribute) in [
            (Config { retry: 8, ..good }, Attribute::Retry),
            (Config { rnr_retry: 8, ..good }, Attribute::RnrRetry),
            (Config { send_depth: 0, ..good }, Attribute::SendDepth),
            (Config { window: (1 << 22) + 1, ..good }, Attribute::Window),
            (Config { read_chunk: 0, ..good }, Attribute::ReadChunk),
            (Config { ack_interval: 0, ..good }, Attribute::AckInterval),
        ] {
            assert_eq!(bad.check().map_err(|error| error.attribute), Err(attribute));
        }
    }
}
