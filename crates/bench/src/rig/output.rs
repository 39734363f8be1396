//! Output of a measurement: a table or JSON on stdout, progress on a terminal's stderr.

use super::busy::Watch;
use super::plot::{self, Panel};
use super::print;
use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::io::IsTerminal;
use std::path::Path;
use std::time::Duration;
use tabled::builder::Builder;
use tabled::settings::{Alignment, Style, object};
use warpverbs::gpu::Gpu;

/// Raised when a field is renamed or removed; new fields may come without.
const SCHEMA: u32 = 1;

/// A row of a table, and of the JSON form.
pub(crate) trait Row: Serialize {
    /// Head and cell of each column, the same heads in every row.
    fn columns(&self) -> Columns;

    /// Panels of a plot of rows; none, where they are not drawn.
    fn panels(_rows: &[Self]) -> Vec<Panel>
    where
        Self: Sized,
    {
        Vec::new()
    }
}

/// Head and cell of each column.
pub(crate) type Columns = Vec<(&'static str, String)>;

/// Everything one command measured.
#[derive(Serialize)]
pub(crate) struct Measured<R> {
    schema: u32,
    version: &'static str,
    command: &'static str,
    setting: Setting,
    rows: Vec<R>,
    /// Findings from all rows; one line each.
    findings: Vec<Finding>,
    /// Remarks on the rows for the reader; one line each.
    notes: Vec<String>,
    /// The load of other programs, if they wanted the cores.
    busy: Option<String>,
}

/// A device or NIC, and why it was taken.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Chosen {
    name: String,
    why: String,
}

impl Chosen {
    /// `why` may begin with the name that was asked for and a colon.
    pub(crate) fn new(name: String, why: &str) -> Self {
        let why = why.split_once(": ").map_or(why, |(_, reason)| reason).to_owned();
        Self { name, why }
    }

    /// A device with its architecture.
    pub(crate) fn gpu(gpu: &dyn Gpu, why: &str) -> Self {
        let info = gpu.info();
        Self::new(format!("{} ({})", info.name, info.arch), why)
    }
}

/// The device and NIC of a measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Setting {
    /// Where kernels ran; absent if none did.
    pub(crate) gpu: Option<Chosen>,
    /// The consumer of the queues.
    pub(crate) nic: Chosen,
}

/// A figure derived from several rows or samples, beside the bound it should keep.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    /// Its name.
    pub(crate) what: String,
    /// Its value, a ratio unless `what` says otherwise.
    pub(crate) value: f64,
    /// The bound, in words.
    pub(crate) wanted: &'static str,
    /// Whether it is kept.
    pub(crate) met: bool,
}

impl<R: Row> Measured<R> {
    pub(crate) fn new(command: &'static str, setting: Setting, rows: Vec<R>) -> Self {
        let (version, findings, notes) = (env!("CARGO_PKG_VERSION"), Vec::new(), Vec::new());
        Self { schema: SCHEMA, version, command, setting, rows, findings, notes, busy: None }
    }

    pub(crate) fn noting(mut self, notes: Vec<String>) -> Self {
        self.notes = notes;
        self
    }

    /// Says if the machine was busy with other things since `watch` began.
    pub(crate) fn watched(mut self, watch: &Watch) -> Self {
        self.busy = watch.hint();
        self
    }

    pub(crate) fn with(mut self, findings: Vec<Finding>) -> Self {
        self.findings = findings;
        self
    }

    /// As [`Self::print_up_to`], and draws what there is to a file, if one is given.
    pub(crate) fn print_and_plot(
        &self,
        end: anyhow::Result<()>,
        json: bool,
        file: Option<&Path>,
    ) -> anyhow::Result<()> {
        let drawn = match file {
            Some(file) if !self.rows.is_empty() => {
                plot::write(&R::panels(&self.rows), &format!("warpverbs {}", self.command), file)
            }
            _ => Ok(()),
        };
        self.print_up_to(end, json).and(drawn)
    }

    /// Prints everything to stdout.
    fn print(&self, json: bool) -> anyhow::Result<()> {
        print::line(match json {
            true => serde_json::to_string_pretty(self).context("the rows as JSON")?,
            false => self.text(),
        })
    }

    /// Prints the rows there are, then passes on what ended the measurement before its last row.
    pub(crate) fn print_up_to(&self, end: anyhow::Result<()>, json: bool) -> anyhow::Result<()> {
        if end.is_ok() || !self.rows.is_empty() {
            self.print(json)?;
        }
        end
    }

    fn text(&self) -> String {
        let mut lines = Vec::new();
        if let Some(gpu) = &self.setting.gpu {
            lines.push(format!("kernels on {}: {}", gpu.name, gpu.why));
        }
        let nic = &self.setting.nic;
        lines.push(format!("queues consumed by {}: {}", nic.name, nic.why));
        lines.push(self.table());
        lines.extend(self.notes.iter().cloned());
        lines.extend(self.findings.iter().map(|Finding { what, value, wanted, met }| {
            let verdict = if *met { "met" } else { "missed" };
            format!("{what}: {value:.2} (wanted {wanted}: {verdict})")
        }));
        lines.extend(self.busy.iter().map(|busy| format!("BUSY: {busy}")));
        lines.join("\n")
    }

    /// Columns in which no row has anything are left out.
    fn table(&self) -> String {
        let rows: Vec<Columns> = self.rows.iter().map(Row::columns).collect();
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
}

/// A progress bar, drawn only on a terminal.
pub(crate) fn progress(steps: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
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
        let table = measured.table();
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
