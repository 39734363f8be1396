//! The flags of `perf tcp`.

use crate::rig::plot::Output;
use crate::units::parse_size;
use anyhow::{Result, ensure};
use clap::Args;
use warpverbs::devmem::unpack::{UNPACK_ENV, UnpackConfig, UnpackWay};
use warpverbs::devmem::{BoundQueues, QUEUES_ENV, QueueChoice};
use warpverbs::gpu::{self, GpuChoice, Opened};
use warpverbs::tcp::{Config, Domain, Receive};

/// The device of one end, and how it receives.
#[derive(Args)]
pub(crate) struct SideArgs {
    /// Whose memory holds the bytes: auto, simt, cuda[:N] or hip[:N]
    #[arg(long, default_value = "simt", env = "WARPVERBS_GPU")]
    pub(super) gpu: String,
    /// Receive queues to be bound to memory of the device, such as eth0:7, or auto (needs root);
    /// without, payload is received into host memory
    #[arg(long, env = QUEUES_ENV)]
    queues: Option<QueueChoice>,
    /// Mover of bytes received into device memory: auto, copy-engine (d2d), host or kernel
    #[arg(long, default_value = "auto", env = UNPACK_ENV)]
    unpack: UnpackWay,
}

impl SideArgs {
    pub(super) fn open(&self, config: Config) -> Result<(Opened, Domain)> {
        let opened = gpu::open_explained(self.gpu.parse::<GpuChoice>()?)?;
        let unpack = UnpackConfig { way: self.unpack, ..UnpackConfig::default() };
        let queues = self.queues.as_ref();
        let receive = Receive::choose(queues, BoundQueues::BYTES, &opened.gpu, unpack);
        let domain = Domain::receiving(config, receive)?;
        Ok((opened, domain))
    }
}

/// Options of a measurement.
#[derive(Args)]
pub(crate) struct MeasureArgs {
    /// Message sizes (K, M, G are powers of 1024)
    #[arg(long, value_parser = parse_size, value_delimiter = ',', default_value = "8,64K,1M,64M")]
    pub(super) sizes: Vec<u64>,
    /// Sockets of the connection
    #[arg(long, default_value_t = 2)]
    pub(super) sockets: u16,
    /// Bytes of payload in a frame at most
    #[arg(long, value_parser = parse_size, default_value = "1M")]
    pub(super) chunk: u64,
    /// Seconds for each measurement
    #[arg(short = 'D', long, default_value_t = 0.3)]
    pub(super) seconds: f64,
    /// Rounds; the best of each counts
    #[arg(long, default_value_t = 3)]
    pub(super) rounds: u32,
    #[command(flatten)]
    pub(super) side: SideArgs,
    /// Without the bare loop and UCX
    #[arg(long)]
    pub(super) alone: bool,
    #[command(flatten)]
    pub(super) output: Output,
}

impl MeasureArgs {
    pub(super) fn check(&self) -> Result<()> {
        let most = 1 << 30;
        let good = !self.sizes.is_empty() && self.sizes.iter().all(|s| (8..=most).contains(s));
        ensure!(good, "--sizes is {:?}, expected 8 bytes to 1 GiB each", self.sizes);
        ensure!(
            self.seconds > 0.0 && self.seconds <= 60.0,
            "-D is {}, expected up to 60 seconds",
            self.seconds
        );
        ensure!((1..=100).contains(&self.rounds), "--rounds is {}, expected 1 to 100", self.rounds);
        ensure!(
            u32::try_from(self.chunk).is_ok(),
            "--chunk is {}, expected 64 KiB to 64 MiB",
            self.chunk
        );
        Ok(())
    }
}
