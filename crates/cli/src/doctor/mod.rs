//! `warpverbs doctor`: what this machine has, what `auto` would choose, and why.
//!
//! Schema of the JSON form: `docs/doctor.md`, which a test compares with what is printed.

mod amd;
mod check;
mod direct;
mod gpu;
mod memory;
mod path;
mod pci;
mod rdma;
mod root;
mod shared;
mod system;
mod tcp;
mod text;

use anyhow::Context as _;
use clap::{Args, Subcommand};
use root::Root;
use serde::Serialize;
use warpverbs::gpu::Found;

/// Options of `doctor`.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Print JSON instead of text
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    topic: Option<Topic>,
}

#[derive(Subcommand, Debug)]
enum Topic {
    /// The way bytes take between two devices, and what keeps a faster one from being taken
    Path {
        /// A device: simt, cuda:0, hip:0, soft, mlx5_0
        from: String,
        /// Another one
        to: String,
    },
    /// Features that kernel and NICs lack for device-memory TCP, and the commands that set them up
    Tcp,
}

/// Raised when a field is renamed or removed; new fields may come without.
const SCHEMA: u32 = 1;

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    version: &'static str,
    kernel: String,
    cpu: system::Cpu,
    container: system::Container,
    limits: system::Limits,
    gpus: Vec<Found>,
    cuda: gpu::Cuda,
    hip: gpu::Hip,
    compile_cache: gpu::CompileCache,
    rdma: rdma::Rdma,
    shared_memory: shared::Shared,
    auto: gpu::Auto,
}

pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<()> {
    let root = Root::machine();
    let text = match &args.topic {
        Some(Topic::Tcp) => {
            let found = tcp::tcp(&root, SCHEMA);
            if args.json { json(&found)? } else { tcp::text(&found) }
        }
        None => {
            let report = report(&root);
            if args.json { json(&report)? } else { text::render(&report) }
        }
        Some(Topic::Path { from, to }) => {
            let way = path::way(&root, &report(&root), [from, to])?;
            if args.json { json(&way)? } else { text::way(&way) }
        }
    };
    warpverbs_bench::print::line(text.trim_end())
}

fn json(value: &impl Serialize) -> anyhow::Result<String> {
    serde_json::to_string_pretty(value).context("the report as JSON")
}

fn report(root: &Root) -> Report {
    let gpus = warpverbs::gpu::list();
    let mut rdma = rdma::rdma(root);
    rdma.gpu_memory = memory::pairings(root, &gpus, &rdma);
    Report {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        kernel: system::kernel(root),
        cpu: system::cpu(root),
        container: system::container(root),
        limits: system::limits(root),
        gpus,
        cuda: gpu::cuda(),
        hip: gpu::hip(root),
        compile_cache: gpu::compile_cache(),
        shared_memory: shared::shared(root),
        auto: gpu::auto(),
        rdma,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;
    use warpverbs::raw::transport::DeviceSurvey;
    use warpverbs::raw::transport::pci::Distance;

    /// `a.b[].c` for every field below `value`.
    fn paths(value: &Value, at: &str, out: &mut BTreeSet<String>) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    let path = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
                    paths(value, &path, out);
                    out.insert(path);
                }
            }
            Value::Array(items) => {
                for item in items {
                    paths(item, &format!("{at}[]"), out);
                }
            }
            _ => {}
        }
    }

    #[test]
    fn every_field_is_documented() {
        let document = include_str!("../../../../docs/doctor.md");
        let port = "sys/class/infiniband/mlx5_0/ports/1";
        let (_dir, root) = root::fake(&[
            (&format!("{port}/state"), "4: ACTIVE\n"),
            (&format!("{port}/gids/0"), "0000:0000:0000:0000:0000:ffff:0a00:0001\n"),
            ("sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0\n"),
        ]);
        root::add_machine(&root);
        root::link(&root, "sys/class/infiniband/mlx5_0/device", "sys/bus/pci/devices/0000:07:00.0");
        let mut report = report(&root);
        let (distance, survey) = (Distance::Switch, DeviceSurvey::refused("no library"));
        report.rdma.gpu_memory.push(memory::Pairing::new("simt", "mlx5_0", distance, survey));
        let way = path::way(&root, &report, ["simt", "mlx5_0"]).unwrap();
        let mut found = BTreeSet::new();
        paths(&serde_json::to_value(report).unwrap(), "", &mut found);
        paths(&serde_json::to_value(way).unwrap(), "", &mut found);
        let tcp = tcp::tcp(&Root::machine(), SCHEMA);
        paths(&serde_json::to_value(tcp).unwrap(), "", &mut found);
        let missing: Vec<_> =
            found.iter().filter(|path| !document.contains(&format!("`{path}`"))).collect();
        assert!(found.len() > 30, "{found:?}");
        assert!(missing.is_empty(), "not in docs/doctor.md: {missing:?}");
    }
}
