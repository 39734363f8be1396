//! Instructions of an 8-byte WRITE on its way into libibverbs, by the difference of two runs under
//! `valgrind --tool=callgrind`; one in 32 is signalled. The library is the one without devices,
//! whose `ibv_post_send` then does nothing.
//!
//! ```text
//! cargo run --release -p warpverbs-transport --example verbs_cost    # needs valgrind, gcc, libibverbs-dev
//! ```

#[path = "../../nic/examples/counting/mod.rs"]
mod counting;

use counting::instructions;
use std::error::Error;
use std::process::Command;
use warpverbs_gpu::GpuChoice;
use warpverbs_transport::VerbsProvider;
use warpverbs_transport::{Access, Context, EndpointConfig, Poster, SendFlags};
use warpverbs_transport::{LocalRegion, RemoteRegion};
use warpverbs_verbs::testing::{fake, fake_library};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// WRITEs between two signalled ones.
const BATCH: usize = 32;

/// Posts a batch and waits for it.
#[inline(never)]
fn write_batch(host: Poster<'_>, from: LocalRegion, to: RemoteRegion) -> Outcome<()> {
    for _ in 1..BATCH {
        let _ = host.post_write(from, to, SendFlags::UNSIGNALED)?;
    }
    Ok(host.wait(host.post_write(from, to, SendFlags::SIGNALED)?)?)
}

/// So many batches, by calls or through rings that the engine reads.
fn post(way: &str, batches: usize) -> Outcome<()> {
    let fake = fake().ok_or("no library")?;
    let provider = VerbsProvider::over(fake.verbs());
    let context = Context::builder().verbs(provider).build()?;
    let device = context.open("fake0")?;
    let config = match way {
        "calls" => EndpointConfig::host(),
        _ => EndpointConfig::for_gpu(&warpverbs_gpu::open(GpuChoice::Simt)?),
    };
    let [a, b] = [device.endpoint(&config)?, device.endpoint(&config)?];
    a.connect(&b.handle())?;
    b.connect(&a.handle())?;
    let memory = device.alloc_host(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let (from, to) = (memory.local().slice(0, 8)?, memory.remote().slice(0, 8)?);
    (0..batches).try_for_each(|_| write_batch(a.host()?, from, to))
}

fn main() -> Outcome<()> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    if let [way, batches] = &args[..] {
        return post(way, batches.parse()?);
    }
    if std::env::var_os("FAKE_IBVERBS_NULL").is_none() {
        fake_library().ok_or("the library cannot be built")?;
        let mut again = Command::new(std::env::current_exe()?);
        let status = again.env("FAKE_IBVERBS_NULL", "1").status()?;
        return if status.success() { Ok(()) } else { Err("it failed".into()) };
    }
    let per_write = |names: &str, way: &str| {
        let of = |batches: usize| instructions(names, &[way.to_owned(), batches.to_string()]);
        Ok::<_, Box<dyn Error + Send + Sync>>((of(1100)? - of(100)?) as f64 / (1000 * BATCH) as f64)
    };
    let calls = per_write("*verbs_cost*write_batch*", "calls")?;
    println!("the host by calls: {calls:.1} instructions per WRITE, to its completion");
    let lists = per_write("*VerbsProxy*post_send*", "rings")?;
    println!("the engine's lists to ibv_post_send: {lists:.1} instructions per WRITE");
    println!("(what the engine does before and after: example proxied_cost of warpverbs-nic)");
    Ok(())
}
