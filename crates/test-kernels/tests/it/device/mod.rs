//! The device library against the software NIC: kernels post, the NIC executes, the effects are
//! counted. On host SIMT under seeds, where a failure prints the seed that repeats it; the tests
//! marked `needs a GPU` run the same on one.

mod errors;
mod operations;
mod progress;
mod stress;
mod waits;
mod world;
