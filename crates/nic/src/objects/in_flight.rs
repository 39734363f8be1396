//! WQEs that were started and are not finished.

use crate::format::{Completion, SendOpcode, Wqe};
/// A WQE that was started and is not finished.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    pub(crate) info: WqeInfo,
    /// Its backend reports its completion. Otherwise it completes with the WQE before it.
    pub(crate) away: bool,
    /// A READ or an atomic.
    pub(crate) reads: bool,
}

/// The part of a WQE that is needed to retire it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WqeInfo {
    pub(crate) index: u64,
    /// Units of its queue.
    pub(crate) units: u64,
    pub(crate) opcode: SendOpcode,
    pub(crate) completion: Completion,
    pub(crate) bytes: u64,
    /// Bytes for the CQE.
    pub(crate) brought: u32,
}

impl WqeInfo {
    /// Of the WQE at `index`; `brought` is set when it starts.
    #[inline]
    pub(crate) fn of(wqe: &Wqe<'_>, index: u64) -> Self {
        Self {
            index,
            units: wqe.units,
            opcode: wqe.op.opcode(),
            completion: wqe.flags.completion,
            bytes: wqe.op.byte_len(),
            brought: 0,
        }
    }
}
