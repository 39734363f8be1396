//! The backend against AMD's own library, where it is installed; it needs no GPU to say that there is none, and
//! to compile.

use super::abi::{Access, AllocationProperties, IpcHandle, Location};
use super::api::Api;
use super::compile::{NAMES, options};
use super::metadata::check;
use crate::driver::rtc::Compiler;
use crate::library::open_library;
use crate::{Blocks, Entry, GpuError, Image};
use std::collections::BTreeMap;
use std::ffi::c_void;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

/// Where Debian has it: `libamdhip64-5`.
const REAL: &str = "libamdhip64.so.5";

/// Whether AMD's library is there. `WARPVERBS_REQUIRE_HIP` says that it has to be.
fn is_installed() -> bool {
    let opened = open_library("AMD's HIP run time", &[REAL]);
    let wanted = std::env::var_os("WARPVERBS_REQUIRE_HIP").is_some();
    assert!(opened.is_ok() || !wanted, "{:?}", opened.err());
    if opened.is_err() {
        println!("SKIPPED: {REAL} is not installed");
    }
    opened.is_ok()
}

#[test]
fn an_absent_run_time_is_an_error_that_names_the_file() {
    let refused = Api::load(Some("libwv-nowhere.so.7".to_owned())).err();
    let Some(GpuError::NotFound { file, .. }) = &refused else { panic!("{refused:?}") };
    assert_eq!(file, "libwv-nowhere.so.7");
}

/// Every function that is called has its name and is found by it, and there is no device.
#[test]
fn amds_library_has_every_function_and_no_device() {
    if !is_installed() {
        return;
    }
    let api = Api::load(Some(REAL.to_owned())).unwrap();
    let mut count = -1;
    // SAFETY: the pointer is to a live local.
    let counted = unsafe { api.hipGetDeviceCount(&mut count) };
    if counted.is_ok() && count > 0 {
        println!("SKIPPED: this machine has {count} AMD GPUs");
        return;
    }
    let said = counted.err().map(|error| error.to_string());
    assert_eq!(said.as_deref(), Some("hipGetDeviceCount failed: hipErrorNoDevice (100)"));
    assert_eq!(api.version().unwrap() / 10_000_000, 5);
    assert!(api.is_five());
}

/// HIPRTC of HIP 5 compiles a kernel of ours, with the headers of the device library, and its metadata has the
/// parameters that the launcher declares.
#[test]
fn amds_compiler_takes_our_kernels_and_their_parameters_are_checked() {
    if !is_installed() {
        return;
    }
    let compiler = Compiler::new(open_library(NAMES.library, &[REAL]).unwrap(), &NAMES).unwrap();
    let image = Blocks::IMAGE;
    let compiled = compiler.compile(image.source, "blocks.cu", &options("gfx90a", Some(100_000)));
    let code = compiled.unwrap_or_else(|failure| panic!("{}\n{}", failure.what, failure.log)).code;
    check(image, &code).unwrap();

    unsafe extern "C" fn nowhere(_: *const *const c_void) {}
    let declared = |name, params| {
        let entries: &'static [Entry] = Vec::leak(vec![Entry { name, params, host: nowhere }]);
        check(&Image { name: "blocks", source: "", entries, others: &[] }, &code)
    };
    let [entry, ..] = image.entries else { panic!("no kernel") };
    let mut wrong = entry.params.to_vec();
    wrong[0] += 4;
    let cases = [
        declared("other", entry.params),
        declared(entry.name, &entry.params[1..]),
        declared(entry.name, Vec::leak(wrong)),
    ];
    for refused in cases {
        assert!(matches!(refused, Err(GpuError::BadEntry { .. })), "{refused:?}");
    }
    // Cut anywhere, it is refused or whole in what counts, and nothing panics.
    for len in (0..code.len()).step_by(97) {
        let _ = check(image, &code[..len]);
    }
    let refused = check(image, b"\x7fELF");
    assert!(
        matches!(refused, Err(GpuError::Library { library: "code object", .. })),
        "{refused:?}"
    );
}

/// The numbers of `abi.rs`, by the names that they have there and in `abi.c`.
fn numbers() -> impl Iterator<Item = (&'static str, String)> {
    include_str!("abi.rs").lines().filter_map(|line| {
        let (name, value) =
            line.trim().trim_start_matches("pub(crate) const ").split_once(" = ")?;
        let name = name.split(':').next().unwrap_or_default();
        Some((name, value.trim_end_matches([';', ',']).replace('_', "")))
    })
}

/// Sizes and offsets of its structures, likewise.
fn layout() -> impl Iterator<Item = (&'static str, String)> {
    macro_rules! layout {
        ($($structure:ident: $($field:ident)*;)*) => {
            [$(
                (concat!("sizeof_", stringify!($structure)), size_of::<$structure>()),
                $((concat!(stringify!($structure), "_", stringify!($field)), offset_of!($structure, $field)),)*
            )*]
        };
    }
    let all = layout! {
        Location: kind id;
        AllocationProperties: kind handle location win32 compression;
        Access: location flags;
        IpcHandle:;
    };
    all.into_iter().map(|(name, value)| (name, value.to_string()))
}

/// How many parameters each function has that stands behind `head`, its name first.
fn parameters(text: &'static str, head: &str, behind_name: char) -> BTreeMap<&'static str, usize> {
    let functions = text.split(head).skip(1).filter_map(|rest| {
        let (name, rest) = rest.split_once(behind_name)?;
        Some((name, rest.split_once(");")?.0.split(',').count()))
    });
    functions.filter(|(name, _)| name.starts_with("hip")).collect()
}

/// Numbers, structures and signatures, against AMD's header with the C compiler.
#[test]
fn numbers_and_structures_are_those_of_amds_header() {
    let (ours, compared) = (include_str!("api.rs"), include_str!("abi.c"));
    let (required, _) = ours.split_once("optional {").unwrap();
    assert_eq!(parameters(required, "fn ", '('), parameters(compared, "\nFUNCTION(", ','));
    let words: Vec<_> = compared.split(|c: char| c != '_' && !c.is_alphanumeric()).collect();
    let known: Vec<_> = numbers().chain(layout()).collect();
    for (name, _) in &known {
        assert!(words.contains(name), "{name} is not compared in abi.c");
    }
    let header = "hip/hip_runtime_api.h";
    let folders = ["/usr/include", "/opt/rocm/include"];
    let Some(folder) = folders.iter().find(|folder| Path::new(folder).join(header).exists()) else {
        assert!(std::env::var_os("WARPVERBS_REQUIRE_HIP").is_none(), "{header} is not installed");
        println!("SKIPPED: {header} is not installed");
        return;
    };
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/hip/abi.c");
    // Complaints of the compiler, with one of the numbers replaced.
    let complaints = |number: &str, value: &str| {
        let value = |(name, own): &(&str, String)| {
            format!("-D{name}=({})", if *name == number { value } else { own })
        };
        let mut compiler = Command::new("cc");
        compiler.args(["-std=c11", "-fsyntax-only", "-I", folder, source]);
        let ran = compiler.args(known.iter().map(value)).output().unwrap();
        assert!(ran.status.success() == ran.stderr.is_empty(), "{ran:?}");
        String::from_utf8_lossy(&ran.stderr).into_owned()
    };
    assert_eq!(complaints("", ""), "");
    assert!(complaints("WarpSize", "88").contains("hipDeviceAttributeWarpSize"));
    assert!(complaints("Access_flags", "4").contains("hipMemAccessDesc"));
}
