//! Every kernel of examples and of tests compiles for NVIDIA GPUs, and the compiler has nothing to say.

use std::collections::BTreeMap;
use std::sync::Mutex;
use warpverbs::gpu::Image;
use warpverbs::kernels as examples;
use warpverbs::raw::gpu::cuda::{nvrtc, options};
use warpverbs_test_kernels as kernels;

const TESTS: [&Image; 17] = [
    &kernels::conform::IMAGE,
    &kernels::ep::IMAGE,
    &kernels::ep_perf::IMAGE,
    &kernels::faults::IMAGE,
    &kernels::formats::IMAGE,
    &kernels::lockstep::IMAGE,
    &kernels::nixl::IMAGE,
    &kernels::nixl_litmus::IMAGE,
    &kernels::perf::IMAGE,
    &kernels::progress::IMAGE,
    &kernels::selftest::IMAGE,
    &kernels::shm::IMAGE,
    &kernels::shm_litmus::IMAGE,
    &kernels::shm_mail::IMAGE,
    &kernels::shm_perf::IMAGE,
    &kernels::stress::IMAGE,
    &kernels::waits::IMAGE,
];

const EXAMPLES: [&Image; 7] = [
    &examples::dist::IMAGE,
    &examples::interchange::IMAGE,
    &examples::loopback::IMAGE,
    &examples::moe_layer::IMAGE,
    &examples::shm_coll::IMAGE,
    &examples::shm_pipeline::IMAGE,
    &examples::simple_write::IMAGE,
];

/// Those of other packages that are not only for tests.
const OTHERS: [&Image; 2] = [warpverbs::raw::gpu::Blocks::IMAGE, &warpverbs::raw::ep::IMAGE];

/// The report of `ptxas` on each kernel: registers, stack and spills; lines past a kernel's first two
/// are of functions that it calls.
fn usage(log: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut usage: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut kernel = "";
    for line in log.lines() {
        if let Some(name) = line.split('\'').nth(1).filter(|_| line.contains("Compiling entry")) {
            kernel = name;
        } else if line.contains("Used ") || line.contains("spill") {
            // The prefix differs from line to line, and ends with at least two blanks.
            let fact = line.rsplit("  ").next().unwrap_or(line).trim_start_matches(": ");
            usage.entry(kernel).or_default().push(fact);
        }
    }
    usage
}

#[test]
fn all_images_are_in_the_lists() {
    let package = env!("CARGO_MANIFEST_DIR");
    let folders = [("kernels", &TESTS[..]), ("../../kernels/src", &EXAMPLES[..])];
    for (folder, images) in folders {
        let files = std::fs::read_dir(format!("{package}/{folder}")).unwrap();
        let mut sources: Vec<String> = files
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "cu"))
            .map(|path| path.file_stem().unwrap().to_string_lossy().into_owned())
            .collect();
        sources.sort();
        let names: Vec<_> = images.iter().map(|image| image.name).collect();
        assert_eq!(sources, names);
    }
}

#[test]
#[ignore = "needs NVRTC"]
fn every_kernel_compiles_without_a_word() {
    // For one architecture: what differs between architectures, nvcc shows in kernels/check.sh.
    let left = Mutex::new(TESTS.into_iter().chain(EXAMPLES).chain(OTHERS));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(image) = { left.lock().unwrap().next() } {
                    compiles(image, "sm_90");
                }
            });
        }
    });
}

/// Without a warning; prints registers, stack and spills.
fn compiles(image: &Image, arch: &str) {
    let mut options = options(arch);
    options.push("--ptxas-options=-v".to_owned());
    let name = format!("{}.cu", image.name);
    let compiled = nvrtc()
        .unwrap()
        .compile(image.source, &name, &options)
        .unwrap_or_else(|failure| panic!("{arch}: {}\n{}", failure.what, failure.log));
    let words: Vec<&str> = compiled
        .log
        .lines()
        .filter(|line| !line.trim().is_empty())
        .filter(|line| !line.contains("ptxas info") && !line.contains("bytes stack frame"))
        .collect();
    assert!(words.is_empty(), "{name} for {arch}:\n{}", words.join("\n"));
    let usage = usage(&compiled.log);
    for entry in image.entries {
        let facts = usage.get(entry.name).expect("facts of every kernel");
        // A queue's fast path has no business in local memory; `mixed` keeps an array of its own there.
        let is_lean = facts.iter().any(|fact| fact.starts_with("0 bytes stack frame"));
        assert!(is_lean || entry.name == "mixed", "{name}, {}: {facts:?}", entry.name);
        println!("{} {arch} {}: {}", image.name, entry.name, facts.join("; "));
    }
}
