//! A library to preload, for unmodified programs of libibverbs: they run on the software NIC.
//!
//! `warpverbs run -- PROGRAM` starts a program with this library before the C library's, and with
//! a `sysfs` that has devices of ours. The program's libibverbs finds `mlx5_0` there, opens
//! `/dev/infiniband/uverbs0`, gets a `memfd`, and all that it asks of it by `ioctl` is answered
//! here, by `warpverbs-uverbs` on a NIC of `warpverbs-nic` that a thread of the program drives.
//!
//! `hooks` has the functions that take the place of the C library's, `inside` how they know
//! their own calls, `files` the open devices, `process` whose they are when the program has children,
//! `paths` more of those functions, `faults` accesses to unmapped memory, `device` and `queues` the
//! NIC, `bells` stores to doorbell pages without records, which `store` decodes and `registers` understands, `drivers` how libionic finds its device, `dv` functions of vendors' own libraries, `events` its channels, `memory` the program's memory, `gpu` that of GPUs, `dmabuf` where
//! their dmabufs lie, `cuda` what replaces functions of their driver, `record` a record of calls, `settings` what `warpverbs run` asks for.

mod bells;
// Functions of GPUs' driver are looked up as the C library of x86-64 does it.
#[cfg(target_arch = "x86_64")]
pub mod cuda;
mod device;
mod dmabuf;
pub mod drivers;
pub mod dv;
mod events;
mod faults;
mod files;
mod gpu;
pub mod hooks;
mod inside;
mod memory;
mod nic;
pub mod paths;
mod process;
mod queues;
mod real;
mod record;
mod registers;
mod say;
mod settings;
mod store;
