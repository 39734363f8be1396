//! Checking the WQEs left in a ring by a poster, after the fact: for QPs whose NIC only consumed.

use crate::NicError;
use crate::engine::classify;
use crate::violation::{QueueKind, Rule, Violation};
use warpverbs_mlx5::num::{MAX_WQE, Qpn, WQEBB, WqeIndex};
use warpverbs_mlx5::ring;
use warpverbs_mlx5::wqe::{Position, parse, peek};

/// What was found in a ring.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RingReport {
    /// Well-formed WQEs.
    pub wqes: u64,
    /// Those that ask for a CQE.
    pub signaled: u64,
    /// Violations, the first [`RingReport::KEPT`] of them.
    pub violations: Vec<Violation>,
    /// How many violations there were.
    pub violated: u64,
}

impl RingReport {
    /// Violations kept.
    pub const KEPT: usize = 64;
}

/// Parses the WQEs in `ring`, a copy of the send queue of QP `qpn`: those that begin at indexes
/// `from..to`, not masked, with `from` at the start of one. At most a ring's length is looked at.
///
/// Keys and addresses are not looked up, since they may have been given back by now.
pub fn validate_ring(ring: &[u8], qpn: u32, from: u64, to: u64) -> Result<RingReport, NicError> {
    let depth = (ring.len() / WQEBB) as u64;
    if !ring.len().is_multiple_of(WQEBB) || !depth.is_power_of_two() || depth > 1 << 15 {
        let (value, max) = (ring.len() as u64, 64 << 15);
        return Err(NicError::OutOfRange { what: "bytes of a ring", value, min: 64, max });
    }
    let qpn = Qpn::new(qpn).ok_or(NicError::UnknownQp { qpn })?;
    let (mut report, mut index) = (RingReport::default(), from.max(to.saturating_sub(depth)));
    while index < to {
        let at = Position { qpn, index: WqeIndex::of(index) };
        let (wqebbs, outcome) = examine(ring, at, depth, to - index);
        match outcome {
            Ok(signaled) => {
                report.wqes += 1;
                report.signaled += u64::from(signaled);
            }
            Err(rule) => {
                report.violated += 1;
                if report.violations.len() < RingReport::KEPT {
                    let (qpn, queue) = (qpn.get(), QueueKind::Send);
                    report.violations.push(Violation { qpn, queue, index, rule });
                }
            }
        }
        index += wqebbs;
    }
    Ok(report)
}

/// WQEBBs of the WQE at `at`, and whether it is signalled.
fn examine(ring: &[u8], at: Position, depth: u64, announced: u64) -> (u64, Result<bool, Rule>) {
    let mut first = [0; WQEBB];
    // Cannot fail: the ring's size was checked, and one WQEBB fits.
    if ring::load(ring, at.index, &mut first).is_err() {
        return (1, Err(Rule::NeverWritten { fill: 0 }));
    }
    let wqebbs = peek(&first) as u64;
    let mut raw = [0; MAX_WQE];
    let bytes = &mut raw[..wqebbs as usize * WQEBB];
    if wqebbs > announced || ring::load(ring, at.index, bytes).is_err() {
        // One block tells a wrong index; if it is right, the length is what is wrong.
        let rule = match parse(&first, at) {
            Err(violation @ warpverbs_mlx5::wqe::WqeViolation::Index { .. }) => {
                classify(violation, &zerocopy::transmute!(first), depth)
            }
            _ => Rule::BeyondAnnounced { wqebbs, announced },
        };
        return (1, Err(rule));
    }
    match parse(bytes, at) {
        Ok(wqe) => (wqebbs, Ok(wqe.flags.completion.is_signaled())),
        Err(violation) => (1, Err(classify(violation, &zerocopy::transmute!(first), depth))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpverbs_mlx5::wqe::WqeBuilder;

    const QPN: u32 = 0x77;

    fn ring_with(from: u64, wqes: u64) -> Vec<u8> {
        let mut ring = vec![0; 8 * WQEBB];
        for i in from..from + wqes {
            let at = Position { qpn: Qpn::new(QPN).unwrap(), index: WqeIndex::of(i) };
            let mut buf = [0; WQEBB];
            let wqe = WqeBuilder::nop(&mut buf, at).signaled().finish().unwrap();
            ring::store(&mut ring, at.index, wqe).unwrap();
        }
        ring
    }

    #[test]
    fn a_lap_of_good_wqes_is_good_across_the_index_wrap() {
        let ring = ring_with(0xfffc, 8);
        let report = validate_ring(&ring, QPN, 0xfffc, 0x10004).unwrap();
        let good = RingReport { wqes: 8, signaled: 8, ..RingReport::default() };
        assert_eq!(report, good);
    }

    #[test]
    fn stale_and_missing_wqes_are_found() {
        let ring = ring_with(8, 6);
        let report = validate_ring(&ring, QPN, 8, 16).unwrap();
        assert_eq!((report.wqes, report.violated), (6, 2));
        assert_eq!(report.violations[0].rule, Rule::NeverWritten { fill: 0 });
        let report = validate_ring(&ring, QPN, 16, 18).unwrap();
        let stale = Rule::StaleSlot { found: 8, expected: 16, laps: 1 };
        assert_eq!(report.violations[0].rule, stale);
        assert!(validate_ring(&ring[..100], QPN, 0, 1).is_err());
    }
}
