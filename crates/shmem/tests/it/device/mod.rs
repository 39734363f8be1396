//! Calls of kernels on a symmetric heap whose ranks are pieces of memory of one process: reached
//! directly, by RDMA through the software NIC, or both. The effects of the calls are compared with
//! a model that knows nothing of routes. A failure prints the seed that repeats it.

mod atomics;
mod barriers;
mod litmus;
mod mail;
mod misuse;
mod moves;
mod ranks;
mod signals;
