//! Instructions of a host that posts an 8-byte WRITE through a ring of the software NIC, and that
//! sees a batch complete, by the difference of two runs under `valgrind --tool=callgrind`; one
//! WRITE in 32 is signalled. The NIC's own work is not counted: it is stepped between the two.
//!
//! ```text
//! cargo run --release -p warpverbs-transport --example ring_cost    # needs valgrind
//! ```

#[path = "../../nic/examples/counting/mod.rs"]
mod counting;

use counting::instructions;
use std::error::Error;
use warpverbs_nic::{Config, SoftNic};
use warpverbs_transport::{Access, Context, EndpointConfig, Poster, SendFlags};
use warpverbs_transport::{LocalRegion, Posted, RemoteRegion};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// WRITEs between two signalled ones.
const BATCH: usize = 32;

#[inline(never)]
fn post_batch(host: Poster<'_>, from: LocalRegion, to: RemoteRegion) -> Outcome<Posted> {
    for _ in 1..BATCH {
        let _ = host.post_write(from, to, SendFlags::UNSIGNALED)?;
    }
    Ok(host.post_write(from, to, SendFlags::SIGNALED)?)
}

#[inline(never)]
fn reap_batch(host: Poster<'_>, last: Posted) -> Outcome<bool> {
    Ok(host.is_done(last)?)
}

fn write(batches: usize) -> Outcome<()> {
    let nic = SoftNic::new(Config::default())?;
    let device = Context::builder().soft_nic(nic.clone()).build()?.open("soft")?;
    let [a, b] = [(); 2].map(|()| device.endpoint(&EndpointConfig::host()));
    let (a, b) = (a?, b?);
    a.connect(&b.handle())?;
    b.connect(&a.handle())?;
    let memory = device.alloc_host(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let (from, to) = (memory.local().slice(0, 8)?, memory.remote().slice(0, 8)?);
    let host = a.host()?;
    for _ in 0..batches {
        let last = post_batch(host, from, to)?;
        nic.step();
        if !reap_batch(host, last)? {
            return Err("a batch was not completed by one step".into());
        }
    }
    Ok(())
}

fn main() -> Outcome<()> {
    if let Some(batches) = std::env::args().nth(1) {
        return write(batches.parse()?);
    }
    let per_batch = |names: &str| {
        let of = |batches: usize| instructions(names, &[batches.to_string()]);
        Ok::<_, Box<dyn Error + Send + Sync>>((of(1100)? - of(100)?) as f64 / 1000.0)
    };
    let post = per_batch("*ring_cost*post_batch*")? / BATCH as f64;
    let reap = per_batch("*ring_cost*reap_batch*")?;
    println!(
        "the host through a ring: {post:.1} instructions per WRITE, {reap:.1} to reap {BATCH}"
    );
    Ok(())
}
