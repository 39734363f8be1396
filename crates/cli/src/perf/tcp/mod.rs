//! `perf tcp`: messages and one-sided writes over TCP sockets, beside UCX and a bare loop.

mod bare;
mod case;
mod client;
mod cpu;
mod plot;
mod row;
mod server;

use super::output::{Chosen, Measured, Setting};
use crate::local::LocalServer;
use crate::units::parse_size;
use anyhow::{Context as _, Result, ensure};
use clap::{Args, Subcommand};
use client::Client;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use warpverbs::devmem::transport::{
    BoundQueues, Config, Endpoint, QUEUES_ENV, QueueChoice, Receive,
};
use warpverbs::devmem::unpack::{UNPACK_ENV, UnpackConfig, Way};
use warpverbs::gpu::{self, Gpu, GpuChoice};

/// Which end this process is.
#[derive(Subcommand, Clone, Debug)]
pub(crate) enum TcpCommand {
    /// Wait for a client, and serve its measurement
    Server(ServerArgs),
    /// Measure against a server
    Client(ClientArgs),
    /// Measure between this process and a second one, beside a bare loop and UCX
    Local(LocalArgs),
}

const PORT: u16 = 18517;
/// Any one step of a measurement is complete by then.
const LIMIT: Duration = Duration::from_secs(60);

/// Options of a server: the client chooses everything else.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServerArgs {
    /// Address to listen at
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED))]
    bind: IpAddr,
    /// TCP port; 0 is any
    #[arg(short = 'p', long, default_value_t = PORT)]
    port: u16,
    /// Seconds to wait for a client that does not come
    #[arg(long, default_value_t = 300)]
    wait: u64,
    /// Whose memory holds the bytes: auto, simt, cuda or cuda:N
    #[arg(long, default_value = "simt", env = "WARPVERBS_GPU")]
    gpu: String,
    #[command(flatten)]
    receive: ReceiveArgs,
}

/// How an end receives.
#[derive(Args, Clone, Debug)]
struct ReceiveArgs {
    /// Receive queues to be bound to memory of the device, such as eth0:7, or auto (needs root);
    /// without, payload is received into host memory
    #[arg(long, env = QUEUES_ENV)]
    queues: Option<QueueChoice>,
    /// Who moves what came from device memory: auto, copy-engine (d2d), host or kernel
    #[arg(long, default_value = "auto", env = UNPACK_ENV)]
    unpack: Way,
}

impl ReceiveArgs {
    fn endpoint(&self, config: Config, gpu: &Arc<dyn Gpu>) -> Result<Endpoint> {
        let unpack = UnpackConfig { way: self.unpack, ..UnpackConfig::default() };
        let receive = Receive::choose(self.queues.as_ref(), BoundQueues::BYTES, gpu, unpack);
        Ok(Endpoint::receiving(config, receive)?)
    }
}

/// Options of a client.
#[derive(Args, Clone, Debug)]
pub(crate) struct ClientArgs {
    /// Host name or address of the server
    host: String,
    /// TCP port of the server
    #[arg(short = 'p', long, default_value_t = PORT)]
    port: u16,
    #[command(flatten)]
    measure: MeasureArgs,
}

/// Options of both ends on one machine.
#[derive(Args, Clone, Debug)]
pub(crate) struct LocalArgs {
    #[command(flatten)]
    measure: MeasureArgs,
}

/// What to measure.
#[derive(Args, Clone, Debug)]
struct MeasureArgs {
    /// Message sizes (K, M, G are powers of 1024)
    #[arg(long, value_parser = parse_size, value_delimiter = ',', default_value = "8,64K,1M,64M")]
    sizes: Vec<u64>,
    /// Sockets of the connection
    #[arg(long, default_value_t = 2)]
    sockets: u16,
    /// Bytes of payload in a frame at most
    #[arg(long, value_parser = parse_size, default_value = "1M")]
    chunk: u64,
    /// Seconds for each measurement
    #[arg(short = 'D', long, default_value_t = 0.3)]
    seconds: f64,
    /// Rounds; the best of each counts
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Whose memory holds the bytes: auto, simt, cuda or cuda:N
    #[arg(long, default_value = "simt", env = "WARPVERBS_GPU")]
    gpu: String,
    #[command(flatten)]
    receive: ReceiveArgs,
    /// Without the bare loop and UCX
    #[arg(long)]
    alone: bool,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Draw bandwidth and latency against the size
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
}

impl MeasureArgs {
    fn check(&self) -> Result<()> {
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

pub(crate) fn run(command: &TcpCommand) -> Result<()> {
    match command {
        TcpCommand::Server(args) => server::run(args),
        TcpCommand::Client(args) => {
            let found = (args.host.as_str(), args.port).to_socket_addrs()?.next();
            let address = found.with_context(|| format!("no address of {}", args.host))?;
            measure(&args.measure, address, false)
        }
        TcpCommand::Local(args) => {
            args.measure.check()?;
            let server = LocalServer::start(&["perf", "tcp"], &["--gpu", &args.measure.gpu])?;
            measure(&args.measure, server.addr, !args.measure.alone)?;
            server.finish()
        }
    }
}

fn measure(args: &MeasureArgs, address: SocketAddr, local: bool) -> Result<()> {
    args.check()?;
    let opened = gpu::open_explained(args.gpu.parse::<GpuChoice>()?)?;
    let config = Config::default().sockets(args.sockets).chunk(args.chunk as u32);
    let endpoint = args.receive.endpoint(config, &opened.gpu)?;
    let mut client = Client::connect(&endpoint, &*opened.gpu, address)?;
    let nic = Chosen::new("TCP".to_owned(), &client.explain());
    let device = Chosen::new(opened.gpu.info().name.clone(), &opened.why);
    let mut rows = Vec::new();
    let end = client.measure(args, local, &mut rows).and_then(|()| client.close());
    let findings = row::findings(&rows);
    let setting = Setting { gpu: Some(device), nic };
    let drawn = match &args.plot {
        Some(file) if !rows.is_empty() => plot::write(&rows, file),
        _ => Ok(()),
    };
    let measured = Measured::new("perf tcp", setting, rows).with(findings);
    measured.print_up_to(end, args.json).and(drawn)
}

/// Memory of the device for the bytes of a test.
fn memory(gpu: &dyn Gpu, len: u64) -> Result<warpverbs::raw::mem::Region> {
    Ok(gpu.alloc(len as usize, gpu::Place::Device)?.region().clone())
}
