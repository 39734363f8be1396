//! What a registration asks for besides the memory.

use warpverbs_mem::Access;

/// How memory is to be registered. [`Access`] alone will do where nothing else is asked for.
///
/// ```
/// use warpverbs_transport::{Access, RegisterOptions};
///
/// let options = RegisterOptions::new(Access::LOCAL_WRITE).bounce(true).relaxed_ordering(true);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegisterOptions {
    access: Access,
    bounce: bool,
    relaxed_ordering: bool,
}

impl RegisterOptions {
    /// Memory that may be used like this; reading by the own side is always allowed.
    pub const fn new(access: Access) -> Self {
        Self { access, bounce: false, relaxed_ordering: false }
    }

    /// Memory of a GPU that an RDMA device cannot reach may be stood in for by pinned host memory of
    /// the same size, with copies by the CPU before and after each transfer. It is the last way, and
    /// the slowest. Peers cannot be given rights to such memory, since nobody sees when they use it.
    /// The software NIC, which copies by itself, needs no such leave.
    #[must_use]
    pub const fn bounce(self, bounce: bool) -> Self {
        Self { bounce, ..self }
    }

    /// The device's writes may overtake one another on their way to this memory; only a completion
    /// tells that all have arrived. Faster on some hosts, wrong for whoever polls the last byte of a
    /// message. Left out where device or kernel do not know it.
    #[must_use]
    pub const fn relaxed_ordering(self, relaxed: bool) -> Self {
        Self { relaxed_ordering: relaxed, ..self }
    }

    /// The rights.
    pub const fn access(&self) -> Access {
        self.access
    }

    /// Whether host memory may stand in.
    pub const fn may_bounce(&self) -> bool {
        self.bounce
    }

    /// Whether writes may overtake one another.
    pub const fn is_relaxed(&self) -> bool {
        self.relaxed_ordering
    }
}

impl From<Access> for RegisterOptions {
    fn from(access: Access) -> Self {
        Self::new(access)
    }
}
