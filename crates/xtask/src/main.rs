//! Upkeep, for maintainers: checks of the workspace that no compiler makes, and tests that need virtual
//! machines.
#![forbid(unsafe_code)]

mod bare;
mod bench;
mod bench_ep;
mod bench_verbs;
mod bindgen;
mod busy;
mod fuzz;
mod gpu;
mod layouts;
mod lint;
mod nightly;
mod nixl;
mod nixl_sys;
mod nvshmem;
mod package;
mod python;
mod rdma_core;
mod vm;
mod workspace;

use clap::Parser;
use std::process::ExitCode;

/// Upkeep of the workspace.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    /// Checks lengths, circles of files, links between documents, and sentences.
    Lint(lint::Lint),
    /// Writes the declarations of libibverbs anew, with the program bindgen.
    BindgenVerbs,
    /// Compares those declarations with an independent binding, ibverbs-sys.
    VerbsLayouts(layouts::Layouts),
    /// Packs what would be published, and builds it from the packages alone.
    Package,
    /// Builds and installs the Python package, and runs its tests; on request NIXL's own programs on it.
    Python(python::Python),
    /// Runs the tests where nothing of rdma-core can be seen.
    Bare(bare::Bare),
    /// Runs all tests and examples beside busy processes, several times.
    Busy(busy::Busy),
    /// Collects the tests that need a GPU, and runs them.
    Gpu(gpu::Gpu),
    /// Fuzzes every target for a bounded time.
    Fuzz(fuzz::Fuzz),
    /// Runs the campaigns that take hours, and prints one table.
    Nightly(nightly::Nightly),
    /// Boots two virtual machines and lets their NICs talk to each other.
    #[command(subcommand)]
    Vm(vm::Task),
    /// Measures UCX over TCP and this project beside each other, on this machine.
    BenchPeers(bench::Bench),
    /// Measures Debian's perftest by `warpverbs run` and `warpverbs perf` beside each other.
    BenchVerbs(bench_verbs::Bench),
    /// Measures NVSHMEM and this project beside each other, on two NVIDIA GPUs of this machine.
    BenchNvshmem(nvshmem::Bench),
    /// Measures NIXL and this project beside each other, on this machine.
    BenchNixl(nixl::Bench),
    /// Measures FlashInfer's and DeepEP's kernels and this project beside each other, on two NVIDIA GPUs.
    BenchEp(bench_ep::Bench),
    /// Runs NIXL's tests of its Rust package on our `libnixl_capi.so`.
    NixlSys(nixl_sys::NixlSys),
    /// Builds versions of rdma-core from sources that are here, and runs other people's programs on them.
    RdmaCore(rdma_core::RdmaCore),
}

fn main() -> ExitCode {
    let outcome = match Task::parse() {
        Task::Lint(options) => {
            lint::run(&options).map_err(Into::into).and_then(|found| match found {
                0 => Ok(()),
                _ => Err(anyhow::anyhow!("{found} finding(s)")),
            })
        }
        Task::BindgenVerbs => bindgen::run(),
        Task::VerbsLayouts(options) => layouts::run(&options),
        Task::Package => package::run(),
        Task::Python(options) => python::run(&options),
        Task::Bare(options) => bare::run(&options),
        Task::Busy(options) => busy::run(&options),
        Task::Gpu(options) => gpu::run(&options),
        Task::Fuzz(options) => fuzz::run(&options),
        Task::Nightly(options) => nightly::run(&options),
        Task::Vm(task) => vm::run(&task),
        Task::BenchPeers(bench) => bench::run(&bench),
        Task::BenchVerbs(bench) => bench_verbs::run(&bench),
        Task::BenchNvshmem(bench) => nvshmem::run(&bench),
        Task::BenchNixl(bench) => nixl::run(&bench),
        Task::BenchEp(bench) => bench_ep::run(&bench),
        Task::NixlSys(options) => nixl_sys::run(&options),
        Task::RdmaCore(options) => rdma_core::run(&options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
