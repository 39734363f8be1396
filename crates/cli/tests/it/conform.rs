//! `warpverbs conform` as a user runs it.

use super::common::{fails, json, program, succeeds, text};
use serde_json::Value;

#[test]
fn conform_runs_the_suite_and_tells_every_case() {
    let names = succeeds("conform --list");
    assert!(names.lines().count() > 50 && names.contains("write_then_send"), "{names}");
    let list = json("conform --list --json");
    let cases = list["rows"].as_array().expect("cases");
    assert_eq!((&list["schema"], cases.len()), (&1.into(), names.lines().count()), "{list}");
    let line = |case: &Value| {
        let [name, poster, about] = ["name", "poster", "about"].map(|field| case[field].as_str());
        Some(format!("{:<26} {:<6} {}\n", name?, poster?, about?))
    };
    let lines = cases.iter().map(line).collect::<Option<String>>();
    assert_eq!(lines.as_deref(), Some(&*names));
    for place in ["", " --network", " --network ::1"] {
        let report = json(&format!("conform --nic soft --gpu simt --json{place} --case kernel_w"));
        let cases = report["rows"].as_array().expect("cases");
        assert_eq!(report["notes"], serde_json::json!(["3 passed"]), "{report}");
        assert!(cases.len() == 3 && cases.iter().all(|c| c["poster"] == "kernel"), "{report}");
    }
    let words =
        succeeds("conform --nic soft --host-only --network --case masked_at --case kernel_rea");
    assert!(words.contains("skipped") && words.contains("no device that runs kernels"), "{words}");
    assert!(words.lines().last() == Some("1 passed, 2 skipped"), "{words}");
    fails("conform --case no_such_case", &["no_such_case", "--list"]);
    fails("conform --nic mlx5_77", &["mlx5_77", "soft"]);
    fails("conform --nic mlx5_77 --network", &["--network", "mlx5_77"]);
}

#[test]
fn conform_fails_with_the_case_that_fails() {
    let out = program("conform --nic soft --host-only --network --case write_sizes")
        .env("WARPVERBS_FAULT", "loss=100%")
        .output()
        .expect("the program");
    let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
    assert_eq!(out.status.code(), Some(1), "{stdout}{stderr}");
    assert!(stdout.contains("failed   host   write_sizes"), "{stdout}");
    assert!(stdout.contains("transport retries exceeded"), "{stdout}");
    assert!(stderr.contains("1 of 1 cases did not end as they should"), "{stderr}");
}
