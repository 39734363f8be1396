//! The device library: every call on every route under seeded interleavings, and what compilers and the
//! host SIMT device say of kernels.

mod bed;
mod device;
mod formats;
mod lockstep;
mod model;
mod nvrtc;
mod selftest;
mod simt;
mod views;
