//! States of a QP that the device reads itself.

use super::super::opened::Opened;
use super::events::ObjectEvents;
use super::{command, failed};
use crate::provider::events::Subscription;
use crate::provider::soft::attributes;
use crate::provider::{Events, PathSpec, QueuePair};
use crate::{FabricAddress, TransportError};
use std::fmt;
use std::sync::Arc;
use warpverbs_mem::{Access, Region};
use warpverbs_mlx5::prm::Command;
use warpverbs_nic::{FirstError, NicError, Path, QpState};
use warpverbs_verbs as verbs;
use warpverbs_verbs::mlx5dv::{Devx, Object, resolve};

/// A QP; its object keeps all that it uses.
pub(super) struct Mlx5Qp {
    pub(super) qp: Object,
    pub(super) cqns: [u32; 2],
    /// Its doorbell register, if it does not ring that of the domain.
    pub(super) register: Option<Region>,
    pub(super) devx: Devx,
    pub(super) pd: verbs::Pd,
    pub(super) events: Subscription,
    pub(super) opened: Arc<Opened>,
    pub(super) _events: Option<Arc<ObjectEvents>>,
}

impl fmt::Debug for Mlx5Qp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.qp)
    }
}

impl Mlx5Qp {
    fn change(&self, command: &Command) -> Result<(), TransportError> {
        self.qp.modify(command).map_err(failed)
    }
}

/// The state of a QP's context. The manual numbers the two states of an unfinished send queue the
/// other way round than libibverbs.
fn state_of(value: u32) -> QpState {
    match value {
        4 => QpState::Sqe,
        5 => QpState::Sqd,
        // One that is not known cannot be used.
        value => QpState::from_value(value).unwrap_or(QpState::Err),
    }
}

impl QueuePair for Mlx5Qp {
    fn qpn(&self) -> u32 {
        self.qp.number()
    }

    fn cqns(&self) -> [u32; 2] {
        self.cqns
    }

    fn doorbell_offset(&self) -> Option<u64> {
        Some(0)
    }

    fn own_doorbells(&self) -> Option<&Region> {
        self.register.as_ref()
    }

    fn reads_record(&self) -> bool {
        true
    }

    fn state(&self) -> QpState {
        match self.qp.query_qp() {
            Ok(context) if !self.opened.is_gone() => state_of(context.state),
            // A QP whose device does not answer cannot be used.
            _ => QpState::Err,
        }
    }

    /// The device writes it into the CQ, which keeps it, and remembers nothing.
    fn first_error(&self) -> Option<FirstError> {
        None
    }

    fn stopped(&self) -> Option<NicError> {
        self.opened.running.nic.stopped()
    }

    fn events(&self) -> Events {
        self.opened.running.events(&self.events).of_qp(self.qpn(), || self.state())
    }

    fn connect(&self, spec: &PathSpec) -> Result<(), TransportError> {
        // Everything is in range, or nothing is changed.
        attributes(spec, Path::Proxied)?;
        let path = self.opened.path(&spec.dest)?;
        let found = resolve(&self.devx, &self.pd, &path).map_err(failed)?;
        let ethernet = !matches!(self.opened.reach, FabricAddress::Infiniband { .. });
        let qpn = self.qpn();
        self.change(&command::to_rtr(qpn, spec, &path, &found, ethernet))?;
        self.change(&command::to_rts(qpn, spec, self.opened.port))
    }

    fn reset(&self) -> Result<(), TransportError> {
        self.change(&Command::QpToReset { qpn: self.qpn() })?;
        self.opened.running.forget_events(&self.events);
        Ok(())
    }

    fn init(&self, access: Access) -> Result<(), TransportError> {
        self.change(&command::to_init(self.qpn(), self.opened.port, access))
    }

    fn fail(&self) -> Result<(), TransportError> {
        self.change(&Command::QpToErr { qpn: self.qpn() })
    }
}
