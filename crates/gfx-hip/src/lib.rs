//! A `libamdhip64` whose devices are emulated: the functions of HIP's run time that `warpverbs-gpu` calls, and of its
//! compiler, over [an emulator](warpverbs_gfx). For tests: a program takes it for AMD's library if
//! `WARPVERBS_HIP` names this file, and the devices call themselves "emulated gfx942". `WARPVERBS_GFX_TARGET` names
//! another target.
//!
//! Device memory is memory of the process, backed by memfds, so that other processes map it by descriptor, and
//! a software NIC reads the bytes that kernels write. Each stream is a thread. A kernel that fails takes both
//! devices with it, as a GPU's does: all calls then say so.
//!
//! | | here |
//! |---|---|
//! | allocations, IPC, virtual memory management, dmabufs | memfds |
//! | registered host memory | has one address for host and kernels |
//! | HIPRTC | runs `clang++-19` (or what `WARPVERBS_CLANG` names), which needs `lld-19` |

#![allow(non_snake_case, reason = "names of HIP")]

mod code;
mod device;
mod handles;
mod ipc;
mod launch;
mod memory;
mod rtc;
mod state;
mod stream;
