//! Orders to the linker of the library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Programs that are linked with it look for it by this name.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnixl_capi.so");
    // It has threads, which go on when a program unloads it.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
