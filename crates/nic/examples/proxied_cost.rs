//! The engine's cost for one WQE of a proxied QP: read, parsed, checked, translated, handed to a
//! proxy device that does nothing, completed and retired. Instructions, by the difference of two
//! runs under `valgrind --tool=callgrind`. One WQE in 32 is signalled.
//!
//! ```text
//! cargo run --release -p warpverbs-nic --example proxied_cost
//! ```

mod counting;

use counting::instructions;
use std::error::Error;
use warpverbs_dev::{Port, PortConfig, connect_proxied, sge};
use warpverbs_mem::{Access, HostBuf};
use warpverbs_mlx5::num::Rkey;
use warpverbs_mlx5::wqe::{Remote, WqeBuilder};
use warpverbs_nic::{
    Completion, Config, Gone, Posted, ProxyDevice, ProxyLimits, ProxyReceives, ProxySends, QpAttrs,
    SoftNic,
};

/// WQEs between two signalled ones.
const BATCH: usize = 32;

/// A device that has always just done everything.
#[derive(Debug, Default)]
struct Null {
    done: Vec<u64>,
}

impl ProxyDevice for Null {
    fn qpn(&self) -> u32 {
        0x77
    }

    fn limits(&self) -> ProxyLimits {
        let (send_depth, recv_depth) = (1024, 0);
        ProxyLimits { send_depth, recv_depth, send_sges: 16, recv_sges: 1, inline_bytes: 256 }
    }

    #[inline(never)]
    fn post_send(&mut self, list: &ProxySends) -> Posted {
        self.done.extend(list.last_id());
        Posted { count: list.len(), refused: None }
    }

    fn post_recv(&mut self, list: &ProxyReceives) -> Posted {
        Posted { count: list.len(), refused: None }
    }

    fn poll(&mut self, out: &mut [Completion]) -> Result<usize, Gone> {
        let count = self.done.len().min(out.len());
        for (id, slot) in self.done.drain(..count).zip(out) {
            *slot = Completion { id, ..Completion::default() };
        }
        Ok(count)
    }

    fn fail(&mut self) {}

    fn has_failed(&self) -> bool {
        false
    }
}

/// Posts and retires `batches` batches.
fn carry(batches: usize) -> Result<(), Box<dyn Error + Send + Sync>> {
    let nic = SoftNic::new(Config::default())?;
    let pd = nic.alloc_pd();
    let config = PortConfig { log_sq: 10, ..PortConfig::default() };
    let mut port = Port::proxied(&nic, &pd, &config, Box::new(Null::default()))?;
    connect_proxied(&port, 0x78, QpAttrs::default());
    let mr = nic.reg_proxied_mr(&pd, &HostBuf::region(4096)?, Access::LOCAL_WRITE, 0x1234)?;
    let (from, to) = (sge(&mr, 0, 8), Remote { addr: 0x1000, rkey: Rkey(5) });
    for _ in 0..batches {
        for i in 1..=BATCH {
            port.put_wqe(|buf, at| {
                let wqe = WqeBuilder::write(buf, at, to).sge(from);
                if i == BATCH { wqe.signaled() } else { wqe }
            });
        }
        port.announce();
        nic.step();
        if port.poll_send().is_none() {
            return Err("a batch was not completed".into());
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    if let Some(batches) = std::env::args().nth(1) {
        return carry(batches.parse()?);
    }
    let of = |batches: usize| instructions("*SoftNic*step*", &[batches.to_string()]);
    let (few, many) = (of(100)?, of(1100)?);
    let per_wqe = (many - few) as f64 / (1000 * BATCH) as f64;
    println!("proxied: {per_wqe:.1} instructions per WQE, at most 401");
    Ok(())
}
