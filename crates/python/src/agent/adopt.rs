//! Memory of the program, lent to an agent while it is registered.

use crate::agent::life::lock;
use crate::lists::RegionList;
use pyo3::prelude::*;
use std::sync::Arc;
use warpverbs_gpu::{Adopter, Keep};
use warpverbs_nixl::{Agent, Error, RegList};

/// Objects whose memory is registered. Dropping one without the interpreter is left to the next thread
/// that has it.
struct Owners(#[expect(dead_code, reason = "held, not read")] Vec<Py<PyAny>>);

/// A list as `register` needs it, taken while the interpreter is held.
pub(super) struct Lent {
    list: Arc<RegList>,
    keep: Keep,
}

impl Lent {
    /// The list as it is now, and what it keeps.
    pub(super) fn of(py: Python<'_>, list: &RegionList) -> Self {
        let owners = lock(&list.owners).iter().map(|owner| owner.clone_ref(py)).collect();
        Self { list: list.list.now(), keep: Arc::new(Owners(owners)) }
    }

    /// Registers it.
    ///
    /// # Errors
    /// The agent's, and that a range is not memory of this process.
    pub(super) fn register(self, agent: &Agent) -> Result<(), Error> {
        let mut adopter = Adopter::new(self.keep);
        agent.register(&self.list, &mut |gpu, desc| {
            // SAFETY: the program promises that memory which it registers stays until it deregisters it;
            // that of a tensor is kept.
            let adopted = unsafe { adopter.adopt(gpu.map(|gpu| &**gpu), desc.addr, desc.len) };
            adopted.map_err(|error| error.to_string())
        })
    }
}
