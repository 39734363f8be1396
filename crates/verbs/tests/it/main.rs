//! The crate against what is installed (the C compiler, the real libibverbs), and its objects on a
//! library without devices.

mod device;
mod gpu;
mod layout;
mod life;
mod modify;
mod pair;
mod real;
mod tools;
mod work;
