//! Every instruction of compiled kernels is decoded as LLVM's disassembler has it: length, name, operands.
use crate::clang::{self, Line};
use std::path::{Path, PathBuf};
use warpverbs_gfx::{CodeObject, Target};

/// Differences, at most a few of each mnemonic.
fn compare(object: &Path) -> (usize, Vec<String>) {
    let parsed = CodeObject::parse(&std::fs::read(object).expect("it was just written"));
    let parsed = parsed.unwrap_or_else(|error| panic!("{}: {error}", object.display()));
    let (start, code) = parsed.code();
    let (mut wrong, all) = (Vec::new(), clang::disassemble(object));
    for Line { address, text, words, .. } in &all {
        let ours = match warpverbs_gfx::decode(parsed.target(), &code[(address - start) as usize..])
        {
            Ok(inst) if inst.size() != 4 * words.len() => {
                format!("{inst}, of {} bytes", inst.size())
            }
            Ok(inst) => inst.to_string(),
            Err(error) => error.to_string(),
        };
        let mnemonic = text.split(' ').next().unwrap_or_default();
        let told = wrong.iter().filter(|line: &&String| line.contains(mnemonic)).count();
        if ours != *text && told < 3 {
            wrong.push(format!("{}: {address:#x}: {ours}; expected {text}", object.display()));
        }
    }
    (all.len(), wrong)
}

/// All kernels of the tree but those that trap.
fn all_kernels() -> Vec<PathBuf> {
    let files = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten();
    let mut folders = vec![clang::kernel("kernels/src"), clang::kernel("crates/gfx/tests/kernels")];
    let crates = files(clang::kernel("crates")).map(|entry| entry.expect("an entry").path());
    folders.extend(crates.map(|path| path.join("kernels")));
    let kernels = folders.into_iter().flat_map(files).map(|entry| entry.expect("an entry").path());
    let is_kernel = |path: &PathBuf| {
        path.extension().is_some_and(|name| name == "cu") && !path.ends_with("faults.cu")
    };
    kernels.filter(is_kernel).collect()
}

/// Kernels that compile in seconds, or all if `WARPVERBS_GFX_KERNELS=all`; and the code objects of the folder
/// `WARPVERBS_GFX_OBJECTS`.
#[test]
fn kernels_decode_as_llvm_has_them() {
    if clang::missing() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let files = [
        "kernels/src/interchange.cu",
        "kernels/src/moe_layer.cu",
        "crates/gfx/tests/kernels/orders.cu",
        "crates/gfx/tests/kernels/posts.cu",
        "crates/gfx/tests/kernels/vectors.cu",
        "crates/gpu/kernels/blocks.cu",
        "crates/peer/kernels/probe.cu",
        "crates/test-kernels/kernels/lockstep.cu",
        "crates/test-kernels/kernels/selftest.cu",
        "crates/test-kernels/kernels/waits.cu",
    ];
    let sources = match std::env::var("WARPVERBS_GFX_KERNELS") {
        Ok(which) if which == "all" => all_kernels(),
        Ok(which) => panic!("WARPVERBS_GFX_KERNELS is {which:?}; expected all"),
        Err(_) => files.map(clang::kernel).to_vec(),
    };
    assert!(sources.len() >= files.len());
    let compile = |target: Target, (number, source): (usize, &PathBuf)| {
        // Kernels of two crates may have the same name.
        let folder = folder.path().join(format!("{target}.{number}"));
        std::fs::create_dir(&folder).expect("a folder of its own");
        clang::compile(target, source, &folder)
    };
    let of = |target| sources.iter().enumerate().map(move |source| compile(target, source));
    let mut objects: Vec<PathBuf> = Target::ALL.into_iter().flat_map(of).collect();
    if let Some(more) = std::env::var_os("WARPVERBS_GFX_OBJECTS") {
        let entries = std::fs::read_dir(more).expect("the folder of WARPVERBS_GFX_OBJECTS");
        objects.extend(entries.map(|entry| entry.expect("an entry").path()).filter(|path| {
            path.extension().is_some_and(|extension| extension == "o" || extension == "co")
        }));
    }
    let (counts, wrong): (Vec<_>, Vec<_>) = objects.iter().map(|object| compare(object)).unzip();
    let wrong = wrong.concat();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let all: usize = counts.iter().sum();
    println!("{all} instructions of {} files", objects.len());
    assert!(all > 10_000, "{all} instructions");
}
