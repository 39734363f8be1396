//! Secrets with which peers may connect to a listener.

use rustc_hash::FxHashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Secrets with each of which one link may begin. Copies are of the same set: another thread
/// adds secrets, and revokes them, while a listener accepts.
#[derive(Clone, Debug, Default)]
pub struct Invitations(Arc<Mutex<FxHashSet<[u8; 16]>>>);

impl Invitations {
    fn set(&self) -> MutexGuard<'_, FxHashSet<[u8; 16]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A link may begin with this secret, which is random.
    pub fn add(&self, secret: [u8; 16]) {
        self.set().insert(secret);
    }

    /// None may begin any more; whether one still could. One that has begun goes on.
    pub fn revoke(&self, secret: &[u8; 16]) -> bool {
        self.set().remove(secret)
    }
}

/// The secret that a listener asks for.
#[derive(Clone, Debug)]
pub enum Admission {
    /// A secret that all peers share; zeros are known to everybody.
    Secret([u8; 16]),
    /// A secret for each link.
    Invited(Invitations),
}

impl Admission {
    /// Whether anybody may connect.
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Self::Secret(secret) if *secret == [0; 16])
    }

    pub(super) fn knows(&self, secret: &[u8; 16]) -> bool {
        match self {
            Self::Secret(own) => own == secret,
            Self::Invited(invitations) => invitations.set().contains(secret),
        }
    }

    /// Whether a link may begin with this secret. Another one with the same may not, if each
    /// has its own.
    pub(super) fn take(&self, secret: &[u8; 16]) -> bool {
        match self {
            Self::Secret(own) => own == secret,
            Self::Invited(invitations) => invitations.revoke(secret),
        }
    }
}
