//! Messages longer than a slice: their memory may go away before their end.

use warpverbs_dev::{Pair, PairConfig, bytes, remote, sge};
use warpverbs_mem::{Access, HostBuf, Region};
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::{Config, Mr, QpState};

const SLICE: usize = 4096;
const LEN: usize = 16 * SLICE;

/// A pair, and on either side a buffer with a key of its own.
struct Long {
    pair: Pair,
    near: (Mr, Region),
    far: (Mr, Region),
}

impl Long {
    fn new() -> Self {
        let nic = Config { slice_bytes: SLICE as u64, ..Config::default() };
        let pair = Pair::new(PairConfig { nic, ..PairConfig::default() }).unwrap();
        let buffer = |fill: u8| {
            let region = HostBuf::region(LEN).unwrap();
            region.write(0, &[fill; LEN]).unwrap();
            (pair.nic.reg_mr(&pair.pd, &region, Access::all()).unwrap(), region)
        };
        let (near, far) = (buffer(1), buffer(2));
        Self { pair, near, far }
    }

    /// Two slices, then what `taken` says is deregistered, then the rest.
    /// Bytes of the message that are in place in `of` do not change by that.
    fn run_without(self, near: bool, of: Of) -> Pair {
        let Self { pair, near: (near_mr, near_region), far: (far_mr, far_region) } = self;
        pair.nic.step();
        pair.nic.step();
        let moved = || match of {
            Of::Near => filled(&near_region, 2),
            Of::Far => filled(&far_region, 1),
        };
        let before = moved();
        assert!((SLICE..LEN).contains(&before), "{before} bytes after two steps");
        let (gone, kept) = if near { (near_mr, far_mr) } else { (far_mr, near_mr) };
        drop(gone);
        pair.run();
        drop(kept);
        assert_eq!(moved(), before, "not a byte was moved after the region was deregistered");
        pair
    }
}

/// The buffer that a message goes to.
enum Of {
    Near,
    Far,
}

fn filled(region: &Region, fill: u8) -> usize {
    bytes(region, 0, LEN).iter().filter(|byte| **byte == fill).count()
}

#[test]
fn a_write_stops_where_its_target_was_deregistered() {
    for near in [false, true] {
        let mut long = Long::new();
        let (from, to) = (sge(&long.near.0, 0, LEN as u32), remote(&long.far.0, 0));
        long.pair.a.post_wqe(|buf, at| WqeBuilder::write(buf, at, to).sge(from).signaled());
        let mut pair = long.run_without(near, Of::Far);
        let syndrome = if near { Syndrome::LocalProt } else { Syndrome::RemoteAccess };
        assert_eq!(pair.a.sent(), [(0, Some(syndrome))]);
        let peer = if near { QpState::Rts } else { QpState::Err };
        assert_eq!((pair.a.qp.state(), pair.b.qp.state()), (QpState::Err, peer));
    }
}

#[test]
fn a_read_stops_where_its_source_was_deregistered() {
    for near in [false, true] {
        let mut long = Long::new();
        let (into, from) = (sge(&long.near.0, 0, LEN as u32), remote(&long.far.0, 0));
        long.pair.a.post_wqe(|buf, at| WqeBuilder::read(buf, at, from).sge(into).signaled());
        let mut pair = long.run_without(near, Of::Near);
        let syndrome = if near { Syndrome::LocalProt } else { Syndrome::RemoteAccess };
        assert_eq!(pair.a.sent(), [(0, Some(syndrome))]);
    }
}

#[test]
fn a_send_stops_where_its_receive_was_deregistered() {
    let mut long = Long::new();
    let half = LEN as u32 / 2;
    let into = [sge(&long.far.0, 0, half), sge(&long.far.0, u64::from(half), half)];
    long.pair.b.post_recv(&into);
    let from = sge(&long.near.0, 0, LEN as u32);
    long.pair.a.post_wqe(|buf, at| WqeBuilder::send(buf, at).sge(from).signaled());
    let mut pair = long.run_without(false, Of::Far);
    assert_eq!(pair.a.sent(), [(0, Some(Syndrome::RemoteOp))]);
    assert_eq!(pair.b.received(), [(0, Some(Syndrome::LocalProt))]);
    assert_eq!(pair.b.qp.state(), QpState::Err);
}
