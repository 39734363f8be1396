//! Values that clients want stored when their connections end.
//!
//! The protocol has no request for it: a key that begins with [`PREFIX`] and is set leaves a will
//! for the key behind the prefix, an empty value takes it back. Other stores keep such a key like
//! any other and do nothing at the end.

use std::collections::HashMap;

use super::{ClientId, ENTRY, Refusal, Replies, Store};

/// First bytes of a will's key, as it travels.
pub(crate) const PREFIX: &str = "/warpverbs-will/";

/// A key and the value that it is to get, unless it is there already.
type Will = (Vec<u8>, Vec<u8>);

/// At most one for each client; a new one replaces the old.
pub(super) type Wills = HashMap<ClientId, Will>;

fn cost((key, value): &Will) -> usize {
    ENTRY + key.len() + value.len()
}

impl Store {
    /// The key that a will names, if `key` is that of a will.
    pub(super) fn will_target(key: &[u8]) -> Option<Vec<u8>> {
        let rest = key.strip_prefix(PREFIX.as_bytes())?;
        Some([b"/", rest].concat())
    }

    pub(super) fn leave_will(
        &mut self,
        client: ClientId,
        target: Vec<u8>,
        value: Vec<u8>,
    ) -> Result<(), Refusal> {
        if let Some(old) = self.wills.remove(&client) {
            self.bytes -= cost(&old);
        }
        if value.is_empty() {
            return Ok(());
        }
        let will = (target, value);
        Self::room(&self.limits, self.bytes(), cost(&will))?;
        self.bytes += cost(&will);
        self.wills.insert(client, will);
        Ok(())
    }

    pub(super) fn carry_out_will(&mut self, client: ClientId, replies: &mut Replies) {
        let Some(will) = self.wills.remove(&client) else { return };
        self.bytes -= cost(&will);
        let (target, value) = will;
        if self.has(&target) {
            return;
        }
        if let Err(refusal) = self.set(target, value, replies) {
            tracing::warn!(%refusal, "a client's will is lost");
        }
    }
}
