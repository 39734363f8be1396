//! Compiles the thread-local word that kernels and the SIMT scheduler share: a C++ `__thread`
//! variable, because a stable Rust thread-local has no symbol that C++ could name. Then the kernels of
//! this package.

use warpverbs_kernel_build::{BuildError, Builder};

fn main() -> Result<(), BuildError> {
    let include = "../../kernels/include";
    println!("cargo:rerun-if-changed=src/simt/tls.cc");
    println!("cargo:rerun-if-changed={include}/warpverbs/arch/simt.h");
    println!("cargo:rerun-if-changed={include}/warpverbs/arch/host.h");
    println!("cargo:rerun-if-changed={include}/warpverbs/arch/host_ops.h");
    println!("cargo:rerun-if-changed={include}/warpverbs/arch/types.h");
    cc::Build::new()
        .cpp(true)
        .cpp_link_stdlib(None)
        .std("c++20")
        .include(include)
        .file("src/simt/tls.cc")
        .compile("wv_simt_tls");
    let headers = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/include");
    Builder::new("kernels").include(headers).gpu_path("crate").compile()
}
