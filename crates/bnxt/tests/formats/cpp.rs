//! The header that is checked in is that of the tables.

use std::path::{Path, PathBuf};
use warpverbs_kernel_build::generated;
use warpverbs_bnxt::header::HEADER;

fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/include")
}

#[test]
fn the_header_is_that_of_the_tables() {
    generated(&include().join("warpverbs").join(HEADER.path), &HEADER.to_string()).unwrap();
}
