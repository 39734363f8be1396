//! Options of a registration.

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

    /// Allows a bounce buffer for memory of a GPU that an RDMA device cannot reach: pinned host memory
    /// of the same size, with copies by the CPU before and after each transfer. It is used only where
    /// every other way fails. Peers get no rights to such memory, since their accesses cannot be seen.
    /// The software NIC copies by itself and ignores this.
    #[must_use]
    pub const fn bounce(self, bounce: bool) -> Self {
        Self { bounce, ..self }
    }

    /// The device's writes may overtake one another on their way to this memory; only a completion
    /// tells that all have arrived. Faster on some hosts, wrong for code that polls the last byte of a
    /// message. Left out where device or kernel do not know it.
    #[must_use]
    pub const fn relaxed_ordering(self, relaxed: bool) -> Self {
        Self { relaxed_ordering: relaxed, ..self }
    }

    /// The rights.
    pub const fn access(&self) -> Access {
        self.access
    }

    /// Whether a bounce buffer may be used.
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
