//! The headers that are checked in are those of the table.

use std::path::Path;
use warpverbs_kernel_build::generated;
use warpverbs_layout::HEADERS;

#[test]
fn headers_are_those_of_the_table() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/include/warpverbs");
    for header in HEADERS {
        generated(&folder.join(header.path), &header.to_string()).unwrap();
    }
}
