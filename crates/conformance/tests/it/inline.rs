//! Inline data on an RDMA device that takes little of it, or none: the work that devices differ in
//! most. The device is libibverbs without hardware.

use warpverbs::gpu::{self, GpuChoice};
use warpverbs::transport::Context;
use warpverbs::transport::VerbsProvider;
use warpverbs_conformance::{CASES, Setup};
use warpverbs_verbs::testing::fake;

#[test]
fn inline_data_is_taken_whatever_the_device_takes() {
    let Some(fake) = fake() else { return };
    for limit in [0, 16, 100] {
        fake.max_inline(limit);
        let provider = VerbsProvider::over(fake.verbs());
        let context = Context::builder().verbs(provider).build().unwrap();
        let setup = Setup::on(&context, "fake0").unwrap();
        let setup = setup.with_gpu(gpu::open(GpuChoice::Simt).expect("host SIMT"));
        let cases: Vec<_> = CASES.iter().filter(|case| case.name.contains("inline")).collect();
        assert!(cases.len() >= 3, "host- and kernel-posted ones");
        for case in cases {
            let outcome = setup.run(case);
            assert!(outcome.is_right(), "with {limit} bytes: {outcome}");
        }
    }
}
