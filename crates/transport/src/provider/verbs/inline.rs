//! Inline data. A device's limit is known only once a QP was created; longer inline data is copied
//! into slots of registered memory.

use crate::TransportError;
use std::iter::successors;
use warpverbs_mem::{Access, HostBuf};
use warpverbs_nic::Staging;
use warpverbs_rdma::Lkey;
use warpverbs_verbs as verbs;
use warpverbs_verbs::VerbsError;

/// Creates a QP with as much of the requested inline data as the device supports; its caps say how
/// much.
pub(super) fn create_qp(
    pd: &verbs::Pd,
    options: &verbs::QpOptions,
) -> Result<verbs::Qp, VerbsError> {
    let mut refused = None;
    for max_inline in less(options.caps.max_inline) {
        let caps = verbs::QpCaps { max_inline, ..options.caps };
        match verbs::Qp::new(pd, &verbs::QpOptions { caps, ..options.clone() }) {
            // A device rejects too much inline data with EINVAL and nothing else.
            Err(error) if error.is_invalid() && max_inline > 0 => {
                refused.get_or_insert(error);
            }
            // Refused without inline data too: the cause is something else.
            Err(error) => return Err(refused.unwrap_or(error)),
            done => return done,
        }
    }
    // The last is tried with none.
    Err(refused.unwrap_or(VerbsError::Unsupported {
        device: pd.context().device().name().to_owned(),
        what: "a queue pair",
    }))
}

/// Half as much each time, down to nothing.
fn less(asked: u32) -> impl Iterator<Item = u32> {
    successors(Some(asked), |&most| match most {
        0 => None,
        1..=16 => Some(0),
        _ => Some(most / 2),
    })
}

/// As many slots as work requests may be outstanding, each for `bytes` of inline data.
pub(super) fn slots(
    pd: &verbs::Pd,
    count: u32,
    bytes: usize,
) -> Result<(Staging, verbs::Mr), TransportError> {
    let slot = bytes.next_multiple_of(64);
    let memory = HostBuf::region(count.max(1) as usize * slot)?;
    let mr = verbs::Mr::register(pd, &memory, verbs::Registration::new(Access::empty()))?;
    Ok((Staging { memory, lkey: Lkey(mr.lkey()), slot: slot as u32 }, mr))
}

#[cfg(test)]
mod tests {
    #[test]
    fn less_and_less_is_asked_for() {
        let asked = |most| super::less(most).collect::<Vec<_>>();
        assert_eq!(asked(0), [0]);
        assert_eq!(asked(12), [12, 0]);
        assert_eq!(asked(220), [220, 110, 55, 27, 13, 0]);
    }
}
