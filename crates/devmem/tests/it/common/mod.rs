//! Helpers that tests share with fuzz targets.

pub(crate) mod kernel;
pub(crate) mod script;
