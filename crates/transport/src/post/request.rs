//! A send work request as a value: `rings` encodes it as a WQE, `direct` posts it as it is.

use warpverbs_mlx5::amo::{MaskedCompareSwap, MaskedFetchAdd};
use warpverbs_mlx5::num::{Qpn, WQEBB, WqeIndex};
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::wqe::{BuildError, Local, Position, WqeBuilder};
use warpverbs_rdma::{Data, Op, Remote, Rkey, SendFlags, Sge};

/// Bytes of the largest send work request of the host's: four WQEBBs.
pub(super) type Wqe = [u8; 4 * WQEBB];

/// Operation of a work request.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    /// One that every RDMA device has.
    Rdma(Op),
    /// Masked compare and swap, which mlx5 has besides.
    MaskedCompareSwap(Remote, MaskedCompareSwap),
    /// Masked fetch and add, likewise.
    MaskedFetchAdd(Remote, MaskedFetchAdd),
    /// Invalidates a key of this side.
    LocalInvalidate(Rkey),
    /// Nothing, after all work before it.
    Nop,
}

/// A send work request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub(super) action: Action,
    pub(super) data: Data<'a>,
    pub(super) flags: SendFlags,
}

impl Request<'_> {
    /// The opcode of its WQE, which errors name.
    #[inline]
    pub(super) fn opcode(&self) -> SendOpcode {
        match self.action {
            Action::Rdma(op) => match op {
                Op::Send => SendOpcode::Send,
                Op::SendImm(_) => SendOpcode::SendImm,
                Op::SendInvalidate(_) => SendOpcode::SendInval,
                Op::Write(_) => SendOpcode::RdmaWrite,
                Op::WriteImm(..) => SendOpcode::RdmaWriteImm,
                Op::Read(_) => SendOpcode::RdmaRead,
                Op::CompareSwap { .. } => SendOpcode::AtomicCs,
                Op::FetchAdd { .. } => SendOpcode::AtomicFa,
            },
            Action::MaskedCompareSwap(..) => SendOpcode::MaskedCs,
            Action::MaskedFetchAdd(..) => SendOpcode::MaskedFa,
            Action::LocalInvalidate(_) => SendOpcode::LocalInval,
            Action::Nop => SendOpcode::Nop,
        }
    }

    /// Where the old value of an atomic goes.
    fn result(&self) -> Local {
        let sge = match self.data {
            Data::Sges([sge, ..]) => *sge,
            _ => Sge::default(),
        };
        Local { addr: sge.addr, lkey: sge.lkey }
    }

    /// Its WQE, with index 0 and without flags: both are known once it has a place in the ring.
    #[inline]
    pub(super) fn encode<'b>(&self, buf: &'b mut Wqe, qpn: Qpn) -> Result<&'b [u8], BuildError> {
        let at = Position { qpn, index: WqeIndex(0) };
        let wqe = match self.action {
            Action::Rdma(op) => match op {
                Op::Send => WqeBuilder::send(buf, at),
                Op::SendImm(imm) => WqeBuilder::send_imm(buf, at, imm),
                Op::SendInvalidate(rkey) => WqeBuilder::send_inval(buf, at, rkey),
                Op::Write(remote) => WqeBuilder::write(buf, at, remote),
                Op::WriteImm(remote, imm) => WqeBuilder::write_imm(buf, at, remote, imm),
                Op::Read(remote) => WqeBuilder::read(buf, at, remote),
                Op::CompareSwap { remote, compare, swap } => {
                    let result = self.result();
                    return WqeBuilder::compare_swap(buf, at, remote, compare, swap, result)
                        .finish();
                }
                Op::FetchAdd { remote, add } => {
                    return WqeBuilder::fetch_add(buf, at, remote, add, self.result()).finish();
                }
            },
            Action::MaskedCompareSwap(remote, operands) => {
                let result = self.result();
                return WqeBuilder::masked_compare_swap(buf, at, remote, operands, result).finish();
            }
            Action::MaskedFetchAdd(remote, operands) => {
                let result = self.result();
                return WqeBuilder::masked_fetch_add(buf, at, remote, operands, result).finish();
            }
            Action::LocalInvalidate(rkey) => {
                return WqeBuilder::local_inval(buf, at, rkey).finish();
            }
            Action::Nop => return WqeBuilder::nop(buf, at).finish(),
        };
        match self.data {
            Data::Inline(bytes) => wqe.inline(bytes).finish(),
            Data::Sges(sges) => sges.iter().fold(wqe, |wqe, &sge| wqe.sge(sge)).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpverbs_mlx5::amo::MaskedFa;
    use warpverbs_mlx5::wqe::parse;

    #[test]
    fn every_request_is_the_wqe_of_its_opcode() {
        let (remote, rkey) = (Remote::new(0x1000, 7), Rkey(9));
        let sges = [Sge::new(0x2000, 8, 3)];
        let both = [Data::Sges(&sges), Data::Inline(b"12345678")];
        let (cs, fa) =
            (Op::CompareSwap { remote, compare: 1, swap: 2 }, Op::FetchAdd { remote, add: 3 });
        let masked = MaskedFetchAdd::B8(MaskedFa { add: 1, boundary: 0 });
        let sends = [Op::Send, Op::SendImm(5), Op::SendInvalidate(rkey), Op::Write(remote)];
        let with_both = sends.into_iter().chain([Op::WriteImm(remote, 6)]);
        let with_both = with_both.flat_map(|op| both.map(|data| (Action::Rdma(op), data)));
        let others = [
            (Action::Rdma(Op::Read(remote)), both[0]),
            (Action::Rdma(cs), both[0]),
            (Action::Rdma(fa), both[0]),
            (Action::MaskedFetchAdd(remote, masked), both[0]),
            (Action::LocalInvalidate(rkey), Data::Sges(&[])),
            (Action::Nop, Data::Sges(&[])),
        ];
        let qpn = Qpn::new(5).unwrap();
        for (action, data) in with_both.chain(others) {
            let request = Request { action, data, flags: SendFlags::empty() };
            let mut buf = [0; 4 * WQEBB];
            let wqe = request.encode(&mut buf, qpn).unwrap();
            let wqe = parse(wqe, Position { qpn, index: WqeIndex(0) }).unwrap();
            assert_eq!(wqe.op.opcode(), request.opcode(), "{request:?}");
            let bytes = if matches!(data, Data::Sges([])) { 0 } else { 8 };
            assert_eq!(wqe.op.byte_len(), bytes, "{request:?}");
        }
    }
}
