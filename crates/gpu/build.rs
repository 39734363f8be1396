//! Compiles the thread-local word that kernels and the SIMT scheduler share: a C++ `__thread`
//! variable, because a stable Rust thread-local has no symbol that C++ could name. Then the kernels of
//! this package.

use warpverbs_kernel_build::{BuildError, Builder, headers};

fn main() -> Result<(), BuildError> {
    println!("cargo:rerun-if-changed=src/simt/tls.cc");
    for name in ["simt.h", "host.h", "host_ops.h", "types.h"] {
        println!("cargo:rerun-if-changed={}/warpverbs/arch/{name}", headers().display());
    }
    cc::Build::new()
        .cpp(true)
        .cpp_link_stdlib(None)
        .std("c++20")
        .include(headers())
        .file("src/simt/tls.cc")
        .compile("wv_simt_tls");
    Builder::new("kernels").gpu_path("crate").compile()
}
