//! The engine's cost for pages of doorbell registers, in instructions, by the difference of two
//! runs under `valgrind --tool=callgrind`: an idle page beside an idle doorbell, and a WRITE of 8
//! bytes where 4 and where 600 QPs share the registers of a page.
//!
//! ```text
//! cargo run --release -p warpverbs-nic --example uar_cost
//! ```

mod counting;

use counting::instructions;
use std::error::Error;
use warpverbs_dev::{Pair, PairConfig, PortConfig, remote, sge};
use warpverbs_mem::{HostBuf, Region};
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::{Announcement, Config, DoorbellOnly, QpAttrs, SoftNic, UarPage, VirtualClock};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// QPs that post between two slices.
const AT_ONCE: usize = 4;

fn page(nic: &SoftNic) -> Outcome<(UarPage, Region)> {
    let memory = HostBuf::region(4096)?;
    Ok((nic.add_uar(&memory)?, memory))
}

/// Idle slices of a NIC with a number of pages, or with as many QPs that ring doorbells of their own.
fn idle(slices: usize, pages: usize, qps: usize) -> Outcome<()> {
    let pair = Pair::new(PairConfig::default())?;
    let _pages: Vec<_> = (0..pages).map(|_| page(&pair.nic)).collect::<Result<_, _>>()?;
    let port = PortConfig::default();
    let clock = VirtualClock::new;
    let more = || Pair::on(pair.nic.clone(), clock(), &port, &port, QpAttrs::default());
    let _pairs: Vec<_> = (0..qps / 2).map(|_| more()).collect::<Result<_, _>>()?;
    for _ in 0..slices {
        pair.nic.step();
    }
    Ok(())
}

/// Each QP posts one WRITE in turn, all by the same register.
fn shared(rounds: usize, qps: usize) -> Outcome<()> {
    let nic = SoftNic::new(Config { max_qps: 2048, ..Config::default() })?;
    let (page, memory) = page(&nic)?;
    let announcement = Announcement::Uar { page, doorbell_only: DoorbellOnly::Detect };
    let ports = PortConfig { announcement, ..PortConfig::default() };
    let pair = || Pair::on(nic.clone(), VirtualClock::new(), &ports, &ports, QpAttrs::default());
    let mut pairs: Vec<Pair> = (0..qps).map(|_| pair()).collect::<Result<_, _>>()?;
    let mut done = 0;
    for at in 0..rounds {
        for i in 0..AT_ONCE {
            let pair = &mut pairs[(at * AT_ONCE + i) % qps];
            let (from, to) = (sge(&pair.mr_a, 0, 8), remote(&pair.mr_b, 0));
            pair.a.put_wqe(|buf, at| WqeBuilder::write(buf, at, to).sge(from).signaled());
            pair.a.record();
            pair.a.ring_register(&memory, i as u64 % 2);
            while pair.a.poll_send().is_some() {
                done += 1;
            }
        }
        nic.step();
    }
    // Doorbells that were overwritten are found some slices later.
    (0..qps).for_each(|_| _ = nic.step());
    done += pairs.iter_mut().map(|pair| pair.a.sent().len()).sum::<usize>();
    if done == rounds * AT_ONCE { Ok(()) } else { Err("not all was done".into()) }
}

fn main() -> Outcome<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize| args[at].parse::<usize>();
    match args.first().map(String::as_str) {
        Some("idle") => return idle(number(1)?, number(2)?, number(3)?),
        Some("shared") => return shared(number(1)?, number(2)?),
        _ => {}
    }
    let count = |what: &str, times: usize, more: &[usize]| {
        let of = |times: usize| {
            let numbers = std::iter::once(&times).chain(more).map(ToString::to_string);
            instructions(
                "*SoftNic*step*",
                &[what.to_owned()].into_iter().chain(numbers).collect::<Vec<_>>(),
            )
        };
        Ok::<f64, Box<dyn Error + Send + Sync>>((of(2 * times)? - of(times)?) as f64 / times as f64)
    };
    let bare = count("idle", 4000, &[0, 0])?;
    let (pages, doorbells) = (count("idle", 4000, &[64, 0])?, count("idle", 4000, &[0, 64])?);
    println!("idle slice: {bare:.1} instructions");
    println!(
        "each page more: {:.2}, each doorbell more: {:.2}",
        (pages - bare) / 64.0,
        (doorbells - bare) / 64.0
    );
    let [few, many] = [4, 600].map(|qps| count("shared", 3000, &[qps]));
    let (few, many) = (few? / AT_ONCE as f64, many? / AT_ONCE as f64);
    println!(
        "WRITE: {few:.1} with 4 QPs, {many:.1} with 600 QPs, ratio {:.3}, at most 1.3",
        many / few
    );
    Ok(())
}
