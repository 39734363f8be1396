//! Code objects by Debian's clang-19, and what its disassembler says of them.
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use warpverbs_gfx::Target;

/// Whether the tools are there. Where they must be, `WARPVERBS_REQUIRE_CLANG19=1`.
pub(crate) fn missing() -> bool {
    let here = |tool: &str| {
        Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success())
    };
    if here("clang++-19") && here("ld.lld-19") && here("llvm-objdump-19") {
        return false;
    }
    assert!(
        std::env::var_os("WARPVERBS_REQUIRE_CLANG19").is_none(),
        "clang-19, lld-19 and llvm-19 are required, and not all are installed"
    );
    eprintln!("SKIPPED: clang-19, lld-19 and llvm-19 are not all installed");
    true
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compiles a file for the target, with the device headers in its path, to a file of that name in `folder`.
pub(crate) fn compile(target: Target, source: &Path, folder: &Path) -> PathBuf {
    let object = folder.join(source.file_stem().expect("a file has a name")).with_extension("co");
    let status = Command::new("clang++-19")
        .args([
            "-x",
            "hip",
            "--cuda-device-only",
            &format!("--offload-arch={target}"),
            "-nogpuinc",
            "-nogpulib",
            "-std=c++20",
        ])
        .args([
            "-O2",
            "-fuse-ld=lld",
            "--no-gpu-bundle-output",
            "-gline-tables-only",
            "-Wno-pass-failed",
        ])
        .args(["-Wno-unused-function", "-Iinclude", "-Isrc", "-o"])
        .arg(&object)
        .arg(source)
        .current_dir(root().join("kernels"))
        .status();
    assert!(
        status.is_ok_and(|status| status.success()),
        "clang-19 does not compile {}",
        source.display()
    );
    object
}

/// Assembles and links a text.
pub(crate) fn assemble(target: Target, text: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let [source, object] = ["kernels.s", "kernels.co"].map(|name| folder.path().join(name));
    std::fs::write(&source, text).expect("room for the text");
    let status = Command::new("clang-19")
        .args(["--target=amdgcn-amd-amdhsa", "-x", "assembler"])
        .arg(format!("-mcpu={target}"))
        .arg(&source)
        .arg("-o")
        .arg(&object)
        .status();
    assert!(status.is_ok_and(|status| status.success()), "clang-19 does not assemble the text");
    std::fs::read(object).expect("it was just written")
}

/// A kernel file of the tree.
pub(crate) fn kernel(path: &str) -> PathBuf {
    root().join(path)
}

/// A file's code object, which several tests use.
fn object(target: Target, path: &'static str) -> &'static [u8] {
    type Objects = BTreeMap<(&'static str, &'static str), &'static [u8]>;
    static OBJECTS: Mutex<Objects> = Mutex::new(BTreeMap::new());
    let mut objects = OBJECTS.lock().expect("a test that compiles has failed");
    objects.entry((target.name(), path)).or_insert_with(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let object = compile(target, &kernel(path), folder.path());
        std::fs::read(object).expect("it was just written").leak()
    })
}

pub(crate) fn selftest(target: Target) -> &'static [u8] {
    object(target, "crates/test-kernels/kernels/selftest.cu")
}

pub(crate) fn lockstep(target: Target) -> &'static [u8] {
    object(target, "crates/test-kernels/kernels/lockstep.cu")
}

pub(crate) fn orders(target: Target) -> &'static [u8] {
    object(target, "crates/gfx/tests/kernels/orders.cu")
}

pub(crate) fn posts(target: Target) -> &'static [u8] {
    object(target, "crates/gfx/tests/kernels/posts.cu")
}

pub(crate) fn vectors(target: Target) -> &'static [u8] {
    object(target, "crates/gfx/tests/kernels/vectors.cu")
}

/// An instruction, as LLVM's disassembler has it.
pub(crate) struct Line {
    pub(crate) function: String,
    pub(crate) address: u64,
    pub(crate) text: String,
    pub(crate) words: Vec<u32>,
}

/// All instructions.
pub(crate) fn disassemble(object: &Path) -> Vec<Line> {
    let output = Command::new("llvm-objdump-19")
        .arg("-d")
        .arg(object)
        .output()
        .expect("llvm-objdump-19 runs");
    let text = String::from_utf8(output.stdout).expect("it prints ASCII");
    let (mut lines, mut function) = (Vec::new(), String::new());
    for line in text.lines() {
        if let Some((_, name)) = line.strip_suffix(">:").and_then(|line| line.split_once(" <")) {
            name.clone_into(&mut function);
        }
        let instruction = line.strip_prefix('\t').and_then(|line| line.split_once("//"));
        let Some((text, rest)) = instruction else { continue };
        let (address, words) = rest.trim().split_once(':').expect("an address and its words");
        let words = words.split_whitespace().map_while(|word| u32::from_str_radix(word, 16).ok());
        lines.push(Line {
            function: function.clone(),
            address: u64::from_str_radix(address, 16).expect("hexadecimal"),
            text: text.split_whitespace().collect::<Vec<_>>().join(" "),
            words: words.collect(),
        });
    }
    lines
}
