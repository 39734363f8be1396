//! The C compiler, and rdma-core's headers.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;
use warpverbs_verbs::testing::skip;

pub(crate) fn run(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let text = [output.stdout.as_slice(), &output.stderr].concat();
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&text));
    output
}

pub(crate) fn cc() -> Command {
    Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".into()))
}

/// A place for outputs of this test run.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a scratch directory");
    dir
}

/// rdma-core's public header is installed, and so is a compiler; looked up once.
static VERBS_H: LazyLock<bool> = LazyLock::new(|| {
    let dir = scratch("probe");
    let unit = dir.join("probe.c");
    std::fs::write(&unit, "#include <infiniband/verbs.h>\n").expect("write");
    let found = cc().arg("-fsyntax-only").arg(&unit).output();
    std::fs::remove_dir_all(dir).expect("remove");
    found.is_ok_and(|output| output.status.success())
});

/// Says why a test that needs the header checks nothing.
pub(crate) fn verbs_h() -> bool {
    if !*VERBS_H {
        skip("needs a C compiler and rdma-core's headers (Debian: gcc, libibverbs-dev)");
    }
    *VERBS_H
}
