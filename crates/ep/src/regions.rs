//! How a channel's memory in the heap is divided.

use crate::{EpConfig, EpError, Ways};
use std::ops::Range;

/// Everything begins at a multiple of this.
const ALIGN: u64 = 256;
/// Words of different ranks never share a line.
const LINE: u64 = 128;
const SIGNAL: u64 = 16;

/// Bytes of a channel in the heap of each rank, from its first byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Regions {
    /// Words for rows that are to come.
    pub announced: Range<u64>,
    /// Words for rows that have come.
    pub arrived: Range<u64>,
    /// Words for results.
    pub returned: Range<u64>,
    /// Rows for each expert, by source.
    pub counts: Range<u64>,
    /// The same as they leave, for two dispatches.
    pub counts_out: Range<u64>,
    /// Received rows, by source.
    pub rows: Range<u64>,
    /// Results, by the rank that gives them.
    pub results: Range<u64>,
    /// Rows for NICs; empty without RDMA.
    pub stage: Range<u64>,
    /// Results for NICs; empty without RDMA, and where they take the places of rows.
    pub stage_back: Range<u64>,
    /// Rows of the own combine, which others read; empty unless they do.
    pub outputs: Range<u64>,
    /// Where the results of the first received row lie for NICs: in place of the row, which has been consumed by
    /// then, if it is as long; else in `stage_back`.
    pub backs: u64,
    /// From the results of one received row to those of the next; 0 if NICs read the caller's rows.
    pub back_bytes: u64,
    /// From the words of one rank to those of the next.
    pub line: u64,
    /// Of a row's header.
    pub header_bytes: u64,
    /// Of a row with its header.
    pub row_bytes: u64,
}

impl Regions {
    /// With `guard` unused bytes behind each region.
    pub fn new(config: &EpConfig, ways: Ways, guard: u64) -> Self {
        let [tokens, hidden, top_k] = [config.tokens, config.hidden, config.top_k].map(u64::from);
        let [ranks, lanes] = [ways.ranks, ways.lanes].map(u64::from);
        let line = (lanes * SIGNAL).next_multiple_of(LINE);
        let header_bytes = (16 + 12 * top_k).next_multiple_of(16);
        let scale_bytes = (4 * u64::from(config.scale_words())).next_multiple_of(16);
        let row_bytes = header_bytes + config.payload_bytes() + scale_bytes;
        let counts = ranks * (4 * u64::from(config.most_experts(ways.ranks))).next_multiple_of(16);
        let received = ranks * tokens;
        let answer_bytes = 2 * hidden * u64::from(config.answers(ways));
        let staged = |bytes: u64| if ways.staged { bytes } else { 0 };
        let replace = config.payload_bytes() >= answer_bytes;
        let apart = if config.in_place || replace { 0 } else { answer_bytes };
        let mut end = 0;
        let mut take = |bytes: u64| {
            let start = end;
            end = (start + bytes + guard).next_multiple_of(ALIGN);
            start..start + bytes
        };
        let mut regions = Self {
            announced: take(ranks * line),
            arrived: take(ranks * line),
            returned: take(ranks * line),
            counts: take(counts),
            counts_out: take(2 * counts),
            rows: take(received * row_bytes),
            results: take(if config.pulled() {
                staged(received * answer_bytes)
            } else {
                received * answer_bytes
            }),
            stage: take(staged(tokens * row_bytes)),
            stage_back: take(staged(received * apart)),
            outputs: take(if config.pulled() {
                received * u64::from(config.backs(ways)) * 2 * hidden
            } else {
                0
            }),
            backs: 0,
            back_bytes: 0,
            line,
            header_bytes,
            row_bytes,
        };
        (regions.backs, regions.back_bytes) = match (config.in_place, replace) {
            (true, _) => (0, 0),
            (false, true) => (regions.rows.start + header_bytes, row_bytes),
            (false, false) => (regions.stage_back.start, answer_bytes),
        };
        regions
    }

    /// All of them in order.
    pub fn all(&self) -> [Range<u64>; 10] {
        [
            &self.announced,
            &self.arrived,
            &self.returned,
            &self.counts,
            &self.counts_out,
            &self.rows,
            &self.results,
            &self.stage,
            &self.stage_back,
            &self.outputs,
        ]
        .map(Clone::clone)
    }

    /// Bytes of the whole.
    pub fn bytes(&self) -> u64 {
        self.outputs.end.next_multiple_of(ALIGN)
    }
}

impl EpConfig {
    /// Bytes that one channel takes of each rank's heap, exactly.
    ///
    /// # Errors
    /// As [`EpConfig::check`].
    pub fn bytes(&self, ways: Ways) -> Result<u64, EpError> {
        self.check(ways)?;
        Ok(Regions::new(self, ways, 0).bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAYS: Ways = Ways { ranks: 4, lanes: 1, staged: false };

    /// The sizes that a user plans with.
    #[test]
    fn a_channel_of_128_tokens_takes_15_megabytes() {
        let bytes = EpConfig::new(128, 7168, 8, 256).bytes(WAYS).unwrap();
        assert!((14_000_000..15_500_000).contains(&bytes), "{bytes}");
    }

    /// All payloads, layouts and routes, but for every expert's row by NICs from where the caller has it.
    #[test]
    fn a_channel_of_128_tokens_takes_20_megabytes_at_most() {
        use crate::{Combine, Layout, Payload, Scale};
        let layouts = [Layout::RankMajor, Layout::ExpertMajor, Layout::Flat { align: 128 }];
        let payloads = [Payload::Bf16, Payload::Cast(Scale::F32), Payload::Fp8(Scale::Ue8m0)];
        for (layout, payload) in layouts.iter().flat_map(|l| payloads.map(|p| (*l, p))) {
            let config = EpConfig::new(128, 7168, 8, 256).layout(layout).payload(payload);
            for staged in [false, true] {
                let bytes = config.bytes(Ways { staged, ..WAYS }).unwrap();
                println!("{layout:?}, {payload:?}, staged {staged}: {:.1} MB", bytes as f64 / 1e6);
                assert!(bytes <= 20_000_000, "{config:?}, {staged}: {bytes}");
            }
            let exact = config.combine(Combine::Exact);
            let direct = exact.bytes(WAYS).unwrap();
            // Without the rows of the caller, which lie in the channel if it is rank-major.
            let ways = Ways { staged: true, ..WAYS };
            let in_place = exact.clone().in_place(true);
            let outputs = Regions::new(&in_place, ways, 0).outputs;
            let in_place = in_place.bytes(ways).unwrap() - (outputs.end - outputs.start);
            println!("exact: {:.1} MB, {:.1} MB", direct as f64 / 1e6, in_place as f64 / 1e6);
            assert!(in_place - direct < 2_000_000);
        }
    }
}
