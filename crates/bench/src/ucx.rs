//! UCX's own benchmark, over TCP: run on this machine, and its output read. Benchmarks that
//! compare this project with UCX use it.

use crate::child::{self, Running};
use anyhow::{Context as _, Result, bail, ensure};
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = "ucx_perftest";
/// How long a server may take to listen, and a test to end.
const START: Duration = Duration::from_secs(10);
const END: Duration = Duration::from_secs(120);

/// The result of one test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Half a round trip in nanoseconds, the median; of no meaning in a bandwidth test.
    pub p50_ns: f64,
    /// Bytes a second, over the whole test.
    pub bytes_per_s: f64,
    /// Messages a second, over the whole test.
    pub messages_per_s: f64,
}

/// Version of the program.
///
/// # Errors
/// It is not installed, with what to do to have it.
pub fn version() -> Result<String> {
    let found = Command::new("ucx_info").arg("-v").output();
    let tried = Command::new(PROGRAM).arg("-h").output();
    if found.is_err() || tried.is_err() {
        bail!(
            "NOTHING TO COMPARE WITH: {PROGRAM} is not installed.\n  Debian, Ubuntu: apt-get \
             install ucx-utils"
        );
    }
    let text = found.map(|out| String::from_utf8_lossy(&out.stdout).into_owned())?;
    let version = text.lines().find_map(|line| line.split_once("Version ")).map(|(_, v)| v.trim());
    Ok(version.unwrap_or("of an unknown version").to_owned())
}

/// Two processes on this machine, one test, such as `tag_lat`.
///
/// # Errors
/// It failed, took longer than two minutes, or printed something else.
pub fn run(test: &str, bytes: u64, iterations: u64, warmup: u64) -> Result<Figures> {
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let start = Instant::now();
    let mut server = perftest(port);
    let mut server = Running::start(format!("{PROGRAM}'s server"), server.stdout(Stdio::null()))?;
    let text = loop {
        let mut client = perftest(port);
        client.args(["127.0.0.1", "-v", "-t", test, "-s", &bytes.to_string()]);
        client.args(["-n", &iterations.to_string(), "-w", &warmup.to_string()]);
        let client = Running::start(format!("{PROGRAM} {test}"), client.stdout(Stdio::piped()))?;
        match client.finish_beside(&mut server, Instant::now() + END) {
            Ok(text) => break text,
            // The message is on standard output.
            Err(error) if is_refused(&error) && start.elapsed() < START => {}
            Err(error) => return Err(error),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    server.finish(Instant::now() + END)?;
    parse(&text).with_context(|| format!("{test} printed {text:?}"))
}

/// Whether a client found no server, which may yet come.
fn is_refused(error: &anyhow::Error) -> bool {
    error.to_string().contains("Connection refused")
}

fn perftest(port: u16) -> Command {
    let mut command = child::command(PROGRAM);
    command.args(["-p", &port.to_string()]);
    command.env("UCX_TLS", "tcp").env("UCX_NET_DEVICES", "lo");
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command
}

/// The last line of what `-v` prints: its `overall` columns are of the whole test. Times are in
/// microseconds, megabytes are of 2^20 bytes.
fn parse(text: &str) -> Result<Figures> {
    let heads = text.lines().find(|line| line.starts_with("iterations,"));
    let heads: Vec<&str> = heads.context("no line of heads")?.split(',').collect();
    let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let values: Vec<&str> = last.split(',').map(str::trim).collect();
    ensure!(values.len() == heads.len(), "{} columns, {} heads", values.len(), heads.len());
    let value = |head: &str| -> Result<f64> {
        let at = heads.iter().position(|h| *h == head);
        let text = values[at.with_context(|| format!("no column {head:?}"))?];
        text.parse().with_context(|| format!("{head} is {text:?}"))
    };
    Ok(Figures {
        p50_ns: value("50.0_percentile_lat")? * 1e3,
        bytes_per_s: value("overall_bw")? * f64::from(1 << 20),
        messages_per_s: value("overall_mr")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_real_program_printed_is_read() {
        let lat = parse(include_str!("../recorded/put_lat_8.txt")).unwrap();
        assert_eq!((lat.p50_ns, lat.messages_per_s), (9634.0, 102_331.0));
        let bw = parse(include_str!("../recorded/put_bw_8.txt")).unwrap();
        assert_eq!(bw.messages_per_s, 158_523.0, "of the whole test, not of its last second");
        assert!((bw.bytes_per_s - 1.21 * 1_048_576.0).abs() < 1.0);
    }

    #[test]
    fn other_output_is_refused() {
        let whole = include_str!("../recorded/put_lat_8.txt");
        for bad in [
            "",
            "3000,9.6",
            &whole.replace("overall_mr", "rate"),
            &whole.replace("102331\n", "x\n"),
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
