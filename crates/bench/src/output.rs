//! Output of a measurement: a table or JSON on stdout.

use crate::busy::Watch;
use crate::print;
use anyhow::Context as _;
use serde::Serialize;
use std::fmt::{self, Display, Formatter};
use tabled::builder::Builder;
use tabled::settings::{Alignment, Style, object};

/// Raised when a field is renamed or removed; new fields may come without.
const SCHEMA: u32 = 1;

/// A row of a table, and of the JSON form.
pub trait Row: Serialize {
    /// Head and cell of each column, the same heads in every row.
    fn columns(&self) -> Columns;
}

/// Head and cell of each column.
pub type Columns = Vec<(&'static str, String)>;

/// Everything one command measured, and what it was measured on.
#[derive(Serialize)]
pub struct Measured<R, S = Setting> {
    schema: u32,
    version: &'static str,
    pub(crate) command: String,
    setting: S,
    pub(crate) rows: Vec<R>,
    /// Findings from all rows; one line each.
    findings: Vec<Finding>,
    /// Remarks on the rows for the reader; one line each.
    notes: Vec<String>,
    /// The load of other programs, if they wanted the cores.
    busy: Option<String>,
}

/// A device or NIC, and why it was taken.
#[derive(Clone, Debug, Serialize)]
pub struct Chosen {
    name: String,
    why: String,
}

impl Chosen {
    /// `why` may begin with the name that was asked for and a colon.
    pub fn new(name: String, why: &str) -> Self {
        let why = why.split_once(": ").map_or(why, |(_, reason)| reason).to_owned();
        Self { name, why }
    }
}

/// The device and NIC of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// Where kernels ran; absent if none did.
    pub gpu: Option<Chosen>,
    /// The consumer of the queues.
    pub nic: Chosen,
}

impl Display for Setting {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(gpu) = &self.gpu {
            writeln!(f, "kernels on {}: {}", gpu.name, gpu.why)?;
        }
        write!(f, "queues consumed by {}: {}", self.nic.name, self.nic.why)
    }
}

/// The bound of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Not more.
    AtMost(f64),
    /// Not less.
    AtLeast(f64),
}

impl Bound {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }
}

impl Display for Bound {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "at most {most}"),
            Self::AtLeast(least) => write!(f, "at least {least}"),
        }
    }
}

/// A figure derived from several rows or samples, beside the bound it should keep.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    /// Its name.
    what: String,
    /// Its value, a ratio unless `what` says otherwise.
    value: f64,
    /// The bound, in words.
    wanted: String,
    /// Whether it is kept.
    met: bool,
}

impl Finding {
    /// `value` beside its bound.
    pub fn new(what: impl Into<String>, value: f64, bound: Bound) -> Self {
        Self { what: what.into(), value, wanted: bound.to_string(), met: bound.is_met(value) }
    }
}

impl Display for Finding {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { what, value, wanted, met } = self;
        let verdict = if *met { "met" } else { "missed" };
        write!(f, "{what}: {value:.2} (wanted {wanted}: {verdict})")
    }
}

impl<R: Serialize, S: Serialize> Measured<R, S> {
    /// Rows alone.
    pub fn new(command: impl Into<String>, setting: S, rows: Vec<R>) -> Self {
        let (version, findings, notes) = (env!("CARGO_PKG_VERSION"), Vec::new(), Vec::new());
        let command = command.into();
        Self { schema: SCHEMA, version, command, setting, rows, findings, notes, busy: None }
    }

    /// With remarks.
    pub fn noting(mut self, notes: Vec<String>) -> Self {
        self.notes = notes;
        self
    }

    /// Says if the machine was busy with other things since `watch` began.
    pub fn watched(mut self, watch: &Watch) -> Self {
        self.busy = watch.hint();
        self
    }

    /// With figures and their bounds.
    pub fn with(mut self, findings: Vec<Finding>) -> Self {
        self.findings = findings;
        self
    }

    /// All of it as JSON.
    ///
    /// # Errors
    /// A row cannot be written as JSON.
    pub fn json(&self) -> anyhow::Result<String> {
        serde_json::to_string_pretty(self).context("the rows as JSON")
    }
}

impl<R: Row, S: Serialize + Display> Measured<R, S> {
    /// Prints everything to stdout.
    fn print(&self, json: bool) -> anyhow::Result<()> {
        print::line(match json {
            true => self.json()?,
            false => self.text(),
        })
    }

    /// Prints the rows there are, then passes on what ended the measurement before its last row.
    ///
    /// # Errors
    /// The error that was passed in; nothing can be printed.
    pub fn print_up_to(&self, end: anyhow::Result<()>, json: bool) -> anyhow::Result<()> {
        if end.is_ok() || !self.rows.is_empty() {
            self.print(json)?;
        }
        end
    }

    fn text(&self) -> String {
        let rows: Vec<Columns> = self.rows.iter().map(Row::columns).collect();
        let mut lines = vec![self.setting.to_string(), table(&rows)];
        lines.extend(self.notes.iter().cloned());
        lines.extend(self.findings.iter().map(Finding::to_string));
        lines.extend(self.busy.iter().map(|busy| format!("BUSY: {busy}")));
        lines.join("\n")
    }
}

/// A table of rows. Columns in which no row has anything are left out.
pub fn table(rows: &[Columns]) -> String {
    let mut builder = Builder::default();
    let width = rows.first().map_or(0, Vec::len);
    for column in (0..width).filter(|&at| rows.iter().any(|row| !row[at].1.is_empty())) {
        let cells = rows.iter().map(|row| row[column].1.as_str());
        builder.push_column(std::iter::once(rows[0][column].0).chain(cells));
    }
    let mut table = builder.build();
    table.with(Style::rounded());
    table.modify(object::Columns::new(1..), Alignment::right());
    table.modify(object::Rows::first(), Alignment::center());
    table.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Pair {
        size: u64,
        rate: f64,
    }

    impl Row for Pair {
        fn columns(&self) -> Columns {
            vec![("size", self.size.to_string()), ("rate", format!("{:.1}", self.rate))]
        }
    }

    #[test]
    fn table_and_json_show_every_row() {
        let setting = Setting { gpu: None, nic: Chosen::new("soft0".into(), "soft: asked for") };
        let rows = vec![Pair { size: 8, rate: 1.25 }, Pair { size: 64, rate: 9.0 }];
        let mut measured = Measured::new("perf test", setting, rows);
        measured.busy = Some("a test".into());
        assert!(measured.text().ends_with("\nBUSY: a test"), "{}", measured.text());
        let table = table(&measured.rows.iter().map(Row::columns).collect::<Vec<_>>());
        assert_eq!(table.lines().count(), 6, "{table}");
        assert!(table.contains("rate") && table.contains("9.0"), "{table}");
        let json = serde_json::to_value(&measured).unwrap();
        assert_eq!(json["rows"][1]["size"], 64);
        assert_eq!(json["setting"]["nic"]["why"], "asked for");
        assert_eq!(
            (json["schema"].as_u64(), json["command"].as_str()),
            (Some(1), Some("perf test"))
        );
    }
}
