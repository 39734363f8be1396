//! The cases and their expected results.

use serde::{Deserialize, Serialize};
use std::fmt;
use warpverbs_verbs::Status;

/// Offset of a message in its area; the bytes before and behind it are checked, too.
pub(crate) const START: u64 = 256;
/// Bytes of the longest message.
pub(crate) const LONGEST: u32 = 1 << 20;
/// Bytes on either side of a message that must stay as they were.
pub(crate) const GUARD: usize = 64;
/// Bytes of an area.
pub(crate) const AREA: u64 = LONGEST as u64 + 4096;

/// An operation of verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Op {
    Send,
    SendImm,
    SendInval,
    Write,
    WriteImm,
    Read,
    FetchAdd,
    /// The word holds what is compared with, or does not.
    CompareSwap {
        hit: bool,
    },
}

/// The deliberate fault of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Twist {
    /// Nothing.
    Fine,
    /// The receive is posted when the message has already been refused.
    LateReceive,
    /// A key that was never given out.
    BadKey,
    /// The key that a SEND has invalidated.
    DeadKey,
    /// The last bytes lie behind the region.
    Beyond,
    /// The key allows nothing to peers.
    NotAllowed,
    /// There is no receive, and hardly any retry.
    NoReceive,
    /// The receive is shorter than the message.
    ShortReceive,
    /// No queue pair has the number that requests go to.
    NobodyThere,
}

/// The name of a status, which is how both sides report an end of work.
pub(crate) fn named(status: Status) -> String {
    format!("{status:?}")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Case {
    pub(crate) op: Op,
    /// Bytes of each message.
    pub(crate) bytes: u32,
    /// Messages posted before the first is waited for.
    pub(crate) count: u32,
    pub(crate) twist: Twist,
}

impl Case {
    fn new(op: Op, bytes: u32) -> Self {
        Self { op, bytes, count: 1, twist: Twist::Fine }
    }

    fn twisted(op: Op, bytes: u32, twist: Twist) -> Self {
        Self { twist, ..Self::new(op, bytes) }
    }

    /// The statuses of the requester's work and of the receive at a responder that is Linux's
    /// `rdma_rxe`, where it is known to deviate. Newer ones may do right.
    pub(crate) fn known_of_rxe(&self) -> Option<[Status; 2]> {
        let short = self.twist == Twist::ShortReceive;
        short.then_some([Status::RemoteOperation, Status::LocalQpOperation])
    }

    /// How the requester's work must end.
    pub(crate) fn expected(&self) -> Status {
        match self.twist {
            Twist::Fine | Twist::LateReceive => Status::Success,
            Twist::BadKey | Twist::DeadKey | Twist::Beyond | Twist::NotAllowed => {
                Status::RemoteAccess
            }
            Twist::ShortReceive => Status::RemoteInvalidRequest,
            Twist::NoReceive => Status::RnrRetryExceeded,
            Twist::NobodyThere => Status::RetryExceeded,
        }
    }

    /// How each receive of the responder must end; `None` if it has none.
    pub(crate) fn expected_arrival(&self) -> Option<Status> {
        match (self.takes_receive(), self.twist) {
            (true, Twist::ShortReceive) => Some(Status::LocalLength),
            (true, Twist::Fine | Twist::LateReceive) => Some(Status::Success),
            _ => None,
        }
    }

    /// Whether each message consumes a receive.
    pub(crate) fn takes_receive(&self) -> bool {
        matches!(self.op, Op::Send | Op::SendImm | Op::SendInval | Op::WriteImm)
    }

    /// Whether a word is worked on instead of a message.
    pub(crate) fn is_atomic(&self) -> bool {
        matches!(self.op, Op::FetchAdd | Op::CompareSwap { .. })
    }

    /// Where message `i` begins on the requester's side.
    pub(crate) fn at(&self, i: u32) -> u64 {
        START + u64::from(i) * u64::from(self.bytes)
    }

    /// Where it begins on the responder's side.
    pub(crate) fn remote_at(&self, i: u32) -> u64 {
        match self.twist {
            Twist::Beyond if self.is_atomic() => AREA,
            Twist::Beyond => AREA + 1 - u64::from(self.bytes),
            _ => self.at(i),
        }
    }

    pub(crate) fn receive_bytes(&self) -> u32 {
        match (self.op, self.twist) {
            (Op::WriteImm, _) => 0,
            (_, Twist::ShortReceive) => self.bytes / 2,
            _ => self.bytes,
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.op {
            Op::Send => "SEND",
            Op::SendImm => "SEND_IMM",
            Op::SendInval => "SEND_INVAL",
            Op::Write => "WRITE",
            Op::WriteImm => "WRITE_IMM",
            Op::Read => "READ",
            Op::FetchAdd => "fetch-add",
            Op::CompareSwap { hit: true } => "compare-swap, equal",
            Op::CompareSwap { hit: false } => "compare-swap, unequal",
        })?;
        if self.count > 1 {
            write!(f, " × {}", self.count)?;
        }
        match self.twist {
            Twist::Fine => Ok(()),
            Twist::LateReceive => f.write_str(", late receive"),
            Twist::BadKey => f.write_str(", wrong key"),
            Twist::DeadKey => f.write_str(", invalidated key"),
            Twist::Beyond => f.write_str(", beyond the region"),
            Twist::NotAllowed => f.write_str(", key without the right"),
            Twist::NoReceive => f.write_str(", no receive"),
            Twist::ShortReceive => f.write_str(", short receive"),
            Twist::NobodyThere => f.write_str(", no such queue pair"),
        }
    }
}

/// Cases that one connection goes through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Group {
    pub(crate) mtu: u32,
    /// Retries when there is no receive; 7 is for ever.
    pub(crate) rnr_retry: u8,
    pub(crate) retry: u8,
    /// An answer is missed after 4.096 µs × 2^n.
    pub(crate) ack_timeout: u8,
    /// The responder is Linux's `rdma_rxe`, of which some differences are known.
    pub(crate) asks_rxe: bool,
    /// A kernel posts the work requests, many of each.
    pub(crate) by_kernel: bool,
    pub(crate) cases: Vec<Case>,
}

/// Sizes around everything that packets are cut by.
fn sizes(mtu: u32) -> Vec<u32> {
    let mut all =
        vec![0, 1, 3, 4, 63, mtu - 1, mtu, mtu + 1, 2 * mtu, 5 * mtu + 7, 1 << 16, LONGEST];
    all.sort_unstable();
    all.dedup();
    all
}

/// Properties that decide which cases there are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traits {
    pub(crate) mtu: u32,
    /// The network loses packets: only what must work, and less of it.
    pub(crate) lossy: bool,
    /// The responder's keys can be invalidated by a SEND.
    pub(crate) invalidates: bool,
    /// The responder is Linux's `rdma_rxe`.
    pub(crate) asks_rxe: bool,
    /// Kernels can post to the requester.
    pub(crate) kernels: bool,
}

/// Everything that must work, and everything that must fail in its own way.
pub(crate) fn groups(traits: &Traits) -> Vec<Group> {
    let Traits { mtu, lossy, .. } = *traits;
    let fine = |cases: Vec<Case>| Group {
        mtu,
        rnr_retry: 7,
        retry: 7,
        ack_timeout: if lossy { 15 } else { 17 },
        asks_rxe: traits.asks_rxe,
        by_kernel: false,
        cases,
    };
    let mut all = Vec::new();
    for op in [Op::Send, Op::SendImm, Op::Write, Op::WriteImm, Op::Read] {
        let mut cases: Vec<_> = sizes(mtu).into_iter().map(|bytes| Case::new(op, bytes)).collect();
        if lossy {
            cases.retain(|case| case.bytes > mtu);
        }
        cases.push(Case { count: 16, ..Case::new(op, 1) });
        cases.push(Case { count: 16, ..Case::new(op, 3 * mtu + 5) });
        all.push(fine(cases));
    }
    let atomics = [Op::FetchAdd, Op::CompareSwap { hit: true }, Op::CompareSwap { hit: false }];
    let mut cases = Vec::from(atomics.map(|op| Case::new(op, 8)));
    cases.extend(atomics.map(|op| Case { count: 16, ..Case::new(op, 8) }));
    all.push(fine(cases));
    if traits.kernels {
        for op in [Op::Write, Op::Read] {
            let sizes = [8, 63, mtu + 1, 1 << 16];
            let cases = sizes.into_iter().map(|bytes| Case::new(op, bytes));
            all.push(Group { by_kernel: true, ..fine(cases.collect()) });
        }
    }
    if !lossy {
        all.extend(refused(traits, &fine));
    }
    all
}

/// A connection for each case that ends one.
fn refused(traits: &Traits, fine: &dyn Fn(Vec<Case>) -> Group) -> Vec<Group> {
    let (mtu, mut all) = (traits.mtu, Vec::new());
    if traits.invalidates {
        let then = Case::twisted(Op::Write, 64, Twist::DeadKey);
        all.push(fine(vec![Case::new(Op::SendInval, 100), then]));
    }
    all.push(fine(vec![
        Case::twisted(Op::Send, 100, Twist::LateReceive),
        Case::twisted(Op::WriteImm, 2 * mtu + 1, Twist::LateReceive),
    ]));
    for op in [Op::Write, Op::Read, Op::FetchAdd] {
        for twist in [Twist::BadKey, Twist::Beyond, Twist::NotAllowed] {
            let bytes = if op == Op::FetchAdd { 8 } else { 2 * mtu + 1 };
            all.push(fine(vec![Case::twisted(op, bytes, twist)]));
        }
    }
    all.push(fine(vec![Case::twisted(Op::Send, 2 * mtu + 1, Twist::ShortReceive)]));
    all.push(fine(vec![Case::twisted(Op::Send, 1, Twist::ShortReceive)]));
    let none = Case::twisted(Op::Send, 100, Twist::NoReceive);
    all.push(Group { rnr_retry: 1, ..fine(vec![none]) });
    let nobody = Case::twisted(Op::Write, 100, Twist::NobodyThere);
    all.push(Group { retry: 1, ..fine(vec![nobody]) });
    all
}
