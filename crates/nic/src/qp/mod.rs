//! QPs, as their users hold them: reliable connections, and unreliable datagrams.

mod attrs;
mod config;
mod path;

pub use crate::objects::payload::ScatterToCqe;
pub use crate::objects::send::{DoorbellOnly, FirstError, OnSendError};
pub use attrs::{AttrMask, QpAttrs, QpInfo, ack_timeout, rnr_delay};
pub(crate) use config::check_host_memory;
pub use config::{Announcement, QpConfig, RqConfig};
pub use path::Path;
pub use warpverbs_rdma::{QpState, Service};

use crate::engine::control;
use crate::pd::Pd;
use crate::proxy_device::ProxyDevice;
use crate::shared::Shared;
use crate::slots::QpSlot;
use crate::{ModifyError, NicError, QpStats};
use std::sync::Arc;

/// A QP. Clones share it; it is destroyed with the last one, at any time, even with work in flight:
/// copies that were started end, no other work is executed, and peers get no more answers.
#[derive(Clone, Debug)]
pub struct Qp(Arc<QpInner>);

#[derive(Debug)]
struct QpInner {
    nic: Arc<Shared>,
    slot: QpSlot,
    qpn: u32,
    /// The PD and the queues outlive the QP.
    _keep: (Pd, QpConfig),
}

impl Qp {
    pub(crate) fn create(
        nic: &Arc<Shared>,
        pd: &Pd,
        config: QpConfig,
        proxy_device: Option<Box<dyn ProxyDevice>>,
    ) -> Result<Self, NicError> {
        config.check_owner(nic, pd)?;
        config.check_proxied(proxy_device.as_deref())?;
        // Not under the lock: for queues in a GPU's memory, calls of its driver are made, which may wait
        // for kernels that wait for the NIC.
        let halves = config.halves(pd, proxy_device.is_some())?;
        let mut core = nic.lock_running()?;
        let (slot, qpn) = control::insert_qp(&mut core, halves, proxy_device)?;
        drop(core);
        Ok(Self(Arc::new(QpInner { nic: nic.clone(), slot, qpn, _keep: (pd.clone(), config) })))
    }

    /// The QP's number, 24 bits.
    pub fn qpn(&self) -> u32 {
        self.0.qpn
    }

    /// Byte offset of the QP's doorbell in [`SoftNic::doorbells`](crate::SoftNic::doorbells).
    pub fn doorbell_offset(&self) -> u64 {
        u64::from(self.0.slot.0) * 8
    }

    /// The QP's state; ERR once the NIC has stopped.
    pub fn state(&self) -> QpState {
        if self.0.nic.stopped().is_some() {
            return QpState::Err;
        }
        control::query(&self.0.nic.lock(), self.0.slot).state
    }

    /// Brings the QP to another state. A refusal changes nothing and names what was wrong.
    pub fn modify(&self, to: QpState, attrs: &QpAttrs) -> Result<(), ModifyError> {
        // Work in flight is dropped after the lock.
        let mut core = self.0.nic.lock_running().map_err(|_| ModifyError::Stopped)?;
        let released = control::modify(&mut core, self.0.slot, to, attrs)?;
        drop(core);
        drop(released);
        Ok(())
    }

    /// The QP's attributes, as far as they were given since RESET.
    pub fn attrs(&self) -> QpAttrs {
        control::attrs(&self.0.nic.lock(), self.0.slot)
    }

    /// The QP as it is now.
    pub fn query(&self) -> QpInfo {
        let mut info = control::query(&self.0.nic.lock(), self.0.slot);
        if self.0.nic.stopped().is_some() {
            info.state = QpState::Err;
        }
        info
    }

    /// Counters.
    pub fn stats(&self) -> QpStats {
        control::qp_stats(&self.0.nic.lock(), self.0.slot)
    }

    /// The first error of the send queue since RESET. A collapsed CQ shows only the newest CQE, a
    /// flush; this is the cause.
    pub fn first_error(&self) -> Option<FirstError> {
        control::first_error(&self.0.nic.lock(), self.0.slot)
    }
}

impl Drop for QpInner {
    fn drop(&mut self) {
        // Memory is freed, and copies in flight are waited for, after the lock.
        let released = self.nic.take_down(|core| control::remove_qp(core, self.slot));
        drop(released);
    }
}
