//! Graphs of kernels.

use super::api::Api;
use crate::GpuError;
use crate::driver::Prepared;
use cudarc::driver::sys;
use std::ptr;

/// Kernels that run one after another, ready to be launched.
///
/// # Safety
/// Loaded functions of the current context, and parameters as they have them.
pub(super) unsafe fn record(api: &Api, kernels: &mut [Prepared]) -> Result<u64, GpuError> {
    let mut graph = ptr::null_mut();
    // SAFETY: the pointer is to a live local.
    unsafe { api.cuGraphCreate(&mut graph, 0) }?;
    // SAFETY: the caller's kernels; an empty graph.
    let instance = unsafe { fill(api, graph, kernels) };
    // SAFETY: a live graph, of which an instance has its own copy.
    unsafe { api.cuGraphDestroy(graph) }?;
    instance
}

/// # Safety
/// As [`record`]; `graph` is live.
unsafe fn fill(api: &Api, graph: sys::CUgraph, kernels: &mut [Prepared]) -> Result<u64, GpuError> {
    let mut last = ptr::null_mut();
    for (index, Prepared { function, dim, params }) in kernels.iter_mut().enumerate() {
        let kernel = sys::CUDA_KERNEL_NODE_PARAMS {
            func: function.raw as sys::CUfunction,
            gridDimX: dim.grid.x,
            gridDimY: dim.grid.y,
            gridDimZ: dim.grid.z,
            blockDimX: dim.block.x,
            blockDimY: dim.block.y,
            blockDimZ: dim.block.z,
            sharedMemBytes: dim.shared,
            kernelParams: params.as_mut_ptr(),
            extra: ptr::null_mut(),
            kern: ptr::null_mut(),
            ctx: ptr::null_mut(),
        };
        let (before, mut node) = (last, ptr::null_mut());
        let count = usize::from(index != 0);
        // SAFETY: pointers to live locals; `count` nodes of this graph; a loaded function with its
        // parameters, which the call copies.
        unsafe { api.cuGraphAddKernelNode_v2(&mut node, graph, &before, count, &kernel) }?;
        last = node;
    }
    let mut instance = ptr::null_mut();
    // SAFETY: a pointer to a live local; a live graph.
    unsafe { api.cuGraphInstantiateWithFlags(&mut instance, graph, 0) }?;
    Ok(instance as u64)
}
