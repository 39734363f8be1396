//! Keys of a protection domain, for a poster that hands work to the device by itself.

use super::OwnMemory;
use crate::engine::registry;
use crate::pd::Pd;
use crate::violation::{KeySide, Rule};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use warpverbs_mem::{Access, KeyHint};
use warpverbs_rdma::Lkey;
use warpverbs_rdma::Sge;

/// Regions that are remembered.
const KEPT: usize = 16;

/// A key that was looked up, and its region.
#[derive(Clone, Copy, Debug)]
struct Known {
    key: u32,
    granted: Access,
    start: u64,
    len: u64,
    device_key: Lkey,
}

/// The keys of a protection domain, and the device's keys for them. Keys found are remembered until
/// any key of the NIC is taken back, so that the NIC is seldom asked.
#[derive(Clone, Debug)]
pub struct ProxyKeys {
    pd: Pd,
    /// Changes whenever a key is taken back.
    epoch: Arc<AtomicU64>,
    seen: u64,
    hint: KeyHint,
    known: [Option<Known>; KEPT],
}

impl Pd {
    /// Its keys at the device that executes the QPs' work.
    pub fn proxy_keys(&self) -> ProxyKeys {
        let epoch = registry::key_epoch(&self.0.nic.lock());
        let seen = epoch.load(Ordering::Acquire);
        ProxyKeys { pd: self.clone(), epoch, seen, hint: KeyHint::default(), known: [None; KEPT] }
    }
}

/// Where a key is remembered. Low bits of it are as random as any.
fn place(key: u32) -> usize {
    (key >> 8) as usize % KEPT
}

impl OwnMemory for ProxyKeys {
    #[inline]
    fn at_device(
        &mut self,
        side: KeySide,
        segment: u8,
        sge: Sge,
        needed: Access,
    ) -> Result<Sge, Box<Rule>> {
        // Acquire, pairs with the release of the thread that revoked a key.
        let epoch = self.epoch.load(Ordering::Acquire);
        if epoch == self.seen
            && let Some(known) = &self.known[place(sge.lkey.0)]
            && known.key == sge.lkey.0
            && known.granted.contains(needed)
            && let offset = sge.addr.wrapping_sub(known.start)
            && offset <= known.len
            && u64::from(sge.len) <= known.len - offset
        {
            return Ok(Sge { lkey: known.device_key, ..sge });
        }
        self.ask(epoch, side, segment, sge, needed)
    }
}

impl ProxyKeys {
    #[cold]
    fn ask(
        &mut self,
        epoch: u64,
        side: KeySide,
        segment: u8,
        sge: Sge,
        needed: Access,
    ) -> Result<Sge, Box<Rule>> {
        if epoch != self.seen {
            (self.seen, self.known) = (epoch, [None; KEPT]);
        }
        let (key, pd) = (sge.lkey.0, self.pd.number());
        let core = self.pd.0.nic.lock();
        let (owner, from) = ((pd, &mut self.hint), (side, segment));
        let found = registry::find_at_device(&core, owner, from, sge, needed)?;
        let device_key = found.sge.lkey;
        if let Some((start, len)) = found.covered {
            self.known[place(key)] = Some(Known { key, granted: needed, start, len, device_key });
        }
        Ok(found.sge)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, SoftNic};
    use warpverbs_mem::HostBuf;

    #[test]
    fn what_is_remembered_is_forgotten_when_a_key_goes() {
        let nic = SoftNic::new(Config::default()).unwrap();
        let (pd, region) = (nic.alloc_pd(), HostBuf::region(4096).unwrap());
        let own = nic.reg_proxied_mr(&pd, &region, Access::empty(), 7).unwrap();
        let mut keys = pd.proxy_keys();
        let sge = Sge { addr: region.addr() + 96, len: 4000, lkey: Lkey(own.lkey()) };
        let mut key =
            |sge, needed| keys.at_device(KeySide::Local, 0, sge, needed).map(|sge| sge.lkey.0);
        for _ in 0..3 {
            assert_eq!(key(sge, Access::empty()).ok(), Some(7));
            let beyond = key(Sge { len: 4001, ..sge }, Access::empty()).unwrap_err();
            assert!(matches!(*beyond, Rule::Key { side: KeySide::Local, .. }), "{beyond}");
            assert!(key(sge, Access::LOCAL_WRITE).is_err(), "a right that it has not");
        }
        let other = nic.reg_mr(&nic.alloc_pd(), &region, Access::empty()).unwrap();
        assert!(key(Sge { lkey: Lkey(other.lkey()), ..sge }, Access::empty()).is_err());
        nic.faults().revoke(own.lkey(), true).unwrap();
        assert!(key(sge, Access::empty()).is_err(), "revoked");
        nic.faults().revoke(own.lkey(), false).unwrap();
        assert_eq!(key(sge, Access::empty()).ok(), Some(7));
        drop(own);
        assert!(key(sge, Access::empty()).is_err(), "gone");
    }
}
