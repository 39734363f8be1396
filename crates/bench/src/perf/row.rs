//! The result of one size on a number of queue pairs, in this process or between two.

use crate::output::{Columns, Row};
use crate::rig::plan::{Op, Poster, word};
use crate::rig::plot::{Drawn, Panel};
use crate::stats::Summary;
use crate::units;
use serde::Serialize;
use std::time::Duration;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct MessageRow {
    /// Where it varies from row to row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) post: Option<Poster>,
    pub(crate) op: Op,
    pub(crate) bytes: u64,
    pub(crate) qps: u32,
    /// On the first queue pair: one operation; between two processes, a write's and send's is half
    /// of a message there and one back.
    pub(crate) latency: Option<Summary>,
    /// Operations behind the rate.
    pub(crate) messages: Option<u64>,
    pub(crate) bytes_per_s: Option<f64>,
    pub(crate) messages_per_s: Option<f64>,
    /// `equal`: nothing else is ever printed.
    data: &'static str,
}

impl MessageRow {
    pub(crate) fn new(op: Op, bytes: u64, qps: u32) -> Self {
        Self {
            post: None,
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

impl Row for MessageRow {
    fn columns(&self) -> Columns {
        let time = |of: fn(&Summary) -> f64| {
            self.latency.as_ref().map(|summary| units::nanos(of(summary))).unwrap_or_default()
        };
        let post = self.post.map(|post| ("post", word(post)));
        let rest = [
            ("op", word(self.op)),
            ("size", units::bytes(self.bytes)),
            ("QPs", self.qps.to_string()),
            ("min", time(|s| s.min_ns as f64)),
            ("p50", time(|s| s.p50_ns as f64)),
            ("p90", time(|s| s.p90_ns as f64)),
            ("p99", time(|s| s.p99_ns as f64)),
            ("p99.9", time(|s| s.p99_9_ns as f64)),
            ("max", time(|s| s.max_ns as f64)),
            ("mean", time(|s| s.mean_ns)),
            ("bandwidth", self.bytes_per_s.map(units::rate).unwrap_or_default()),
            ("message rate", self.messages_per_s.map(units::per_second).unwrap_or_default()),
            ("data", self.data.to_owned()),
        ];
        post.into_iter().chain(rest).collect()
    }
}

impl Drawn for MessageRow {
    /// Bandwidth of each number of queue pairs. Latency of the smallest number: the others add nothing
    /// to that of the first queue pair.
    fn panels(rows: &[Self]) -> Vec<Panel> {
        let at = |row: &Self, value| (row.bytes as f64, value);
        let bandwidth = rows.iter().filter_map(|row| {
            let name = if row.qps == 1 { "queue pair" } else { "queue pairs" };
            Some((format!("{} {name}", row.qps), at(row, row.bytes_per_s?)))
        });
        let fewest = rows.iter().map(|row| row.qps).min();
        let latency = rows.iter().filter(|row| Some(row.qps) == fewest).filter_map(|row| {
            let times = row.latency?;
            let point = |name: &str, ns: u64| (name.to_owned(), at(row, ns as f64));
            Some([point("p50", times.p50_ns), point("p99", times.p99_ns)])
        });
        let bandwidth = Panel::of("bandwidth", units::rate, bandwidth);
        let latency = Panel::of("latency", units::nanos, latency.flatten());
        bandwidth.into_iter().chain(latency).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rig::plot;

    fn rows() -> Vec<MessageRow> {
        let sizes = [8u64, 64, 4096, 1 << 20];
        let row = |(qps, bytes): (u32, u64)| {
            let mut row = MessageRow::new(Op::Write, bytes, qps);
            row.latency = Summary::of(vec![9000 + bytes, 12_000 + bytes]);
            row.add_rate(1000 * u64::from(qps), Duration::from_millis(1 + bytes / 1000));
            row
        };
        [1, 16].into_iter().flat_map(|qps| sizes.map(|bytes| (qps, bytes))).map(row).collect()
    }

    fn words(svg: &str) -> Vec<String> {
        let parsed = roxmltree::Document::parse(svg).unwrap_or_else(|e| panic!("{e}: {svg}"));
        assert_eq!(parsed.root_element().tag_name().name(), "svg");
        let texts = parsed.descendants().filter(|node| node.has_tag_name("text"));
        texts.filter_map(|node| Some(node.text()?.trim().to_owned())).collect()
    }

    #[test]
    fn a_plot_has_axes_with_units_and_a_line_for_each_series() {
        let svg = plot::draw(&MessageRow::panels(&rows()), "perf write <a & b>").unwrap();
        let words = words(&svg);
        for word in [
            "perf write <a & b>",
            "size",
            "bandwidth",
            "latency",
            "8 B",
            "512 KiB",
            "100 µs",
            "10 MB/s",
            "1 queue pair",
            "16 queue pairs",
            "p50",
            "p99",
        ] {
            assert!(words.iter().any(|found| found == word), "{word} is not in {words:?}");
        }
        assert_eq!(svg.matches("<circle").count(), 8 + 8);
        let sizes = words.iter().filter(|word| word.ends_with('B') && word.len() < 9).count();
        assert!(sizes <= 2 * 13, "{words:?}");
    }

    #[test]
    fn what_was_not_measured_is_left_out() {
        let mut rows = rows();
        rows.iter_mut().for_each(|row| row.latency = None);
        let words = words(&plot::draw(&MessageRow::panels(&rows), "t").unwrap());
        assert!(!words.contains(&"latency".to_owned()), "{words:?}");
        assert!(plot::draw(&MessageRow::panels(&[]), "nothing").is_ok());
        rows.truncate(1);
        assert!(plot::draw(&MessageRow::panels(&rows), "one point").is_ok());
    }
}
