//! Every example, run as a user runs it: on the host SIMT device and the software NIC.

use crate::common::{Running, example, fails, passed, passes, run, text, well};

#[test]
fn interchange_prints_its_eight_steps() {
    let args = ["--gpu", "simt", "--nic", "soft", "--bytes", "1000", "--value", "42"];
    let stdout = well("gpu_interchange", &run("gpu_interchange", &args));
    for step in 1..=8 {
        assert!(stdout.contains(&format!("Step {step}: ")), "step {step} is not in {stdout}");
    }
    for said in ["1 NIC(s)", "All 1000 bytes verified with value 42", "regions released"] {
        assert!(stdout.contains(said), "{said:?} is not in {stdout}");
    }
}

#[test]
fn interchange_goes_between_two_devices() {
    let last = passes("gpu_interchange", &["--gpus", "0,1", "--bytes", "70000"]);
    assert!(last.contains("from host SIMT #0 to host SIMT #1"), "{last}");
    passes("gpu_interchange", &["--gpus", "simt,simt"]);
}

/// The heap's segments are memory that both devices map; forced, queue pairs carry the same.
#[test]
fn interchange_goes_by_a_symmetric_heap() {
    for (route, reached) in [("auto", "direct"), ("rdma", "rdma (loads and stores: forced")] {
        let mut command = example("heap_interchange");
        command.args(["--gpu", "simt", "--nic", "soft", "--peer", "1", "--bytes", "70001"]);
        let out = command.env("WARPVERBS_SHMEM_ROUTE", route).output().expect("the example runs");
        let stdout = well("heap_interchange", &out);
        let way = "passed: 70001 bytes went from host SIMT #0 to host SIMT #1, and as many back";
        for said in [reached, way] {
            assert!(stdout.contains(said), "{said:?} is not in {stdout}");
        }
    }
    // One device, which maps its own memory once more.
    passes("heap_interchange", &[]);
}

#[test]
fn interchange_refuses_what_it_cannot_do() {
    fails("gpu_interchange", &["--gpu", "simt", "--bytes", "0"], &["--bytes", "0"]);
    fails("gpu_interchange", &["--gpu", "simt", "--value", "256"], &["--value", "256"]);
    fails("gpu_interchange", &["--gpu", "simt", "--gpus", "0"], &["--gpus"]);
    fails("gpu_interchange", &["--gpu", "simt", "--gpus", "0,abacus"], &["--gpus", "abacus"]);
    fails("gpu_interchange", &["--gpu", "simt", "--bytes", "99999999999999"], &["--bytes"]);
    fails("heap_interchange", &["--gpu", "simt", "--bytes", "0"], &["--bytes", "0"]);
}

/// A file that does not fit into memory several times over is carried in parts.
#[test]
fn a_file_is_carried_in_little_memory() {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.as_file().set_len(128 << 20).expect("a sparse file");
    let program = example("loopback_send_recv");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -v 409600 && exec \"$@\"", "sh"]).arg(program.get_program());
    command.args(["--gpu", "simt", "--nic", "soft", "--file"]).arg(file.path());
    let last = passed(&mut command);
    assert!(last.contains("134217728 bytes arrived"), "{last}");
}

#[test]
fn a_file_is_carried_whole() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for len in [0usize, 1, 4095, 4096, 4097, 300_001] {
        let path = folder.path().join(len.to_string());
        let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + i / 251) as u8).collect();
        std::fs::write(&path, &bytes).expect("a file");
        let path = path.to_string_lossy();
        let last = passes("loopback_send_recv", &["--file", &path, "--chunk", "4096"]);
        assert!(last.contains(&format!("{len} bytes")), "{last}");
    }
}

#[test]
fn a_file_that_cannot_be_carried_is_named() {
    fails("loopback_send_recv", &["--gpu", "simt", "--file", "/no/such/file"], &["/no/such/file"]);
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().to_string_lossy().into_owned();
    fails("loopback_send_recv", &["--gpu", "simt", "--file", &path], &[&path]);
}

#[test]
fn one_sided_examples_pass() {
    passes("loopback_write", &["--bytes", "1"]);
    passes("loopback_write", &["--bytes", "5000"]);
    passes("loopback_write_inline", &[]);
    passes("loopback_read", &["--bytes", "5000"]);
    passes("loopback_atomic", &["--threads", "70"]);
    passes("host_post", &["--bytes", "5000"]);
}

#[test]
fn an_unknown_device_or_nic_is_named() {
    for name in ["loopback_write", "loopback_send_recv", "host_post", "gpu_interchange"] {
        fails(name, &["--gpu", "abacus"], &["abacus"]);
        fails(name, &["--gpu", "simt", "--nic", "mlx5_77"], &["mlx5_77", "soft"]);
        fails(name, &["--no-such-flag"], &["--no-such-flag"]);
    }
}

#[test]
fn json_is_one_line_on_stdout_and_words_on_stderr() {
    let names = ["loopback_write", "loopback_send_recv", "gpu_interchange", "loopback_atomic"];
    let file = file!();
    for name in names {
        let mut args = vec!["--gpu", "simt", "--nic", "soft", "--json"];
        if name == "loopback_send_recv" {
            args.extend(["--file", file]);
        }
        let out = run(name, &args);
        let (stdout, stderr) = (text(&out.stdout), text(&out.stderr));
        assert!(out.status.success(), "{name}: {stderr}");
        assert_eq!(stdout.lines().count(), 1, "{name}: {stdout}");
        let json: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
        assert_eq!((&json["result"], &json["nic"]), (&"passed".into(), &"soft0".into()), "{name}");
        assert!(stderr.lines().last().is_some_and(|l| l.starts_with("passed")), "{name}: {stderr}");
    }
}

#[test]
fn a_reader_that_has_left_ends_an_example_without_a_word() {
    for name in ["host_post", "gpu_interchange", "loopback_read"] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let out = example(name)
            .args(["--gpu", "simt", "--nic", "soft"])
            .stdout(writer)
            .output()
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!((out.status.code(), text(&out.stderr)), (Some(1), String::new()), "{name}");
    }
}

/// Both ends of an example of device-memory TCP, the second with the address that the first prints.
fn tcpx_passes(name: &str, server: &[&str], client: &[&str]) -> [String; 2] {
    let mut command = example(name);
    command.args(["server", "--bind", "127.0.0.1", "--port", "0"]).args(server);
    let mut far = Running::start(&mut command);
    let port = far.says("waiting for a client at 127.0.0.1:");
    let near = run(name, &[&["client", "127.0.0.1", "--port", &port], client].concat());
    [far.end(), near].map(|out| well(&format!("{name} {server:?} {client:?}"), &out))
}

#[test]
fn tcpx_connection_says_what_was_agreed() {
    for said in tcpx_passes("tcpx_connection", &[], &["--sockets", "2"]) {
        assert!(said.contains("2 sockets") && said.contains("into host memory"), "{said}");
    }
    fails(
        "tcpx_connection",
        &["client", "127.0.0.1", "--port", "1", "--wait", "5"],
        &["connecting"],
    );
    fails("tcpx_connection", &["server", "--sockets", "0"], &["number of sockets is 0"]);
}

#[test]
fn tcpx_transfer_moves_every_byte() {
    for bytes in ["1", "300001"] {
        let client = ["--gpu", "simt", "--bytes", bytes];
        let [far, near] = tcpx_passes("tcpx_transfer", &["--gpu", "simt"], &client);
        assert!(far.contains(&format!("{bytes} bytes received into the buffer")), "{far}");
        assert!(near.contains(&format!("{bytes} bytes, unpacked and compared")), "{near}");
    }
    fails("tcpx_transfer", &["client"], &["HOST"]);
    fails("tcpx_transfer", &["server", "--unpack", "magic"], &["magic", "kernel"]);
}
