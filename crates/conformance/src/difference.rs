//! Where NICs are known to differ from the specification.

use crate::{Kind, Setup, Which};

/// A case that some NICs are known not to pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The case.
    pub case: &'static str,
    /// Whose NIC it depends on.
    pub side: Which,
    /// Which NICs.
    pub kind: Kind,
    /// How the names of the devices begin; empty for all of the kind.
    pub device: &'static str,
    /// Why.
    pub reason: &'static str,
}

/// All that are known. One that is listed here and passes all the same is a failure of the list.
pub const DIFFERENCES: &[Difference] = &[
    Difference {
        case: "masked_atomics",
        side: Which::A,
        kind: Kind::Verbs,
        device: "",
        reason: "libibverbs has no request for extended atomics; the work request is refused",
    },
    Difference {
        case: "kernel_masked_atomics",
        side: Which::A,
        kind: Kind::Verbs,
        device: "",
        reason: "libibverbs has no request for extended atomics; the work request is refused",
    },
    Difference {
        case: "masked_atomics",
        side: Which::B,
        kind: Kind::Verbs,
        device: "rxe",
        reason: "soft-RoCE does not know extended atomics, and does not answer them",
    },
    Difference {
        case: "kernel_masked_atomics",
        side: Which::B,
        kind: Kind::Verbs,
        device: "rxe",
        reason: "soft-RoCE does not know extended atomics, and does not answer them",
    },
    Difference {
        case: "local_invalidate",
        side: Which::A,
        kind: Kind::Verbs,
        device: "",
        reason: "devices do not invalidate ordinary registrations; the work request is refused",
    },
    Difference {
        case: "local_invalidate",
        side: Which::A,
        kind: Kind::Direct,
        device: "",
        reason: "devices do not invalidate ordinary registrations",
    },
    Difference {
        case: "send_invalidate",
        side: Which::B,
        kind: Kind::Direct,
        device: "",
        reason: "devices do not invalidate ordinary registrations, and do not answer the message",
    },
    Difference {
        case: "kernel_receives_invalidate",
        side: Which::B,
        kind: Kind::Direct,
        device: "",
        reason: "devices do not invalidate ordinary registrations, and do not answer the message",
    },
    Difference {
        case: "send_invalidate",
        side: Which::B,
        kind: Kind::Verbs,
        device: "rxe",
        reason: "soft-RoCE does not invalidate ordinary registrations, and fails the receive",
    },
    Difference {
        case: "kernel_receives_invalidate",
        side: Which::B,
        kind: Kind::Verbs,
        device: "rxe",
        reason: "soft-RoCE does not invalidate ordinary registrations, and fails the receive",
    },
    Difference {
        case: "send_invalidate",
        side: Which::A,
        kind: Kind::Verbs,
        device: "bnxt_re",
        reason: "libbnxt_re of rdma-core writes no SEND with invalidate: it refuses it, or writes a type that there is not",
    },
    Difference {
        case: "send_invalidate",
        side: Which::B,
        kind: Kind::Verbs,
        device: "",
        reason: "devices do not invalidate ordinary registrations, and do not answer the message",
    },
    Difference {
        case: "kernel_receives_invalidate",
        side: Which::A,
        kind: Kind::Verbs,
        device: "bnxt_re",
        reason: "libbnxt_re of rdma-core writes no SEND with invalidate: it refuses it, or writes a type that there is not",
    },
    Difference {
        case: "kernel_receives_invalidate",
        side: Which::B,
        kind: Kind::Verbs,
        device: "",
        reason: "devices do not invalidate ordinary registrations, and do not answer the message",
    },
    Difference {
        case: "receive_too_small",
        side: Which::B,
        kind: Kind::Verbs,
        device: "rxe",
        reason: "soft-RoCE answers with a remote operation error instead of an invalid request",
    },
    Difference {
        case: "receive_without_right",
        side: Which::B,
        kind: Kind::Verbs,
        device: "",
        reason: "the receive is refused when it is forwarded, so no message ever meets it",
    },
];

impl Difference {
    /// The one that is known of `case` on the NICs of `setup`.
    pub(crate) fn of(case: &str, setup: &Setup) -> Option<&'static Self> {
        let [a, b] = setup.abouts();
        DIFFERENCES.iter().find(|known| {
            let nic = if known.side == Which::A { &a.nic } else { &b.nic };
            known.case == case
                && known.kind == setup.kind(known.side)
                && nic.starts_with(known.device)
        })
    }
}
