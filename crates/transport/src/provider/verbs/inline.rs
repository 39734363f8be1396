//! Inline data, of which devices take as much as they like: no device tells how much before it is
//! asked, and what it does not take is copied into slots of registered memory.

use crate::Error;
use std::iter::successors;
use warpverbs_mem::{Access, HostBuf};
use warpverbs_nic::Staging;
use warpverbs_rdma::Lkey;
use warpverbs_verbs as verbs;
use warpverbs_verbs::VerbsError;

/// A QP with as much of the inline data asked for as the device has. How much it is, is in its caps.
pub(super) fn create_qp(
    pd: &verbs::Pd,
    options: &verbs::QpOptions,
) -> Result<verbs::Qp, VerbsError> {
    let mut refused = None;
    for max_inline in less(options.caps.max_inline) {
        let caps = verbs::QpCaps { max_inline, ..options.caps };
        match verbs::Qp::new(pd, &verbs::QpOptions { caps, ..options.clone() }) {
            // The only thing that a device says of what is too much.
            Err(error) if error.is_invalid() && max_inline > 0 => {
                refused.get_or_insert(error);
            }
            // What is refused without inline data as well, is refused for something else.
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

/// Less and less, down to nothing.
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
) -> Result<(Staging, verbs::Mr), Error> {
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
