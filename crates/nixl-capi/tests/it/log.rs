//! The library's lines on standard error.

use crate::bed::{INVALID_PARAM, NOT_FOUND, call, made, text};
use std::process::Command;

const SPEAKS: &str = "WARPVERBS_TEST_SPEAKS";

/// Does nothing unless [`lines`] has started this program for it.
#[test]
fn speaks() {
    if std::env::var_os(SPEAKS).is_none() {
        return;
    }
    let agent = made("nixl_capi_create_agent", &[text(c"speaks")]);
    for _ in 0..5 {
        assert_eq!(call("nixl_capi_destroy_params", &[0]), INVALID_PARAM);
    }
    assert_eq!(call("nixl_capi_destroy_agent", &[0]), INVALID_PARAM);
    // A question whose answer is no.
    assert_eq!(call("nixl_capi_check_remote_md", &[agent, text(c"nobody"), 0]), NOT_FOUND);
}

/// How many errors and other lines of the library a program of the above has at a level.
fn lines(level: Option<&str>) -> (usize, usize) {
    let mut program = Command::new(std::env::current_exe().unwrap());
    program.args(["--exact", "log::speaks", "--nocapture"]).env(SPEAKS, "1");
    program.env_remove("NIXL_LOG_LEVEL").envs(level.map(|level| ("NIXL_LOG_LEVEL", level)));
    let output = program.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    let all: Vec<_> = text.lines().filter(|line| line.contains(" nixl: ")).collect();
    let errors = all.iter().filter(|line| line.contains("ERROR")).count();
    (errors, all.len() - errors)
}

#[test]
fn an_error_is_said_once_and_as_loud_as_is_wished() {
    assert_eq!(lines(None), (2, 0));
    assert_eq!(lines(Some("ERROR")), (2, 0));
    assert_eq!(lines(Some("FATAL")), (0, 0));
    // The four repetitions, and the answer.
    assert_eq!(lines(Some("debug")), (2, 5));
}
