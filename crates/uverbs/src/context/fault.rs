//! Calls that fail because somebody asked for that: how programs clean up after each step.

use super::Context;
use crate::call::Call;
use crate::device::Device;
use crate::schema::{Access, DRIVER, Kind};
use crate::{Errno, Refusal};
use warpverbs_mlx5::prm::Status;

/// A call that is to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Which: 1 for the first that is counted. Calls that destroy an object and the one that opens
    /// the device are not.
    pub call: u32,
    /// Status that firmware would return. A call without a firmware command has the error number
    /// that the kernel makes of it.
    pub status: Status,
}

impl<D: Device> Context<D> {
    /// Has one call fail.
    pub fn fail(&mut self, fault: Fault) {
        self.fault = Some(fault);
    }

    /// Objects that the program has made and not destroyed, without those that are descriptors.
    pub fn objects(&self) -> usize {
        self.objects.len()
    }
}

impl Fault {
    /// Counts the call, and refuses it if it is the one.
    pub(super) fn count(fault: &mut Option<Self>, call: &mut Call) -> Result<(), Refusal> {
        let Some(Fault { call: left, status }) = fault else { return Ok(()) };
        let ids = (call.object.id, call.method.id);
        let mut attrs = call.method.attrs.unwrap_or(&[]).iter();
        if ids == (0, 3) || attrs.any(|a| matches!(a.kind, Kind::Object(_, Access::Destroy))) {
            return Ok(());
        }
        *left = left.saturating_sub(1);
        if *left > 0 {
            return Ok(());
        }
        let status = *status;
        *fault = None;
        let mailbox = match ids {
            (DRIVER, DRIVER) => Some(DRIVER + 1),
            (0x1001, _) => Some(DRIVER + 2),
            _ => None,
        };
        let errno = match mailbox {
            Some(id) => {
                let mut answer = vec![0; call.room(id).unwrap_or(0)];
                status.emit(0xfa17, &mut answer);
                call.answer(id, answer);
                Errno::EREMOTEIO
            }
            None => errno_of(status),
        };
        Err(Refusal::new(errno, format!("fails on purpose: {status:?}")))
    }
}

/// `mlx5_cmd_check` of the kernel's driver.
fn errno_of(status: Status) -> Errno {
    match status {
        Status::Busy => Errno::EBUSY,
        Status::Limit => Errno::ENOMEM,
        Status::NoResources => Errno::EAGAIN,
        Status::BadOpcode
        | Status::BadParameter
        | Status::BadResource
        | Status::BadResourceState
        | Status::BadIndex
        | Status::BadQpState => Errno::EINVAL,
        Status::Ok
        | Status::Internal
        | Status::BadSystemState
        | Status::BadInputLength
        | Status::BadOutputLength => Errno::EIO,
    }
}
