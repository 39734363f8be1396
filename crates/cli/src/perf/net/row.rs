//! What one size on so many queue pairs gave.

use crate::perf::output::Row;
use crate::perf::plan::Op;
use crate::stats::Summary;
use crate::units;
use serde::Serialize;
use std::time::Duration;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct NetRow {
    pub(crate) op: Op,
    pub(crate) bytes: u64,
    pub(crate) qps: u32,
    /// On the first queue pair. Write and send: half of a message there and one back. Read and
    /// atomic: one operation.
    pub(crate) latency: Option<Summary>,
    /// Operations behind the rate.
    pub(crate) messages: Option<u64>,
    pub(crate) bytes_per_s: Option<f64>,
    pub(crate) messages_per_s: Option<f64>,
    /// `equal`: nothing else is ever printed.
    data: &'static str,
}

impl NetRow {
    pub(crate) fn new(op: Op, bytes: u64, qps: u32) -> Self {
        Self {
            op,
            bytes,
            qps,
            latency: None,
            messages: None,
            bytes_per_s: None,
            messages_per_s: None,
            data: "equal",
        }
    }

    pub(crate) fn add_rate(&mut self, messages: u64, time: Duration) {
        let rate = messages as f64 / time.as_secs_f64();
        self.messages = Some(messages);
        self.messages_per_s = Some(rate);
        self.bytes_per_s = Some(rate * self.bytes as f64);
    }
}

impl Row for NetRow {
    const HEADS: &'static [&'static str] = &[
        "op",
        "size",
        "QPs",
        "min",
        "p50",
        "p90",
        "p99",
        "p99.9",
        "max",
        "mean",
        "bandwidth",
        "message rate",
        "data",
    ];

    fn cells(&self) -> Vec<String> {
        let time = |of: fn(&Summary) -> f64| {
            self.latency.as_ref().map(|summary| units::nanos(of(summary))).unwrap_or_default()
        };
        vec![
            self.op.word().to_owned(),
            units::bytes(self.bytes),
            self.qps.to_string(),
            time(|s| s.min_ns as f64),
            time(|s| s.p50_ns as f64),
            time(|s| s.p90_ns as f64),
            time(|s| s.p99_ns as f64),
            time(|s| s.p99_9_ns as f64),
            time(|s| s.max_ns as f64),
            time(|s| s.mean_ns),
            self.bytes_per_s.map(units::rate).unwrap_or_default(),
            self.messages_per_s.map(units::per_second).unwrap_or_default(),
            self.data.to_owned(),
        ]
    }
}
