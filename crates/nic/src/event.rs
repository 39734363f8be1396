//! Asynchronous events: what the NIC has to say besides completions.

use std::collections::VecDeque;

/// One event. Names in brackets are those of verbs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AsyncEvent {
    /// A send queue failed and the QP went to ERR or SQE (`QP_FATAL`).
    QpFatal {
        /// The QP.
        qpn: u32,
        /// Syndrome of its first error; 0x02 if a CQ of it overran, of which an event was raised
        /// before.
        syndrome: u8,
    },
    /// A peer's request was refused for its key or range; the QP went to ERR (`QP_ACCESS_ERR`).
    QpAccessError {
        /// The QP.
        qpn: u32,
    },
    /// A peer's request was invalid; the QP went to ERR (`QP_REQ_ERR`).
    QpRequestError {
        /// The QP.
        qpn: u32,
    },
    /// In SQD, everything that was started is over (`SQ_DRAINED`).
    SqDrained {
        /// The QP.
        qpn: u32,
    },
    /// A QP on an SRQ went to ERR and will take no more from it (`QP_LAST_WQE_REACHED`).
    LastWqeReached {
        /// The QP.
        qpn: u32,
    },
    /// A CQE found no room; the CQ is dead and its QPs went to ERR (`CQ_ERR`).
    CqOverrun {
        /// The CQ.
        cqn: u32,
    },
    /// Fewer receives are left than the limit that was set, which is thereby spent
    /// (`SRQ_LIMIT_REACHED`).
    SrqLimit {
        /// The SRQ.
        srqn: u32,
        /// Receives left.
        left: u16,
    },
    /// An SRQ's WQE or link was invalid; the SRQ gives nothing any more (`SRQ_ERR`).
    SrqError {
        /// The SRQ.
        srqn: u32,
    },
    /// A port of the device that executes proxied QPs came up or went down (`PORT_ACTIVE`, `PORT_ERR`).
    Port {
        /// Its number, from 1.
        port: u8,
        /// It is up.
        active: bool,
    },
    /// The device that executes proxied QPs is gone, or does not work any more (`DEVICE_FATAL`).
    DeviceFatal,
    /// A WQE that asked for an event (CE = 3) completed.
    Completion {
        /// The CQ.
        cqn: u32,
    },
}

/// Events not yet polled, bounded.
#[derive(Debug)]
pub(crate) struct Events {
    queue: VecDeque<AsyncEvent>,
    kept: usize,
    pub(crate) lost: u64,
}

impl Events {
    pub(crate) fn new(kept: usize) -> Self {
        Self { queue: VecDeque::new(), kept, lost: 0 }
    }

    pub(crate) fn push(&mut self, event: AsyncEvent) {
        if self.queue.len() < self.kept {
            self.queue.push_back(event);
        } else {
            self.lost += 1;
        }
        tracing::debug!(?event, "async event");
    }

    pub(crate) fn pop(&mut self) -> Option<AsyncEvent> {
        self.queue.pop_front()
    }
}
