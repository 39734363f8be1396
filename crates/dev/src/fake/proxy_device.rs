//! QPs and SRQs of a fake device, as the NIC sees them.

use super::{FakeDevice, FakeQp, Inner, Owned};
use rand::RngExt;
use warpverbs_nic::{
    Gone, Posted, ProxyDevice, ProxyLimits, ProxyReceiver, ProxyReceives, ProxySends, Staging,
};
use warpverbs_rdma::{Completion, Data, SendFlags, WorkRequest};

/// A QP of a [`FakeDevice`].
#[derive(Debug)]
pub struct FakeProxyDevice {
    pub(super) device: FakeDevice,
    pub(super) qpn: u32,
    pub(super) staging: Option<Staging>,
}

impl FakeProxyDevice {
    /// Passes for another QP.
    pub fn set_qpn(&mut self, qpn: u32) {
        self.qpn = qpn;
    }
}

impl ProxyDevice for FakeProxyDevice {
    fn qpn(&self) -> u32 {
        self.qpn
    }

    fn limits(&self) -> ProxyLimits {
        self.device.lock().plan.limits
    }

    fn staging(&self) -> Option<Staging> {
        self.staging.clone()
    }

    fn post_send(&mut self, list: &ProxySends) -> Posted {
        let mut inner = self.device.lock();
        let ProxyLimits { send_depth: depth, inline_bytes, .. } = inner.plan.limits;
        let most = inner.plan.takes_at_most;
        let mut count = inner.portion(most, list.len());
        let Some(qp) = inner.qps.get_mut(&self.qpn) else {
            return Posted { count: 0, refused: Some(22) };
        };
        let refused = qp.refuse_next.take();
        if refused.is_some() {
            count = 0;
        }
        let held = qp.slots.len() + list.len();
        assert!(held <= depth as usize, "{held} requests for a queue of {depth}");
        qp.stats.lists += 1;
        for WorkRequest { id, op, data, flags } in list.iter().take(count) {
            let (inline, sges) = match data {
                Data::Inline(bytes) if bytes.len() > inline_bytes as usize => {
                    panic!("{} bytes of inline data, {inline_bytes} are possible", bytes.len())
                }
                Data::Inline(bytes) => (Some(bytes.to_vec()), Vec::new()),
                Data::Sges(sges) => (None, sges.to_vec()),
            };
            qp.slots.push_back(id);
            qp.stats.requests += 1;
            let signaled = flags.contains(SendFlags::SIGNALED);
            qp.stats.signaled += u64::from(signaled);
            qp.sends.push_back(Owned { id, op, inline, sges, signaled });
        }
        if qp.failed {
            qp.fail();
        }
        Posted { count, refused }
    }

    fn post_recv(&mut self, list: &ProxyReceives) -> Posted {
        let mut inner = self.device.lock();
        let most = inner.plan.takes_at_most;
        let count = inner.portion(most, list.len());
        if let Some(qp) = inner.qps.get_mut(&self.qpn) {
            qp.receives.extend(list.iter().take(count).map(|(id, sges)| (id, sges.to_vec())));
            if qp.failed {
                qp.fail();
            }
        }
        Posted { count, refused: None }
    }

    fn poll(&mut self, out: &mut [Completion]) -> Result<usize, Gone> {
        let mut inner = self.device.lock();
        if inner.gone {
            return Err(Gone);
        }
        let most = inner.plan.polls_at_most;
        let count = inner.portion(most, out.len());
        let silent = inner.silent;
        let Inner { qps, rng, .. } = &mut *inner;
        let Some(qp) = qps.get_mut(&self.qpn).filter(|_| !silent) else { return Ok(0) };
        for (at, slot) in out.iter_mut().take(count).enumerate() {
            // In order for each queue, in any order between the two.
            let first = rng.random_range(0..2);
            let done = match qp.done[first].pop_front() {
                Some(done) => done,
                None => match qp.done[1 - first].pop_front() {
                    Some(done) => done,
                    None => return Ok(at),
                },
            };
            if let Some(at) = qp.slots.iter().position(|id| *id == done.id) {
                qp.slots.drain(..=at);
            }
            *slot = done;
        }
        Ok(count)
    }

    fn fail(&mut self) {
        self.device.with(self.qpn, FakeQp::fail);
    }

    fn has_failed(&self) -> bool {
        self.device.lock().qps.get(&self.qpn).is_none_or(|qp| qp.failed)
    }
}

impl Drop for FakeProxyDevice {
    fn drop(&mut self) {
        self.device.lock().qps.remove(&self.qpn);
    }
}

/// An SRQ of a [`FakeDevice`]. Clones share it.
#[derive(Clone, Debug)]
pub struct FakeSrq {
    pub(super) device: FakeDevice,
    pub(super) number: usize,
}

impl ProxyReceiver for FakeSrq {
    fn limits(&self) -> (u32, u32) {
        let limits = self.device.lock().plan.limits;
        (limits.recv_depth, limits.recv_sges)
    }

    fn post_recv(&mut self, list: &ProxyReceives) -> Posted {
        let mut inner = self.device.lock();
        let most = inner.plan.takes_at_most;
        let count = inner.portion(most, list.len());
        let srq = &mut inner.srqs[self.number];
        srq.extend(list.iter().take(count).map(|(id, sges)| (id, sges.to_vec())));
        Posted { count, refused: None }
    }
}
