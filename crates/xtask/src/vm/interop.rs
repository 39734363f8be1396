//! Linux's RoCEv2 in one guest, ours in the other: both ways, through every case.

use super::Options;
use super::bed::{Bed, FIRST, FIRST_V6, SECOND, SECOND_V6};
use super::build;
use anyhow::{Context as _, Result, ensure};
use std::path::Path;
use std::time::{Duration, Instant};

/// For all cases on an emulated machine, with room.
const LIMIT: Duration = Duration::from_secs(300);
/// For a look at something.
const SHORT: Duration = Duration::from_secs(20);
/// What the network does in both directions in the second round. Ours by the link's own faults,
/// Linux's by its queueing discipline.
const OUR_FAULTS: &str = "loss=1%,dup=1%,reorder=1%,corrupt=0.5%,seed=1";
const THEIR_FAULTS: &str = "loss 1% duplicate 1% corrupt 0.5%";

pub(crate) fn run(options: &Options, json: Option<&Path>) -> Result<()> {
    let mut bed = Bed::boot(options, &[build::program("warpverbs-bench", "warpverbs-interop")?])?;
    let mtu = options.mtu.map_or("1024,4096".into(), |mtu| mtu.bytes().to_string());
    Bed::rxe(&mut bed.one)?;
    let v4 = [FIRST, SECOND];
    let mut reports = vec![round(&mut bed, v4, "", &format!("--mtu {mtu}"))?];
    println!("now over IPv6");
    reports.push(round(&mut bed, [FIRST_V6, SECOND_V6], "", "--mtu 1024")?);
    bed.one.check(&format!("netem {THEIR_FAULTS}"), SHORT)?;
    println!("now with faults in what we send: {OUR_FAULTS}; in what Linux sends: {THEIR_FAULTS}");
    let ours = format!("WARPVERBS_FAULT={OUR_FAULTS}");
    reports.push(round(&mut bed, v4, &ours, &format!("--mtu {mtu} --lossy"))?);
    // A network without faults would have been no test of them.
    let dropped = bed.one.check("/bin/tc -s qdisc show dev eth0", SHORT)?;
    let dropped = count(&dropped, "(dropped ").context("tc shows nothing that was dropped")?;
    let missed = bed.one.check("rdma statistic show link rxe0/1", SHORT)?;
    let missed = count(&missed, "out_of_seq_request ").context("rdma shows no such counter")?;
    println!("Linux lost {dropped} packets that it sent, and found {missed} of ours out of order");
    ensure!(dropped > 0 && missed > 0, "the network had no faults in both directions");
    if let Some(file) = json {
        let text = format!("[{}]\n", reports.join(","));
        std::fs::write(file, text).with_context(|| file.display().to_string())?;
    }
    Ok(())
}

/// All cases once; the report as JSON.
fn round(bed: &mut Bed, at: [&str; 2], environment: &str, flags: &str) -> Result<String> {
    let began = Instant::now();
    let [one, two] = at;
    let serve = format!("warpverbs-interop --nic rxe0 --bind {one} serve");
    let ask = format!("warpverbs-interop --nic soft --bind {two} run {one} --json /tmp/report");
    let [_, text] = bed.pair(&serve, &format!("{environment} {ask} {flags}"), LIMIT)?;
    println!("{text}in {:.0} s", began.elapsed().as_secs_f64());
    Ok(bed.two.check("cat /tmp/report", SHORT)?.trim().into())
}

/// The number that follows `key`.
fn count(text: &str, key: &str) -> Option<u64> {
    let rest = &text[text.find(key)? + key.len()..];
    rest[..rest.find(|c: char| !c.is_ascii_digit())?].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn counters_are_found_in_what_tools_print() {
        let tc = "qdisc netem 8001: root\n Sent 212 bytes 21 pkt (dropped 211, overlimits 0)";
        assert_eq!(count(tc, "(dropped "), Some(211));
        assert_eq!(count("out_of_seq_request x", "out_of_seq_request "), None);
        assert_eq!(count(tc, "lost "), None);
    }
}
