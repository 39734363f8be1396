//! The headers that are checked in are those of the tables.

use crate::golden::repository;
use warpverbs_kernel_build::generated;
use warpverbs_mlx5::header::HEADERS;

#[test]
fn headers_are_those_of_the_tables() {
    for header in HEADERS {
        let file = repository().join("kernels/include/warpverbs").join(header.path);
        generated(&file, &header.to_string()).unwrap();
    }
}
