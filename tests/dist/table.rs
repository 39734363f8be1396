//! The report of a run: a table for people, rows for programs.

use crate::common::Session;
use anyhow::Result;
use serde_json::{Value, json};
use std::time::Duration;

/// One line.
pub(crate) struct Row {
    /// The operation, where a size does not tell it.
    pub(crate) op: Option<&'static str>,
    /// Bytes of one operation.
    pub(crate) size: u64,
    /// Of the slowest rank.
    pub(crate) time: Duration,
    /// Operations of one rank.
    pub(crate) count: u64,
    /// SHA-256 of what all ranks have received, if it was asked for.
    pub(crate) sha256: Option<String>,
}

impl Row {
    fn seconds(&self) -> f64 {
        self.time.as_secs_f64()
    }

    fn gigabytes(&self) -> f64 {
        (self.count * self.size) as f64 / self.seconds() / 1e9
    }

    fn micros(&self) -> f64 {
        self.seconds() * 1e6
    }

    fn mega_rate(&self) -> f64 {
        self.count as f64 / self.seconds() / 1e6
    }

    fn line(&self, index: usize) -> String {
        let (gb, us, rate) = (self.gigabytes(), self.micros(), self.mega_rate());
        let op = self.op.map(|op| format!("  {op}")).unwrap_or_default();
        let hash = self.sha256.as_ref().map(|hash| format!("  sha256 {hash}")).unwrap_or_default();
        format!("{index:>5} {:>11} {gb:>9.3} {us:>11.1} {rate:>9.3}{op}{hash}", self.size)
    }

    fn json(&self, index: usize) -> Value {
        let mut row = json!({
            "index": index,
            "size": self.size,
            "gb_per_s": self.gigabytes(),
            "us": self.micros(),
            "mpps": self.mega_rate(),
        });
        let more = [("op", self.op), ("sha256", self.sha256.as_deref())];
        for (key, value) in more {
            if let (Some(value), Some(row)) = (value, row.as_object_mut()) {
                row.insert(key.into(), value.into());
            }
        }
        row
    }
}

/// All lines so far.
pub(crate) struct Table {
    rows: Vec<Row>,
    /// Whether this process tells.
    loud: bool,
}

impl Table {
    pub(crate) fn new(session: &Session, loud: bool) -> Result<Self> {
        if loud {
            session.say("Index        Size      GB/s          µs      Mpps")?;
        }
        Ok(Self { rows: Vec::new(), loud })
    }

    pub(crate) fn push(&mut self, session: &Session, row: Row) -> Result<()> {
        if self.loud {
            session.say(&row.line(self.rows.len()))?;
        }
        self.rows.push(row);
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// All lines, for programs.
    pub(super) fn rows(&self) -> Vec<Value> {
        self.rows.iter().enumerate().map(|(index, row)| row.json(index)).collect()
    }
}
