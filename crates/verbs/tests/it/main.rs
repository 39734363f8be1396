//! The crate against what is installed: the C compiler, and the real libibverbs.

mod layout;
mod real;
mod tools;
