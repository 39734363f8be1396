//! What users link: Context, Device, Endpoint, MemoryRegion.
#![forbid(unsafe_code)]
mod post;
