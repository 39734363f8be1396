//! Memory of the program, lent to an agent while it is registered.

use crate::agent::life::lock;
use crate::lists::RegionList;
use pyo3::prelude::*;
use std::sync::Arc;
use warpverbs_gpu::{Buffer, Gpu, Keep};
use warpverbs_mem::{Mapped, Region};
use warpverbs_nixl::{Agent, Desc, Error, Kind, RegList, Status};

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
        let look = (self.list.kind == Kind::Dram).then(Mapped::now).transpose();
        let mapped = look.map_err(|error| Error::new(Status::Unknown, error.to_string()))?;
        agent.register(&self.list, &mut |gpu, desc| self.adopt(mapped.as_ref(), gpu, desc))
    }

    fn adopt(
        &self,
        mapped: Option<&Mapped>,
        gpu: Option<&Arc<dyn Gpu>>,
        desc: &Desc,
    ) -> Result<Buffer, String> {
        let Desc { addr, len, .. } = *desc;
        let bytes = usize::try_from(len).map_err(|error| error.to_string())?;
        if let Some(gpu) = gpu {
            // SAFETY: the program promises that memory which it registers stays until it deregisters it;
            // that of a tensor is kept.
            let adopted = unsafe { gpu.adopt(addr, bytes, self.keep.clone()) };
            return adopted.map_err(|error| error.to_string());
        }
        if let Some(mapped) = mapped {
            let found = mapped.check(addr, len);
            found.map_err(|found| {
                format!("{found}, expected memory that can be read and written")
            })?;
        }
        // SAFETY: the range is mapped for reading and writing, and the program promises that it stays so
        // until it deregisters it; that of a tensor is kept.
        let region = unsafe { Region::foreign(addr, bytes, self.keep.clone()) };
        Ok(Buffer::of_region(region))
    }
}
