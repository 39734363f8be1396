//! How fast WRITEs are between two NICs: any NIC that `transport` opens, posted to by the host or by
//! a kernel. Every size ends with a look at all bytes.

use crate::interop::side::soft_config;
use crate::interop::talk::{Sizes, Talk};
use crate::rig::kernel::{self, Posting};
use crate::rig::pattern::pattern;
use crate::rig::plan::Op;
use anyhow::{Context as _, Result};
use clap::Args;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use warpverbs::gpu::{self, Dim, Gpu, GpuChoice};
use warpverbs::transport::{
    Access, Context, Device, Endpoint, EndpointConfig, EndpointHandle, MemoryRegion, Posted,
    RemoteRegion, SendFlags,
};

/// The longest wait for anything.
const LIMIT: Duration = Duration::from_secs(60);
/// Messages longer than this complete one by one.
const COMPLETED_EACH: u32 = 8192;
/// Code of the time after which an answer is missed: 67 ms, as perftest has it.
const TIMEOUT: u8 = 14;
/// Lanes of a kernel that posts.
const LANES: u32 = 32;

/// Options of the measurement.
#[derive(Args, Clone)]
pub(crate) struct Plan {
    /// Bytes of a message, and how many: one measurement each.
    #[arg(long, value_delimiter = ',', value_parser = size, default_value = "8x2000,65536x300,1048576x30")]
    pub(crate) sizes: Vec<(u32, u32)>,
    /// A kernel posts, on the host SIMT device.
    #[arg(long)]
    pub(crate) kernel: bool,
    /// Messages under way, if the host posts.
    #[arg(long, default_value_t = 64)]
    pub(crate) depth: usize,
}

fn size(text: &str) -> Result<(u32, u32), String> {
    let parse = || {
        let (bytes, count) = text.split_once('x')?;
        Some((bytes.parse().ok()?, count.parse().ok().filter(|&count| count > 0)?))
    };
    parse().ok_or_else(|| format!("{text:?}, expected BYTESxCOUNT, such as 65536x300"))
}

/// One end.
struct End {
    device: Device,
    endpoint: Endpoint,
    memory: MemoryRegion,
    peer: RemoteRegion,
    gpu: Option<Arc<dyn Gpu>>,
}

impl End {
    /// Opens the NIC and connects to the other program's.
    fn new(nic: &str, bind: IpAddr, talk: &mut Talk, bytes: u32, kernel: bool) -> Result<Self> {
        let context = Context::builder().soft_config(soft_config(bind)?).build()?;
        let device = context.open(nic)?;
        let gpu = kernel.then(|| gpu::open(GpuChoice::Simt)).transpose()?;
        let config = gpu.as_ref().map_or_else(EndpointConfig::host, EndpointConfig::for_gpu);
        let endpoint = device.endpoint(&config.timeout(LIMIT).timers(TIMEOUT, 12))?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let memory = device.alloc_host(bytes as usize, access)?;
        let own = (endpoint.handle().to_bytes(), memory.remote().to_bytes());
        let (_, (handle, region)) = talk.step(Ok(own))??;
        endpoint.connect(&EndpointHandle::from_bytes(&handle)?)?;
        let peer = RemoteRegion::from_bytes(&region)?;
        talk.step(Ok(()))??;
        Ok(Self { device, endpoint, memory, peer, gpu })
    }

    /// Writes `count` messages; how long until all were acknowledged.
    fn write(&self, bytes: u32, count: u32, depth: usize) -> Result<Duration> {
        match &self.gpu {
            Some(gpu) => self.write_by_kernel(&**gpu, bytes, count),
            None => self.write_by_host(bytes, count, depth),
        }
    }

    fn write_by_host(&self, bytes: u32, count: u32, depth: usize) -> Result<Duration> {
        let host = self.endpoint.host()?;
        let local = self.memory.local().slice(0, bytes.into())?;
        let remote = self.peer.slice(0, bytes.into())?;
        // As perftest has it: one completion for several messages if they are small, else one for each.
        let every = if bytes > COMPLETED_EACH { 1 } else { (depth / 4).max(1) as u32 };
        let began = Instant::now();
        let mut under_way = std::collections::VecDeque::<Posted>::new();
        for i in 1..=count {
            let last = i % every == 0 || i == count;
            let flags = if last { SendFlags::SIGNALED } else { SendFlags::UNSIGNALED };
            under_way.push_back(host.post_write(local, remote, flags)?);
            if under_way.len() >= depth {
                let oldest = under_way.drain(..every as usize).next_back();
                host.wait(oldest.context("nothing is under way")?)?;
            }
        }
        host.quiet()?;
        Ok(began.elapsed())
    }

    fn write_by_kernel(&self, gpu: &dyn Gpu, bytes: u32, count: u32) -> Result<Duration> {
        let (local, remote) = (self.memory.local().slice(0, bytes.into())?, self.peer);
        let posting = Posting { endpoint: &self.endpoint, local, remote };
        kernel::load(gpu)?;
        let began = Instant::now();
        kernel::stream(gpu, &[posting], Op::Write, count, Dim::new(1, LANES), 2 * LIMIT)?;
        Ok(began.elapsed())
    }
}

/// The end that is written to.
pub(crate) fn serve(nic: &str, bind: IpAddr, talk: &mut Talk) -> Result<()> {
    let sizes: Sizes = talk.recv()?;
    let largest = sizes.iter().map(|size| size.0).max().context("no sizes")?;
    let end = End::new(nic, bind, talk, largest, false)?;
    for (row, (bytes, _)) in sizes.into_iter().enumerate() {
        end.memory.write(0, &vec![0; bytes as usize])?;
        talk.step(Ok(()))??;
        talk.step(Ok(()))??;
        let mut found = vec![0; bytes as usize];
        end.memory.read(0, &mut found)?;
        let same = found == pattern(row as u64 + 1, bytes as usize);
        let right = if same { Ok(()) } else { Err(anyhow::anyhow!("{bytes} bytes differ")) };
        talk.step(right)??;
    }
    Ok(())
}

/// The end that writes: a line `BYTES MB/s Mpps` for each size, MB of 2^20 bytes as perftest has it.
pub(crate) fn run(nic: &str, bind: IpAddr, talk: &mut Talk, plan: &Plan) -> Result<()> {
    talk.send(plan.sizes.clone())?;
    let largest = plan.sizes.iter().map(|size| size.0).max().context("no sizes")?;
    let end = End::new(nic, bind, talk, largest, plan.kernel)?;
    println!("{}", end.device.why());
    for (row, &(bytes, count)) in plan.sizes.iter().enumerate() {
        end.memory.write(0, &pattern(row as u64 + 1, bytes as usize))?;
        talk.step(Ok(()))??;
        end.write(bytes, (count / 10).max(1), plan.depth)?;
        let seconds = end.write(bytes, count, plan.depth)?.as_secs_f64();
        talk.step(Ok(()))??;
        talk.step(Ok(()))??;
        let rate = f64::from(count) / seconds;
        println!("{bytes} {:.2} {:.6}", rate * f64::from(bytes) / f64::from(1 << 20), rate / 1e6);
    }
    Ok(())
}
