//! Rights of registered memory and of QPs, as the device wants them.

use crate::sys;
use warpverbs_mem::Access;

/// The flags of a QP whose peer has the remote rights of `access`.
pub(super) fn qp_flags(access: Access) -> u32 {
    mr_flags(access) & !sys::IBV_ACCESS_LOCAL_WRITE
}

/// [`Access::INVALIDATE`] has no flag: it is a property of memory windows.
const PAIRS: [(Access, u32); 4] = [
    (Access::LOCAL_WRITE, sys::IBV_ACCESS_LOCAL_WRITE),
    (Access::REMOTE_WRITE, sys::IBV_ACCESS_REMOTE_WRITE),
    (Access::REMOTE_READ, sys::IBV_ACCESS_REMOTE_READ),
    (Access::REMOTE_ATOMIC, sys::IBV_ACCESS_REMOTE_ATOMIC),
];

/// The flags of memory with these rights.
pub(super) fn mr_flags(access: Access) -> u32 {
    PAIRS.iter().filter(|(ours, _)| access.contains(*ours)).map(|(_, theirs)| theirs).sum()
}

/// The rights that flags stand for.
pub(super) fn from_flags(flags: u32) -> Access {
    PAIRS.iter().filter(|(_, theirs)| flags & theirs != 0).map(|(ours, _)| *ours).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_keep_their_meaning() {
        assert_eq!(mr_flags(Access::empty()), 0);
        assert_eq!(mr_flags(Access::all()), 0b1111);
        assert_eq!(mr_flags(Access::REMOTE_READ), sys::IBV_ACCESS_REMOTE_READ);
        assert_eq!(qp_flags(Access::all()), 0b1110);
        assert_eq!(from_flags(mr_flags(Access::all())), Access::all() - Access::INVALIDATE);
    }
}
