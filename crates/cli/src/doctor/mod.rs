//! `warpverbs doctor`: what this machine has, what `auto` would choose, and why.
//!
//! Schema of the JSON form: `docs/doctor.md`, which a test compares with what is printed.

mod gpu;
mod rdma;
mod root;
mod system;
mod text;

use anyhow::Context as _;
use clap::Args;
use root::Root;
use serde::Serialize;
use warpverbs::gpu::Found;

/// Options of `doctor`.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Print JSON instead of text
    #[arg(long)]
    json: bool,
}

/// Raised when a field is renamed or removed; new fields may come without.
const SCHEMA: u32 = 1;

/// Everything there is to say.
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
    compile_cache: gpu::CompileCache,
    rdma: rdma::Rdma,
    auto: gpu::Auto,
}

pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<()> {
    let report = report(&Root::machine());
    let text = if args.json {
        serde_json::to_string_pretty(&report).context("the report as JSON")?
    } else {
        text::render(&report)
    };
    crate::print::line(text.trim_end())
}

fn report(root: &Root) -> Report {
    let rdma = rdma::rdma(root);
    Report {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        kernel: system::kernel(root),
        cpu: system::cpu(root),
        container: system::container(root),
        limits: system::limits(root),
        gpus: warpverbs::gpu::list(),
        cuda: gpu::cuda(),
        compile_cache: gpu::compile_cache(),
        auto: gpu::auto(rdma.devices.len()),
        rdma,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::BTreeSet;

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
        let (_dir, root) = root::fake(&[
            ("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"),
            ("sys/class/infiniband/mlx5_0/device/infiniband_verbs/uverbs0/dev", "231:192\n"),
        ]);
        let mut found = BTreeSet::new();
        paths(&serde_json::to_value(report(&root)).unwrap(), "", &mut found);
        let missing: Vec<_> =
            found.iter().filter(|path| !document.contains(&format!("`{path}`"))).collect();
        assert!(found.len() > 30, "{found:?}");
        assert!(missing.is_empty(), "not in docs/doctor.md: {missing:?}");
    }
}
