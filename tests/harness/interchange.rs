//! Flags of the example `gpu_interchange`, the devices that they name, and the ports of this machine.

use crate::common::{Common, MAX_BYTES, check_bytes};
use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};
use std::sync::Arc;
use warpverbs::gpu::simt::{SimtConfig, SimtDevice};
use warpverbs::gpu::{self, Gpu, GpuChoice, GpuKind};
use warpverbs::raw::verbs::{self, PortState, Verbs};
use warpverbs_bench::units::parse_size;

/// Data from one GPU to another, posted by a kernel
#[derive(Parser)]
pub(crate) struct Flags {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Bytes to move
    #[arg(long, default_value = "1K", value_parser = parse_size)]
    bytes: u64,
    /// Value of every byte
    #[arg(long, default_value_t = 42)]
    value: u32,
    /// Sending and receiving GPU: A,B, each a number or a name as --gpu takes
    #[arg(long, value_name = "A,B")]
    gpus: Option<String>,
    /// The carrier: queue pairs, or a symmetric heap, by loads and stores where possible
    #[arg(long, value_enum, default_value_t = Path::Qp)]
    pub(crate) path: Path,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Path {
    Qp,
    Shmem,
}

impl Flags {
    /// Bytes, and the value of each.
    pub(crate) fn payload(&self) -> Result<(u32, u8)> {
        let bytes = check_bytes(self.bytes, 1, MAX_BYTES)? as u32;
        let wrong = || format!("--value is {}, expected 0 to 255", self.value);
        Ok((bytes, u8::try_from(self.value).with_context(wrong)?))
    }

    /// The sending and the receiving device: those that `--gpus A,B` names, each by its number among
    /// those of the kind that `--gpu` gave, or by a name as `--gpu` takes; or that one twice.
    pub(crate) fn devices(&self, gpu: &Arc<dyn Gpu>) -> Result<[Arc<dyn Gpu>; 2]> {
        let Some(names) = &self.gpus else { return Ok([gpu.clone(), gpu.clone()]) };
        let expected =
            || format!("--gpus is {names:?}, expected two devices, as in 0,1 or simt,cuda:0");
        let (a, b) = names.split_once(',').with_context(expected)?;
        let open = |name: &str| -> Result<Arc<dyn Gpu>> {
            match (name.parse::<u32>(), gpu.info().kind) {
                (Ok(ordinal), GpuKind::Simt) => {
                    let config = SimtConfig::from_env()?.ordinal(ordinal);
                    Ok(Arc::new(SimtDevice::new(config)?))
                }
                (Ok(ordinal), _) => Ok(gpu::open(GpuChoice::Cuda(ordinal))?),
                (Err(_), _) => {
                    let choice: GpuChoice = name.parse().with_context(expected)?;
                    gpu::open(choice).with_context(|| format!("--gpus: {name}"))
                }
            }
        };
        Ok([open(a)?, open(b)?])
    }
}

/// A device as it is told of.
pub(crate) fn name(gpu: &Arc<dyn Gpu>) -> String {
    format!("{} #{}", gpu.info().name, gpu.info().ordinal)
}

/// Ports of RDMA devices that are up, and the software NIC's own.
pub(crate) fn active_ports() -> usize {
    let devices = Verbs::load().ok().and_then(|verbs| verbs.devices().ok()).unwrap_or_default();
    let of_device = |device: &verbs::Device| {
        let Ok(context) = device.open() else { return 0 };
        let ports = context.attr().map_or(0, |attr| attr.ports);
        let active =
            |port: &u8| context.port(*port).is_ok_and(|found| found.state == PortState::Active);
        (1..=ports).filter(active).count()
    };
    1 + devices.iter().map(of_device).sum::<usize>()
}
