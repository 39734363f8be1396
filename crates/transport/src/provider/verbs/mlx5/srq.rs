//! Shared receive queues that the device reads itself: receive memory pools of its firmware.

use super::super::events::device_number;
use super::command;
use super::events::ObjectEvents;
use crate::provider::SharedQueue;
use std::sync::Arc;
use warpverbs_verbs::mlx5dv::Object;

/// One; its object keeps all that it uses, and QPs keep the object.
pub(super) struct Mlx5Srq {
    pool: Arc<Object>,
    _events: Option<Arc<ObjectEvents>>,
}

impl Mlx5Srq {
    pub(super) fn new(pool: Object, events: Option<Arc<ObjectEvents>>) -> Self {
        Self { pool: Arc::new(pool), _events: events }
    }

    pub(super) fn object(&self) -> &Arc<Object> {
        &self.pool
    }
}

impl SharedQueue for Mlx5Srq {
    fn srqn(&self) -> u32 {
        device_number(self.pool.number())
    }

    fn set_limit(&self, limit: u16) {
        let limited = self.pool.modify(&command::limit_pool(self.pool.number(), limit));
        if let Err(error) = limited {
            tracing::warn!(%error, limit, "a shared receive queue reports no limit");
        }
    }
}
