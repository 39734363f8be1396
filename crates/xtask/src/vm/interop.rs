//! Linux's RoCEv2 in one guest, ours in the other: both ways, through every case.

use super::bed::{Bed, FIRST, FIRST_V6, Nic};
use super::build;
use super::case::{Case, Part};
use super::options::Options;
use anyhow::{Context as _, Result, ensure};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// For a look at something.
const SHORT: Duration = Duration::from_secs(20);
/// Faults of the network in both directions in the last round. Ours by the link's own faults, Linux's by
/// its queueing discipline.
const OUR_FAULTS: &str = "loss=1%,dup=1%,reorder=1%,corrupt=0.5%,seed=1";
const THEIR_FAULTS: &str = "loss 1% duplicate 1% corrupt 0.5%";

/// Every case over IPv4, over IPv6, and on a network with faults; the reports go to `json`.
pub(super) fn part(options: &Options, json: Option<&Path>) -> Result<Part> {
    let mtu = options.mtu.as_deref().unwrap_or("1024,4096");
    let lossy = round("with faults", FIRST, &format!("WARPVERBS_FAULT={OUR_FAULTS} "), mtu);
    let [serve, ask] = lossy.1;
    let serve = format!(
        "netem {THEIR_FAULTS} && {serve}; end=$?; /bin/tc -s qdisc show dev eth0 >/tmp/faults; \
         /bin/tc qdisc del dev eth0 root; exit $end"
    );
    let rounds = [
        round("IPv4", FIRST, "", mtu),
        round("IPv6", FIRST_V6, "", "1024"),
        (lossy.0, [serve, format!("{ask} --lossy")]),
    ];
    let reports: Rc<RefCell<Vec<String>>> = Rc::default();
    let json = json.map(PathBuf::from);
    let case = |(name, both): (String, [String; 2])| {
        let is_lossy = name.contains("faults");
        let (json, reports) = (json.clone(), reports.clone());
        Case::pair(name, [Nic::Rxe, Nic::Soft], both).check(move |bed, _| {
            let report = bed.two.check("cat /tmp/report", SHORT)?;
            reports.borrow_mut().push(report.trim().into());
            if let Some(file) = &json {
                let text = format!("[{}]\n", reports.borrow().join(","));
                std::fs::write(file, text).with_context(|| file.display().to_string())?;
            }
            if is_lossy { faults(bed) } else { Ok(String::new()) }
        })
    };
    let programs = vec![build::program("warpverbs-bench", "warpverbs-interop")?];
    Ok(Part { name: "interop", programs, cases: rounds.into_iter().map(case).collect() })
}

/// All cases once: a name, the server and its client. RDMA devices speak to one UDP port alone.
fn round(name: &str, host: &str, environment: &str, mtu: &str) -> (String, [String; 2]) {
    let serve = format!("warpverbs-interop server --bind {host} --nic rxe0");
    let ask =
        format!("warpverbs-interop client {host} --wait 60 --udp-port 4791 --json /tmp/report");
    (format!("every operation, {name}"), [serve, format!("{environment}{ask} --mtu {mtu}")])
}

/// A network without faults would have been no test of them.
fn faults(bed: &mut Bed) -> Result<String> {
    let dropped = bed.one.check("cat /tmp/faults", SHORT)?;
    let dropped = count(&dropped, "(dropped ").context("tc shows nothing that was dropped")?;
    let missed = bed.one.check("rdma statistic show link rxe0/1", SHORT)?;
    let missed = count(&missed, "out_of_seq_request ").context("rdma shows no such counter")?;
    ensure!(dropped > 0 && missed > 0, "the network had no faults in both directions");
    Ok(format!(
        "faults in what we send: {OUR_FAULTS}; in what Linux sends: {THEIR_FAULTS}\n\
         Linux lost {dropped} packets that it sent, and found {missed} of ours out of order"
    ))
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
