//! Values to the bytes of a send WQE.

use super::parse::{OPMOD_4B, OPMOD_8B};
use super::{Destination, Position, Remote, Sge};
use crate::amo::{MaskedCompareSwap, MaskedFetchAdd};
use crate::flags::{Completion, Fence, Flags};
use crate::num::{MAX_DS, Rkey, SEGMENT, WQEBB, wqebbs};
use crate::opcode::SendOpcode;
use crate::segment::{
    AtomicSeg, CtrlSeg, DataSeg, DatagramSeg, INLINE_BIT, InlineHeader, MaskedCs4Seg, MaskedCs8Seg,
    MaskedFa4Seg, MaskedFa8Seg, RaddrSeg, WaitSeg, inline_segments,
};
use zerocopy::{Immutable, IntoBytes};

/// Why a WQE could not be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The caller's buffer is smaller than the WQEBBs needed.
    #[error("the WQE needs {needed} bytes, the buffer has {available}")]
    BufferTooSmall {
        /// Bytes of whole WQEBBs.
        needed: usize,
        /// Bytes given.
        available: usize,
    },
    /// More segments than DS can count.
    #[error("the WQE needs {needed} segments, at most 63 are possible")]
    TooLong {
        /// Segments.
        needed: usize,
    },
    /// The entry's length is 0 or above 2^31 − 1.
    #[error("entry of {len} bytes, expected 1 to 2^31 - 1")]
    SgeLength {
        /// Its length.
        len: u32,
    },
    /// The opcode takes no payload of this kind, or already has one of the other kind.
    #[error("{opcode} cannot take {what}")]
    PayloadKind {
        /// The opcode.
        opcode: SendOpcode,
        /// The payload that was added.
        what: PayloadKind,
    },
}

/// The kind of payload added to a WQE that cannot take it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadKind {
    /// A scatter/gather entry.
    Sge,
    /// Inline bytes.
    Inline,
}

impl core::fmt::Display for PayloadKind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::Sge => "a scatter/gather entry",
            Self::Inline => "inline bytes",
        })
    }
}

/// Writes one send WQE into a caller's buffer.
///
/// A constructor per opcode takes what the opcode needs; setters add the rest; [`finish`]
/// gives the bytes. The first mistake is kept and returned by [`finish`].
///
/// ```
/// use warpverbs_mlx5::{num::*, wqe::*};
/// let at = Position { qpn: Qpn::new(0x12e).unwrap(), index: WqeIndex(7) };
/// let remote = Remote { addr: 0x1000, rkey: Rkey(0x2a00) };
/// let sge = Sge { addr: 0x2000, len: 8, lkey: Lkey(0x2b00) };
/// let mut buf = [0; WQEBB];
/// let bytes = WqeBuilder::write(&mut buf, at, remote).sge(sge).signaled().finish().unwrap();
/// assert_eq!(bytes.len(), WQEBB);
/// assert!(matches!(parse(bytes, at).unwrap().op, Op::Write { .. }));
/// ```
///
/// [`finish`]: Self::finish
#[derive(Debug)]
pub struct WqeBuilder<'b> {
    buf: &'b mut [u8],
    opcode: SendOpcode,
    flags: Flags,
    /// Segments written or, after an overflow, needed.
    segments: usize,
    takes: Takes,
    error: Option<BuildError>,
}

/// The payload that may still be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Nothing,
    Pointers,
    PointersOrInline,
}

impl<'b> WqeBuilder<'b> {
    /// NOP.
    pub fn nop(buf: &'b mut [u8], at: Position) -> Self {
        Self::new(buf, at, SendOpcode::Nop, 0, 0, Takes::Nothing)
    }

    /// SEND. Add [`sge`](Self::sge) or [`inline`](Self::inline) for its bytes.
    pub fn send(buf: &'b mut [u8], at: Position) -> Self {
        Self::new(buf, at, SendOpcode::Send, 0, 0, Takes::PointersOrInline)
    }

    /// SEND with immediate: a number, stored big-endian.
    pub fn send_imm(buf: &'b mut [u8], at: Position, imm: u32) -> Self {
        Self::new(buf, at, SendOpcode::SendImm, 0, imm, Takes::PointersOrInline)
    }

    /// SEND that makes the receiver invalidate `rkey`.
    pub fn send_inval(buf: &'b mut [u8], at: Position, rkey: Rkey) -> Self {
        Self::new(buf, at, SendOpcode::SendInval, 0, rkey.0, Takes::PointersOrInline)
    }

    /// SEND of a datagram QP. Add [`sge`](Self::sge) or [`inline`](Self::inline) for its bytes.
    pub fn send_to(buf: &'b mut [u8], at: Position, to: Destination) -> Self {
        Self::new(buf, at, SendOpcode::Send, 0, 0, Takes::PointersOrInline)
            .segment(&DatagramSeg::from(to))
    }

    /// The same with immediate: a number, stored big-endian.
    pub fn send_imm_to(buf: &'b mut [u8], at: Position, to: Destination, imm: u32) -> Self {
        Self::new(buf, at, SendOpcode::SendImm, 0, imm, Takes::PointersOrInline)
            .segment(&DatagramSeg::from(to))
    }

    /// RDMA WRITE. Add [`sge`](Self::sge) or [`inline`](Self::inline) for its bytes.
    pub fn write(buf: &'b mut [u8], at: Position, remote: Remote) -> Self {
        Self::new(buf, at, SendOpcode::RdmaWrite, 0, 0, Takes::PointersOrInline)
            .segment(&RaddrSeg::from(remote))
    }

    /// RDMA WRITE with immediate: a number, stored big-endian.
    pub fn write_imm(buf: &'b mut [u8], at: Position, remote: Remote, imm: u32) -> Self {
        Self::new(buf, at, SendOpcode::RdmaWriteImm, 0, imm, Takes::PointersOrInline)
            .segment(&RaddrSeg::from(remote))
    }

    /// RDMA READ. Add [`sge`](Self::sge) for where the bytes go.
    pub fn read(buf: &'b mut [u8], at: Position, remote: Remote) -> Self {
        Self::new(buf, at, SendOpcode::RdmaRead, 0, 0, Takes::Pointers)
            .segment(&RaddrSeg::from(remote))
    }

    /// 8-byte compare-and-swap; the old value goes to the 8 bytes at `result`.
    pub fn compare_swap(
        buf: &'b mut [u8],
        at: Position,
        remote: Remote,
        compare: u64,
        swap: u64,
        result: Local,
    ) -> Self {
        let operands = AtomicSeg { swap_add: swap.into(), compare: compare.into() };
        Self::atomic(buf, at, SendOpcode::AtomicCs, 0, remote).operands(&operands, result.sge(8))
    }

    /// 8-byte fetch-and-add; the old value goes to the 8 bytes at `result`.
    pub fn fetch_add(
        buf: &'b mut [u8],
        at: Position,
        remote: Remote,
        add: u64,
        result: Local,
    ) -> Self {
        let operands = AtomicSeg { swap_add: add.into(), ..AtomicSeg::default() };
        Self::atomic(buf, at, SendOpcode::AtomicFa, 0, remote).operands(&operands, result.sge(8))
    }

    /// Masked compare-and-swap; the old value goes to the 4 or 8 bytes at `result`.
    pub fn masked_compare_swap(
        buf: &'b mut [u8],
        at: Position,
        remote: Remote,
        operands: MaskedCompareSwap,
        result: Local,
    ) -> Self {
        let new = |buf, opmod| Self::atomic(buf, at, SendOpcode::MaskedCs, opmod, remote);
        let result = result.sge(operands.size());
        match operands {
            MaskedCompareSwap::B4(o) => {
                let seg = MaskedCs4Seg {
                    swap: o.swap.into(),
                    compare: o.compare.into(),
                    swap_mask: o.swap_mask.into(),
                    compare_mask: o.compare_mask.into(),
                };
                new(buf, OPMOD_4B).operands(&seg, result)
            }
            MaskedCompareSwap::B8(o) => {
                let seg = MaskedCs8Seg {
                    swap: o.swap.into(),
                    compare: o.compare.into(),
                    swap_mask: o.swap_mask.into(),
                    compare_mask: o.compare_mask.into(),
                };
                new(buf, OPMOD_8B).operands(&seg, result)
            }
        }
    }

    /// Masked fetch-and-add; the old value goes to the 4 or 8 bytes at `result`.
    pub fn masked_fetch_add(
        buf: &'b mut [u8],
        at: Position,
        remote: Remote,
        operands: MaskedFetchAdd,
        result: Local,
    ) -> Self {
        let new = |buf, opmod| Self::atomic(buf, at, SendOpcode::MaskedFa, opmod, remote);
        let result = result.sge(operands.size());
        match operands {
            MaskedFetchAdd::B4(o) => {
                let seg = MaskedFa4Seg {
                    add: o.add.into(),
                    field_boundary: o.boundary.into(),
                    ..MaskedFa4Seg::default()
                };
                new(buf, OPMOD_4B).operands(&seg, result)
            }
            MaskedFetchAdd::B8(o) => {
                let seg = MaskedFa8Seg { add: o.add.into(), field_boundary: o.boundary.into() };
                new(buf, OPMOD_8B).operands(&seg, result)
            }
        }
    }

    /// Invalidates a local key.
    pub fn local_inval(buf: &'b mut [u8], at: Position, rkey: Rkey) -> Self {
        Self::new(buf, at, SendOpcode::LocalInval, 0, rkey.0, Takes::Nothing)
    }

    /// Goes no further before the CQ `cqn` has the CQE of `index`, counted from 0.
    pub fn wait(buf: &'b mut [u8], at: Position, cqn: u32, index: u32) -> Self {
        let seg = WaitSeg { max_index: index.into(), cqn: cqn.into(), ..WaitSeg::default() };
        Self::new(buf, at, SendOpcode::Wait, 0, 0, Takes::Nothing).segment(&seg)
    }

    /// Reads the memory and drops what was read.
    pub fn dump(buf: &'b mut [u8], at: Position, local: Sge) -> Self {
        let dump = Self::new(buf, at, SendOpcode::Dump, 0, 0, Takes::Pointers).sge(local);
        Self { takes: Takes::Nothing, ..dump }
    }

    /// Asks for a CQE on success.
    pub fn signaled(self) -> Self {
        self.completion(Completion::Always)
    }

    /// Completion mode; [`Completion::OnError`] unless set.
    pub fn completion(mut self, completion: Completion) -> Self {
        self.flags.completion = completion;
        self
    }

    /// Fence mode; [`Fence::None`] unless set.
    pub fn fence(mut self, fence: Fence) -> Self {
        self.flags.fence = fence;
        self
    }

    /// Raises a solicited event at the receiver.
    pub fn solicited(mut self) -> Self {
        self.flags.solicited = true;
        self
    }

    /// Adds a scatter/gather entry of 1 to 2^31 − 1 bytes.
    pub fn sge(mut self, sge: Sge) -> Self {
        if self.takes == Takes::Nothing {
            return self.refuse(PayloadKind::Sge);
        }
        if sge.len == 0 || sge.len & INLINE_BIT != 0 {
            return self.fail(BuildError::SgeLength { len: sge.len });
        }
        self.takes = Takes::Pointers;
        self.segment(&DataSeg::from(sge))
    }

    /// Adds the payload or its beginning, once and before entries. It is copied into the WQE.
    pub fn inline(mut self, payload: &[u8]) -> Self {
        if self.takes != Takes::PointersOrInline {
            return self.refuse(PayloadKind::Inline);
        }
        self.takes = Takes::Pointers;
        let Some(room) = self.reserve(inline_segments(payload.len())) else { return self };
        let (header, rest) = self.buf[room].split_at_mut(size_of::<InlineHeader>());
        let byte_count = payload.len() as u32 | INLINE_BIT;
        header.copy_from_slice(InlineHeader { byte_count: byte_count.into() }.as_bytes());
        rest[..payload.len()].copy_from_slice(payload);
        self
    }

    /// The WQE as whole WQEBBs, zero-filled after the last segment: `len() / 64` of them.
    pub fn finish(self) -> Result<&'b [u8], BuildError> {
        if let Some(error) = self.error {
            return Err(error);
        }
        let ds = self.segments as u8;
        self.buf[core::mem::offset_of!(CtrlSeg, ds)] = ds;
        self.buf[core::mem::offset_of!(CtrlSeg, fm_ce_se)] = self.flags.to_byte();
        Ok(&self.buf[..wqebbs(ds) * WQEBB])
    }

    fn new(
        buf: &'b mut [u8],
        at: Position,
        opcode: SendOpcode,
        opmod: u8,
        imm: u32,
        takes: Takes,
    ) -> Self {
        let flags = Flags::default();
        // DS and flags are known at the end.
        let ctrl = CtrlSeg {
            opmod,
            wqe_index: at.index.0.into(),
            opcode: opcode.value(),
            qpn: at.qpn.into(),
            imm: imm.into(),
            ..CtrlSeg::default()
        };
        Self { buf, opcode, flags, segments: 0, takes, error: None }.segment(&ctrl)
    }

    fn atomic(
        buf: &'b mut [u8],
        at: Position,
        opcode: SendOpcode,
        opmod: u8,
        remote: Remote,
    ) -> Self {
        Self::new(buf, at, opcode, opmod, 0, Takes::Nothing).segment(&RaddrSeg::from(remote))
    }

    fn operands(self, operands: &(impl IntoBytes + Immutable), result: Sge) -> Self {
        self.segment(operands).segment(&DataSeg::from(result))
    }

    fn segment(mut self, segment: &(impl IntoBytes + Immutable)) -> Self {
        let bytes = segment.as_bytes();
        if let Some(room) = self.reserve(bytes.len() / SEGMENT) {
            self.buf[room].copy_from_slice(bytes);
        }
        self
    }

    /// Room for `count` more segments; a WQEBB is cleared when it is first touched.
    fn reserve(&mut self, count: usize) -> Option<core::ops::Range<usize>> {
        let start = self.segments * SEGMENT;
        let end = start + count * SEGMENT;
        let needed = end.next_multiple_of(WQEBB);
        if self.error.is_some() {
            return None;
        }
        if self.segments + count > MAX_DS as usize {
            self.error = Some(BuildError::TooLong { needed: self.segments + count });
            return None;
        }
        if needed > self.buf.len() {
            let available = self.buf.len();
            self.error = Some(BuildError::BufferTooSmall { needed, available });
            return None;
        }
        self.buf[start.next_multiple_of(WQEBB)..needed].fill(0);
        self.segments += count;
        Some(start..end)
    }

    fn refuse(self, what: PayloadKind) -> Self {
        let opcode = self.opcode;
        self.fail(BuildError::PayloadKind { opcode, what })
    }

    fn fail(mut self, error: BuildError) -> Self {
        self.error.get_or_insert(error);
        self
    }
}

/// Where the old value of an atomic goes; how many bytes is up to the atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Local {
    /// First byte.
    pub addr: u64,
    /// Its key.
    pub lkey: crate::num::Lkey,
}

impl Local {
    fn sge(self, len: u32) -> Sge {
        Sge { addr: self.addr, len, lkey: self.lkey }
    }
}
