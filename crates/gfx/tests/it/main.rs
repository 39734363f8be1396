//! The emulator against LLVM's disassembler, against the host's arithmetic, and against broken input.
mod clang;
mod decode;
mod exercise;
mod gpu;
mod hostile;
mod selftest;
mod vectors;
