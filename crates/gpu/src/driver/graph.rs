//! Graphs: several kernels by one call of the driver.

use super::calls::Resource;
use super::launch::{Started, Streams};
use super::owned::Owned;
use crate::graph::{GraphState, Step};
use crate::{Dim, GpuError, KernelArgs, Launch};
use std::sync::Arc;
use std::time::Duration;

/// A graph of the driver with what its kernels refer to.
struct Held {
    raw: u64,
    _graph: Owned,
    _args: Vec<KernelArgs>,
}

/// Kernels that the driver has recorded.
pub(crate) struct DriverGraph {
    streams: Arc<Streams>,
    held: Arc<Held>,
    /// The first kernel, for messages.
    first: (&'static str, Dim),
    /// The largest part of the device that one of the kernels takes.
    footprint: u64,
}

impl DriverGraph {
    /// Of steps that have been checked, with the functions of their kernels. The first is named in messages.
    pub(crate) fn new(
        streams: &Arc<Streams>,
        first: (&'static str, Dim),
        steps: &[(Step, super::Function)],
    ) -> Result<Self, GpuError> {
        let driver = streams.context().driver();
        let _entered = driver.entered()?;
        let args: Vec<_> = steps.iter().map(|(step, _)| step.kernel.args()).collect();
        let (mut kernels, mut most) = (Vec::new(), 0);
        for ((Step { kernel, dim, .. }, function), args) in steps.iter().zip(&args) {
            let (prepared, footprint) = streams.prepare(*function, kernel.entry(), *dim, args)?;
            kernels.push(prepared);
            most = most.max(footprint);
        }
        // SAFETY: loaded functions, each with as many pointers as it has parameters, to as many bytes as
        // those have, which the call copies.
        let raw = unsafe { driver.record(&mut kernels) }?;
        let graph = Owned::new(driver, Resource::Graph(raw));
        let held = Arc::new(Held { raw, _graph: graph, _args: args });
        Ok(Self { streams: streams.clone(), held, first, footprint: most })
    }
}

impl GraphState for DriverGraph {
    fn launch(&self, deadline: Duration) -> Result<Launch, GpuError> {
        let driver = self.streams.context().driver();
        let _entered = driver.entered()?;
        let raw = self.held.raw;
        let held = self.held.clone();
        let started = Started::enqueue(
            &self.streams,
            self.first,
            self.footprint,
            deadline,
            held,
            |stream| {
                // SAFETY: a live graph and stream; its kernels are `SafeKernel`s that passed their checks,
                // and what lies behind their pointers stays valid, since the launch keeps `held`.
                unsafe { driver.launch_graph(raw, stream) }
            },
        )?;
        Ok(Launch::new(Box::new(started), deadline))
    }
}
