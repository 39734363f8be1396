//! The table that is printed at the end.

use crate::interop::play::Row;
use serde::Serialize;
use tabled::builder::Builder;
use tabled::settings::Style;

/// Everything that was tried.
#[derive(Serialize)]
pub(crate) struct Report<'a> {
    /// The NICs of the side that ran the cases, and of the other.
    pub(crate) nics: [&'a str; 2],
    pub(crate) lossy: bool,
    pub(crate) rows: &'a [Row],
}

/// The side that asks, and the path MTU.
type Column<'a> = (&'a str, u32);

impl Report<'_> {
    /// A line for each kind of case with the number of its sizes, a column for each way and MTU;
    /// then what went wrong.
    pub(crate) fn text(&self) -> String {
        let (mut cases, mut columns) = (Vec::<&str>::new(), Vec::<Column>::new());
        for row in self.rows {
            if !cases.contains(&&*row.case) {
                cases.push(&row.case);
            }
            if !columns.contains(&(&row.from, row.mtu)) {
                columns.push((&row.from, row.mtu));
            }
        }
        let mut table = Builder::default();
        let heads = columns.iter().map(|(from, mtu)| format!("{from} asks, MTU {mtu}"));
        table.push_record(["case".into(), "must end with".into()].into_iter().chain(heads));
        for case in cases {
            let expected = self.of(case).next().map(|row| row.expected.to_string());
            let cells = columns.iter().map(|&column| self.cell(case, column));
            table.push_record([case.into(), expected.unwrap_or_default()].into_iter().chain(cells));
        }
        let mut text = table.build().with(Style::psql()).to_string();
        for row in self.rows.iter().filter(|row| !row.problems.is_empty()) {
            let Row { from, mtu, case, bytes, .. } = row;
            text += &format!("\nWRONG: {case} of {bytes} bytes, {from} asks, MTU {mtu}:");
            text.extend(row.problems.iter().map(|problem| format!("\n    {problem}")));
        }
        text
    }

    fn of(&self, case: &str) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.case == case)
    }

    fn cell(&self, case: &str, (from, mtu): Column<'_>) -> String {
        let here = || self.of(case).filter(|row| row.from == from && row.mtu == mtu);
        let (all, ok) = (here().count(), here().filter(|row| row.problems.is_empty()).count());
        let known = here().find(|row| row.status != row.expected).map(|row| &row.status);
        if let Some(status) = known.filter(|_| ok == all) {
            return format!("{status}, as known");
        }
        match (all, ok) {
            (0, _) => "–".into(),
            (1, 1) => "ok".into(),
            _ if ok == all => format!("ok, {all} sizes"),
            _ => format!("WRONG, {ok} of {all} ok"),
        }
    }
}
