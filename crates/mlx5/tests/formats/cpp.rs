//! The C++ mirror: same bytes, same layouts, clean under two compilers and two standards.

use crate::golden::{all_vectors, files, repository};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

const STRICT: &[&str] = &["-Wall", "-Wextra", "-Werror", "-Wpedantic"];

/// The compilers that are here; there must be one.
fn compilers() -> Vec<String> {
    let named = std::env::var("CXX").ok();
    let mut found: Vec<_> = named.into_iter().chain(["g++", "clang++"].map(String::from)).collect();
    found.retain(|cxx| Command::new(cxx).arg("--version").output().is_ok());
    assert!(!found.is_empty(), "no C++ compiler: set CXX, or install g++ or clang++");
    found
}

fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&text));
    output
}

fn cxx(compiler: &str, standard: &str) -> Command {
    let mut command = Command::new(compiler);
    command.arg(format!("-std={standard}")).args(STRICT);
    command.arg("-I").arg(repository().join("kernels/include"));
    command
}

/// A place for outputs of this test run.
fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a scratch directory");
    dir
}

#[test]
fn encoders_make_the_vectors() {
    let dir = scratch("vectors");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cpp/vectors.cpp");
    let program = dir.join("vectors");
    run(cxx(&compilers()[0], "c++20").arg("-o").arg(&program).arg(source));
    let output = run(Command::new(&program).args(files()));
    let all = all_vectors().len();
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("compared {all}\n"));
    std::fs::remove_dir_all(dir).expect("remove");
}

#[test]
fn headers_stand_alone() {
    let include = repository().join("kernels/include/warpverbs");
    let entries = std::fs::read_dir(include.join("mlx5")).expect("headers");
    let mut headers: Vec<_> = entries.map(|e| e.expect("entry").path()).collect();
    headers.extend([
        include.join("qp.h"),
        include.join("arch/types.h"),
        include.join("arch/bytes.h"),
    ]);
    let dir = scratch("headers");
    for compiler in compilers() {
        for standard in ["c++17", "c++20"] {
            // One translation unit each, so that a missing #include shows.
            let mut command = cxx(&compiler, standard);
            command.arg("-fsyntax-only");
            for header in &headers {
                let unit = dir.join(header.file_stem().expect("a name")).with_extension("cpp");
                let text = format!("#include \"{}\"\n", header.display());
                std::fs::write(&unit, text).expect("write");
                command.arg(unit);
            }
            run(&mut command);
        }
    }
    std::fs::remove_dir_all(dir).expect("remove");
}

/// rdma-core's public header is installed; looked up once.
static MLX5DV: LazyLock<bool> = LazyLock::new(|| {
    let dir = scratch("probe");
    let unit = dir.join("probe.cpp");
    std::fs::write(&unit, "#include <infiniband/mlx5dv.h>\n").expect("write");
    let found = Command::new(&compilers()[0]).arg("-fsyntax-only").arg(&unit).output();
    std::fs::remove_dir_all(dir).expect("remove");
    found.is_ok_and(|output| output.status.success())
});

/// Says why a test that needs the header checks nothing.
fn mlx5dv() -> bool {
    if !*MLX5DV {
        let reason = "infiniband/mlx5dv.h is not installed (Debian: libibverbs-dev)";
        assert!(std::env::var_os("WARPVERBS_REQUIRE_RDMA_CORE").is_none(), "{reason}");
        eprintln!("SKIPPED: {reason}");
    }
    *MLX5DV
}

#[test]
fn layouts_match_mlx5dv() {
    if mlx5dv() {
        let unit = repository().join("tests/vectors/gen/layout.cpp");
        let include = repository().join("kernels/include");
        // The foreign header is not clean under our warnings.
        let mut command = Command::new(&compilers()[0]);
        run(command.args(["-std=c++20", "-fsyntax-only", "-I"]).arg(include).arg(unit));
    }
}

#[test]
fn vectors_are_what_the_generator_makes() {
    if !mlx5dv() {
        return;
    }
    let dir = scratch("gen");
    let program = dir.join("gen");
    let source = repository().join("tests/vectors/gen/gen.c");
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    run(Command::new(cc).arg("-o").arg(&program).arg(source));
    run(Command::new(&program).arg(&dir));
    let mut compared = 0;
    for committed in files() {
        let name = committed.file_name().expect("a name");
        if name == "public_error_cqe.txt" {
            continue;
        }
        let read = |path: &Path| std::fs::read_to_string(path).expect("readable");
        assert_eq!(read(&dir.join(name)), read(&committed), "{}", name.display());
        compared += 1;
    }
    let made = std::fs::read_dir(&dir).expect("made").count() - 1;
    assert_eq!(compared, made, "files made and files committed");
    std::fs::remove_dir_all(dir).expect("remove");
}
