//! Compiles the scenarios against the device library, every memory operation of which the checker
//! performs (`arch/check.h`).

fn main() {
    let include = warpverbs_kernel_build::headers();
    println!("cargo:rerun-if-changed={}", include.display());
    println!("cargo:rerun-if-changed=scenarios");
    warpverbs_kernel_build::host_compiler()
        .define("WV_CHECK", None)
        .include(include)
        .file("scenarios/post.cc")
        .file("scenarios/ep.cc")
        .compile("wv_scenarios");
}
