//! A program's memory and a device that are only models, and a writer of calls.

pub(crate) mod call;
pub(crate) mod device;
pub(crate) mod memory;
pub(crate) mod script;
