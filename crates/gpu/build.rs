//! Compiles the thread-local word that kernels and the SIMT scheduler share: a C++ `__thread`
//! variable, because a stable Rust thread-local has no symbol that C++ could name. Then the kernels of
//! this package, and the headers that kernels of all packages are compiled with on GPUs.

use warpverbs_kernel_build::{BuildError, Builder, embed_headers, headers};

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
    embed_headers()?;
    Builder::new("kernels").gpu_path("crate").compile()
}
