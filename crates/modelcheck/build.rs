//! Compiles the scenarios against the device library, every memory operation of which the checker
//! performs (`arch/check.h`).

fn main() {
    let include = "../../kernels/include";
    println!("cargo:rerun-if-changed={include}");
    println!("cargo:rerun-if-changed=scenarios");
    cc::Build::new()
        .cpp(true)
        .cpp_link_stdlib(None)
        .std("c++20")
        .opt_level(2)
        .warnings(true)
        .extra_warnings(true)
        .flag("-fno-strict-aliasing")
        .flag_if_supported("-fno-exceptions")
        .flag_if_supported("-fno-rtti")
        .define("WV_CHECK", None)
        .include(include)
        .file("scenarios/post.cc")
        .compile("wv_scenarios");
}
