//! Proofs of the handshake: digests of bytes. Sockets and connection state are elsewhere.
//!
//! ```text
//! maker                                                      accepter
//!   Hello: nonce a, digest(key, a)            ───────▶       only an end with the key gets an answer
//!                                             ◀───────       Welcome: nonce b, digest(key, a, b)
//!   Auth: digest(key, a, b), digest(own, a, b) ──────▶
//! ```
//! The key belongs to the agent that the maker asks for: a digest of the job's token and of the secret in
//! that agent's metadata, which only an end with the metadata can compute. A connection to an address,
//! with no agent named, uses the key of the job, which exists where a token is set. `own` is the key of
//! the maker's agent: an accepter that knows the maker's metadata compares it.

use crate::metadata::{Secret, keyed};
use crate::names::Owner;

/// The key that both ends of a connection must have.
pub(crate) struct Key([u8; 32]);

/// Compares two digests in constant time.
pub(crate) fn same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    one.iter().zip(other).fold(0, |differ, (one, other)| differ | (one ^ other)) == 0
}

impl Key {
    /// Key of connections to the agent with this secret.
    pub(crate) fn of_agent(token: &[u8], secret: &Secret) -> Self {
        Self(keyed(token, &[b"agent", secret.bytes()]))
    }

    /// Key of connections by address, to any agent of the job; `None` without a token.
    pub(crate) fn of_job(token: &[u8]) -> Option<Self> {
        (!token.is_empty()).then(|| Self(keyed(token, &[b"job"])))
    }

    /// Proof that the maker of a connection has the key.
    pub(crate) fn knock(&self, nonce: &[u8; 16], from: &Owner) -> [u8; 32] {
        self.digest(b"hello", [nonce, &[0; 16]], from)
    }

    /// Proof that the end in this role, of this agent, has the key now.
    pub(crate) fn proof(&self, role: Role, nonces: [&[u8; 16]; 2], owner: &Owner) -> [u8; 32] {
        self.digest(role.name(), nonces, owner)
    }

    fn digest(&self, role: &[u8], nonces: [&[u8; 16]; 2], owner: &Owner) -> [u8; 32] {
        let Owner { name, generation } = owner;
        let generation = generation.to_bytes();
        keyed(&self.0, &[role, nonces[0], nonces[1], name.as_bytes(), &generation])
    }
}

/// Which proof it is.
#[derive(Clone, Copy)]
pub(crate) enum Role {
    Accepter,
    Maker,
    /// The proof with the key of the maker's own agent.
    Identity,
}

impl Role {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Accepter => b"server",
            Self::Maker => b"client",
            Self::Identity => b"identity",
        }
    }
}
