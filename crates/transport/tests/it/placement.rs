//! Queues in memory of a device.

use crate::common::{Pair, connect, simt, word};
use warpverbs_gpu::{GpuChoice, Place};
use warpverbs_transport::{Access, Context, EndpointConfig, QueuePlacement, SendFlags, UsageError};

#[test]
fn the_host_may_post_beside_the_lanes_of_a_simt_device() {
    let gpu = simt();
    for placement in [QueuePlacement::Simt, QueuePlacement::PinnedHost, QueuePlacement::Device] {
        let pair = Pair::new(&EndpointConfig::for_gpu(&gpu).placement(placement));
        let host = pair.a.host().unwrap();
        let work = host.post_write_inline(&[5; 8], pair.dst.remote(), SendFlags::SIGNALED);
        host.wait(work.unwrap()).unwrap();
        assert_eq!(word(&pair.dst, 0), u64::from_le_bytes([5; 8]));
        assert_ne!(pair.a.device_qp().addr(), 0);
    }
}

#[test]
fn a_nic_that_only_consumes_completes_everything_unseen() {
    let pair = Pair::new(&EndpointConfig::host().consume_only(true));
    let host = pair.a.host().unwrap();
    for _ in 0..1000 {
        let work = host.post_write_inline(&[5; 8], pair.dst.remote(), SendFlags::UNSIGNALED);
        let _ = work.unwrap();
    }
    host.quiet().unwrap();
    assert_eq!(word(&pair.dst, 0), 0);
}

#[test]
fn buffers_of_a_device_are_registered_where_they_are() {
    let gpu = simt();
    let device = Context::new().unwrap().open("auto").unwrap();
    let buffer = gpu.alloc(4096, Place::Device).unwrap();
    let region = device.register(buffer.clone(), Access::LOCAL_WRITE).unwrap();
    assert_eq!((region.kernel_addr(), region.len()), (buffer.kernel_addr(), 4096));
    assert_eq!(region.addr(), buffer.region().addr());
    let again = device.register(buffer, Access::empty()).unwrap();
    assert_ne!(region.lkey(), again.lkey());
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn an_endpoint_for_a_gpu_is_the_kernels_own() {
    let gpu = warpverbs_gpu::open(GpuChoice::Cuda(0)).unwrap();
    let device = Context::new().unwrap().open("soft").unwrap();
    let mut ends = [0, 1].map(|_| device.endpoint(&EndpointConfig::for_gpu(&gpu)).unwrap());
    assert!(matches!(ends[0].host(), Err(UsageError::KernelPosted { .. })));
    for _ in 0..2 {
        let [a, b] = &mut ends;
        connect(a, b);
        let health = a.health().unwrap();
        assert!(health.is_ok() && health.send.reserved == 0, "{health}");
        a.abort().unwrap();
        assert!(a.health().unwrap().aborted);
        a.reset().unwrap();
        b.reset().unwrap();
    }
    // The NIC copies the send queue from there, or reads none of it.
    let on_gpu = EndpointConfig::for_gpu(&gpu).placement(QueuePlacement::Device);
    for config in [on_gpu.clone(), on_gpu.consume_only(true)] {
        let (a, _b) = device.pair(&config).unwrap();
        assert!(matches!(a.host(), Err(UsageError::KernelPosted { .. })));
        assert_ne!(a.device_qp().addr(), 0);
        assert!(a.health().unwrap().is_ok(), "{}", a.health().unwrap());
    }
    let buffer = gpu.alloc(1 << 20, Place::Device).unwrap();
    let region = device.register(buffer, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    assert_eq!(region.kernel_addr(), region.addr());
}
