//! Two hosts on a perfect cable, each with memory that only a copy engine reaches.

use warpverbs_dev::{Device, Net};
use warpverbs_mlx5::cqe::Cqe;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::{Position, WqeBuilder};
use warpverbs_nic::QpAttrs;

/// More than a chunk of bounce buffers.
pub(crate) const LEN: usize = 1 << 20;

/// Two hosts on a perfect cable, and a buffer of 1 MiB on a device of its own at either.
pub(crate) struct Rig {
    pub(crate) net: Net,
    pub(crate) near: Device,
    pub(crate) far: Device,
}

pub(crate) fn attrs() -> QpAttrs {
    QpAttrs { timeout: Some(8), retry: Some(2), rnr_retry: Some(1), ..QpAttrs::default() }
}

pub(crate) fn rig() -> Rig {
    rig_with(attrs())
}

pub(crate) fn rig_with(attrs: QpAttrs) -> Rig {
    let net = Net::perfect(attrs);
    let [near, far] = [&net.a, &net.b].map(|host| Device::new(&host.nic, &host.pd, LEN, 0));
    Rig { net, near, far }
}

impl Rig {
    /// More steps than anything takes that need not wait for a copy. Time stands still.
    pub(crate) fn steps(&self) {
        for _ in 0..200 {
            self.net.a.nic.step();
            self.net.b.nic.step();
        }
    }

    pub(crate) fn post(
        &mut self,
        build: impl for<'x> FnOnce(&'x mut [u8], Position) -> WqeBuilder<'x>,
    ) {
        self.net.a.port.post_wqe(build);
    }

    /// Copies are carried out without being allowed, but not at once.
    pub(crate) fn go(&self) {
        for device in [&self.near, &self.far] {
            device.copier.pace(3);
        }
    }

    pub(crate) fn sent(&mut self) -> Option<Result<(), Syndrome>> {
        outcome(self.net.a.port.poll_send())
    }

    pub(crate) fn received(&mut self) -> Option<Result<(), Syndrome>> {
        outcome(self.net.b.port.poll_recv())
    }
}

pub(crate) fn outcome(cqe: Option<Cqe>) -> Option<Result<(), Syndrome>> {
    Some(match cqe? {
        Cqe::Error { syndrome, .. } => Err(syndrome),
        _ => Ok(()),
    })
}

pub(crate) const DONE: Option<Result<(), Syndrome>> = Some(Ok(()));
