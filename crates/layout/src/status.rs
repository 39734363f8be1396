//! How calls of the device library end, `kernels/include/warpverbs/status.h`.

use crate::header::Header;

pub(crate) const HEADER: Header = Header {
    path: "layout/status.h",
    table: "layout/src/status.rs",
    namespace: "wv",
    includes: &["arch/types.h"],
    items: &[Outcome::LAYOUT, Status::LAYOUT, WaitFor::LAYOUT],
};

crate::layout! {
    /// How a call ended.
    pub enum Outcome: u8 as "outcome" {
        /// Well.
        Ok = 0,
        /// The call's time is up; PostState.fault says who waited for what.
        Timeout = 1,
        /// The host raised the abort word, or another poster gave up on the queue.
        Aborted = 2,
        /// try_ forms: the queue is full. poll forms: nothing has arrived.
        NoRoom = 3,
        /// Error CQE of a send queue; see syndrome().
        Requester = 4,
        /// Error CQE of a receive queue; see syndrome().
        Responder = 5,
        /// The caller's length is more than the queue takes; nothing was posted.
        TooLong = 6,
        /// The queue's error word is of a kind unknown to this library.
        BadError = 7,
        /// The NIC reported a completion of work that is not in flight.
        StrayCqe = 8,
        /// Not in the heap for all its length, or not aligned for its word.
        BadAddress = 9,
        /// No rank of the heap, or not reached in the way that was asked for.
        NoPeer = 10,
        /// The host has given the awaited rank up.
        PeerLost = 11,
        /// An atomic on a heap that others reach by RDMA and this rank does not.
        MixedRoutes = 12,
        /// A token names an expert that there is not, or one twice; the choice was left out.
        BadRouting = 13,
        /// A peer's word belongs to a later call than the awaited one.
        Skew = 14,
        /// The queue pair's NIC has no such atomic.
        Unsupported = 15,
    }

    /// How a call ended, and what the NIC said: of an error CQE alone, else 0.
    pub word Status[code: u32] with "WV_HD constexpr bool ok() const { return code == 0; }" {
        /// An [`Outcome`].
        kind: u8 as "outcome" = 0..8,
        /// Syndrome byte of the CQE.
        syndrome: u8 = 8..16,
        /// Vendor syndrome byte of the CQE; advisory.
        vendor: u8 = 16..24,
        /// Opcode of the failed WQE.
        wqe_opcode: u8 = 24..32,
    }

    /// The purpose of a wait; PostState.fault.what.
    pub open enum WaitFor: u32 as "wait_for" {
        /// Nothing.
        None = 0,
        /// Expected: `completed` of the send queue; actual: what it was.
        SendRoom = 1,
        /// The same.
        Completion = 2,
        /// Expected: `completed` of the receive queue; actual: what it was.
        ReceiveRoom = 3,
        /// Expected: index of the next receive completion; actual: the same.
        Receive = 4,
        /// Expected: the operand; actual: the word's value.
        Signal = 5,
        /// Expected: 1 free scratch slot; actual: 0.
        Scratch = 6,
        /// Expected: number of the call; actual: how often the awaited rank has come.
        Barrier = 7,
        /// Expected: sequence number of a message; actual: that of the line looked at.
        Mail = 8,
        /// Expected: messages the peer has taken in all; actual: the same.
        Credit = 9,
        /// Expected: an EpWord; actual: the same. Of a rank's rows for this one, their number.
        EpCounts = 10,
        /// The same: that a rank's rows have come.
        EpRows = 11,
        /// The same: that a rank has consumed rows and returned results.
        EpResults = 12,
        /// Expected: epoch of a plan that another block of this launch makes; actual: that of the last.
        EpPlan = 13,
    }
}
