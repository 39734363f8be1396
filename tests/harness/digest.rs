//! Digests of what was sent and of what arrived.

use anyhow::{Result, ensure};
use sha2::{Digest as _, Sha256};
use warpverbs::rendezvous::Client;

/// SHA-256 of all that was added.
#[derive(Clone, Default)]
pub(crate) struct Digest(Sha256);

impl Digest {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self(Sha256::new_with_prefix(bytes))
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn text(self) -> String {
        self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Publishes it as that of `what`.
    pub(crate) fn tell(self, store: &mut Client, what: &str) -> Result<()> {
        Ok(store.set(&format!("digest of {what}"), self.text().as_bytes())?)
    }

    /// Compares it with the other process's, and prints it as `who`.
    pub(crate) fn compare(self, store: &mut Client, who: &str, what: &str) -> Result<()> {
        let theirs = String::from_utf8(store.get(&format!("digest of {what}"))?)?;
        let ours = self.text();
        println!("[{who}] SHA-256 {ours}");
        ensure!(ours == theirs, "{what}: the digest is {ours}, that of the other process {theirs}");
        Ok(())
    }
}
