//! Calls of kernels on views of registered memory, `warpverbs/nixl.h`: two agents in one process that
//! reach each other by loads and stores or by RDMA through the software NIC. The effects of the
//! calls are compared with copies on plain vectors. A failure prints the seed that repeats it.

mod agents;
mod calls;
mod deferred;
mod guide;
mod lists;
mod litmus;
mod misuse;
