//! Two ends, links that lose, double, reorder, corrupt and delay, and a virtual clock: whatever
//! the network does, every request is executed once, in order, with the right bytes, completes in
//! order, and nothing hangs.
//!
//! `WARPVERBS_RUNS` says how many runs. A failing run prints its seed;
//! `WARPVERBS_SEED=<seed> cargo test -p warpverbs-rc --test it simulation` repeats it.

mod program;
mod verify;

use std::time::Duration;

use self::program::{INVALIDATABLE, MEMORY, Program};
use crate::common::link::{Faults, Link};
use crate::common::pair::{Node, Pair};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, RngExt, SeedableRng};
use warpverbs_rc::{AckTimeout, Config, State, Stats};
use warpverbs_wire::{Mtu, Psn, Qpn, RnrTimer};

/// One run: two programs, one from each end.
struct Simulation {
    rng: StdRng,
    pair: Pair,
    programs: [Program; 2],
    posted: [usize; 2],
    /// Receives posted at each end.
    receives: [usize; 2],
    /// When the next receive is posted.
    next_receive: u64,
    burst: usize,
    /// How often an end will have no processor for a while.
    breaks: u64,
}

fn random_config(rng: &mut StdRng) -> Config {
    let window = rng.random_range(1..=64);
    Config {
        mtu: *[Mtu::B256, Mtu::B256, Mtu::B512, Mtu::B1024].choose(rng).expect("four"),
        timeout: AckTimeout::from_code(rng.random_range(7..11)).expect("a code below 32"),
        min_rnr_timer: RnrTimer::from_code(rng.random_range(1..=8)),
        max_rd_atomic: rng.random_range(1..=4),
        max_dest_rd_atomic: 4,
        send_depth: rng.random_range(1..=24),
        window,
        read_chunk: rng.random_range(1..=window),
        write_split: rng.random_range(0..4),
        ack_interval: rng.random_range(1..=16),
        early_resend: rng.random_bool(0.5).then_some(Duration::from_micros(20)),
        // Half of the connections come over the end of the numbers.
        sq_psn: match rng.random_bool(0.5) {
            true => Psn::default() - rng.random_range(0..64),
            false => Psn::from_low_bits(rng.random()),
        },
        ..Config::new(Qpn::from_low_bits(7))
    }
}

fn random_faults(rng: &mut StdRng) -> Faults {
    let mut rate = |most: f64| match rng.random_range(0..3) {
        0 => 0.0,
        _ => most * rng.random::<f64>(),
    };
    let (loss, duplication, corruption, reordering) = (rate(0.2), rate(0.2), rate(0.05), rate(0.2));
    let delay = rng.random_range(200..20_200);
    let jitter = rng.random_range(1..=4 * delay);
    let occupancy = rng.random_range(0..500);
    Faults { loss, duplication, corruption, reordering, delay, jitter, occupancy }
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let (mut a, mut b) = (random_config(&mut rng), random_config(&mut rng));
        b.mtu = a.mtu;
        (a.rq_psn, b.rq_psn) = (b.sq_psn, a.sq_psn);
        let mut node = |config: &Config| {
            let mut node = Node::new(config, MEMORY);
            node.memory.counts = rng.random_bool(0.5);
            node.memory.invalidatable.push(INVALIDATABLE);
            node.memory.slow_atomics = rng.random_range(0..4);
            node
        };
        let nodes = [node(&a), node(&b)];
        let links = [(); 2].map(|()| Link::new(random_faults(&mut rng), rng.next_u64()));
        let programs = [(); 2].map(|()| {
            let requests = rng.random_range(1..=30);
            Program::random(&mut rng, requests, a.mtu.bytes())
        });
        let burst = rng.random_range(1..=32);
        let mut pair = Pair::new(nodes, links);
        let far = rng.random_bool(0.5);
        let breaks = if far { 0 } else { rng.random_range(0..4) };
        pair.processors.iter_mut().for_each(|processor| processor.far = far);
        Self {
            rng,
            pair,
            programs,
            posted: [0; 2],
            receives: [0; 2],
            next_receive: 0,
            burst,
            breaks,
        }
    }

    fn run(mut self) -> Stats {
        let deadline = Duration::from_secs(100).as_nanos() as u64;
        for _ in 0..2_000_000 {
            self.post();
            self.limit();
            self.take_processor();
            self.pair.transmit(self.burst);
            if self.is_done() {
                return self.verify();
            }
            let event = self.pair.next_event().unwrap_or(u64::MAX);
            let unposted = (0..2).any(|i| self.posted[i] < self.programs[i].requests.len());
            let next_post = if unposted { self.pair.now + 1000 } else { u64::MAX };
            let at = event.min(self.next_receive).min(next_post).max(self.pair.now);
            assert!(at < deadline, "hangs: {:#?}", self.pair.nodes.map(|node| node.connection));
            self.pair.now = at;
            self.pair.happen();
            self.post_receive();
        }
        panic!("does not end: {:#?}", self.pair.nodes.map(|node| node.connection));
    }

    fn post(&mut self) {
        for i in 0..2 {
            let program = &self.programs[i].requests;
            while let Some((request, buffer)) = program.get(self.posted[i]) {
                if self.rng.random_bool(0.2) || !self.pair.nodes[i].post(*request, buffer.clone()) {
                    break;
                }
                self.posted[i] += 1;
            }
        }
    }

    /// Connections that share a receiver come and go.
    fn limit(&mut self) {
        if self.rng.random_bool(0.05) {
            let bytes = self.rng.random_range(0..16 * 2048);
            let node = self.rng.random_range(0..2);
            self.pair.nodes[node].connection.limit_bytes(bytes);
        }
    }

    /// Ends of one host are not always given a processor.
    fn take_processor(&mut self) {
        let i = self.rng.random_range(0..2);
        let processor = &mut self.pair.processors[i];
        if self.breaks > 0 && self.rng.random_bool(0.02) {
            processor.from = self.pair.now + self.rng.random_range(0..20_000_000);
            self.breaks -= 1;
        }
    }

    fn post_receive(&mut self) {
        if self.pair.now < self.next_receive {
            return;
        }
        let mut left = false;
        for i in 0..2 {
            let wanted = self.programs[1 - i].messages.len();
            let more = (wanted - self.receives[i]).min(self.rng.random_range(0..3));
            for _ in 0..more {
                self.pair.nodes[i].memory.post(self.receives[i] as u64, MEMORY);
                self.receives[i] += 1;
            }
            if more > 0 && self.rng.random_bool(0.5) {
                self.pair.nodes[i].connection.receive_available();
            }
            left |= self.receives[i] < wanted;
        }
        let pause = self.rng.random_range(1..=50_000);
        self.next_receive = if left { self.pair.now + pause } else { u64::MAX };
    }

    fn is_done(&self) -> bool {
        (0..2).all(|i| {
            verify::requests(&self.pair.nodes[i]).count() == self.programs[i].requests.len()
        })
    }

    fn verify(self) -> Stats {
        let failed = self.pair.nodes.iter().any(|n| n.connection.state() == State::Error);
        for (i, program) in self.programs.iter().enumerate() {
            let (node, peer) = (&self.pair.nodes[i], &self.pair.nodes[1 - i]);
            let completed = verify::check_completions(node, program);
            assert!(failed || completed == program.requests.len());
            verify::check_answers(node, program, completed);
            verify::check_messages(peer, program, completed, failed);
            if !failed {
                assert_eq!(peer.memory.bytes, program.memory, "memory");
                assert_eq!(peer.memory.atomics, program.atomics, "atomics");
            }
        }
        let stats = self.pair.nodes.map(|node| *node.connection.stats());
        Stats {
            resent: stats[0].resent + stats[1].resent,
            requests_sent: stats[0].requests_sent + stats[1].requests_sent,
            rnr_waits: stats[0].rnr_waits + stats[1].rnr_waits,
            overruns: stats[0].overruns + stats[1].overruns,
            ghosts: stats[0].ghosts + stats[1].ghosts,
            // Marks a run that ended in RETRY_EXC.
            timeouts: u64::from(failed),
            ..stats[0]
        }
    }
}

fn run(seed: u64) -> Stats {
    let outcome = std::panic::catch_unwind(|| Simulation::new(seed).run());
    outcome.unwrap_or_else(|_| {
        panic!("run failed; repeat it with WARPVERBS_SEED={seed} cargo test -p warpverbs-rc --test it simulation")
    })
}

//= [req.go-back-n] [resp.execute-once] [resp.duplicate] [comp.ghost]
#[test]
fn whatever_the_network_does() {
    if let Some(seed) = warpverbs_dev::number("WARPVERBS_SEED") {
        println!("{:#?}", run(seed));
        return;
    }
    let runs = warpverbs_dev::runs(3_000);
    let (mut sent, mut resent, mut failed, mut waits) = (0, 0, 0, 0);
    for seed in 0..runs {
        let stats = run(seed);
        sent += stats.requests_sent;
        resent += stats.resent;
        waits += stats.rnr_waits;
        failed += stats.timeouts;
        assert_eq!(stats.overruns, 0, "seed {seed}");
    }
    println!(
        "{runs} runs: {sent} request packets, {resent} of them again, {waits} waits for receives, \
         {failed} ended by RETRY_EXC"
    );
    // Eight losses in a row happen, but rarely.
    assert!(failed * 50 <= runs, "{failed} of {runs} runs ended by RETRY_EXC");
    assert!(resent > 0 && waits > 0, "the network did nothing");
}
