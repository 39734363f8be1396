//! A GPU's memory on an RDMA device, which is libibverbs without hardware: how it is registered, and
//! that the bytes get through. The GPU is pretended to, but for the tests that need one.

use crate::common::{Pair, all_access, bytes, drop_in_order, simt};
use std::any::Any;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use warpverbs_gpu::{Gpu, GpuChoice, Place};
use warpverbs_mem::testing::{LazyCopier, LazyMemory};
use warpverbs_mem::{Kind, Region};
use warpverbs_nic::Rule;
use warpverbs_transport::{
    Access, Context, Device, EndpointConfig, ErrorKind, MemoryRegion, RegisterOptions,
    RegistrationPath, SendFlags, TransportError,
};
use warpverbs_transport::{Reader, VerbsProvider};
use warpverbs_verbs::VerbsError;
use warpverbs_verbs::testing::{Fake, Live, fake};

const SIGNALED: SendFlags = SendFlags::SIGNALED;
const UNSUPPORTED: i32 = nix::errno::Errno::EOPNOTSUPP as i32;
const OWN: RegisterOptions = RegisterOptions::new(Access::LOCAL_WRITE).bounce(true);

/// The device, on a machine with these kernel modules.
fn device(fake: &Fake, modules: &[&str]) -> Device {
    let root = tempfile::tempdir().unwrap();
    for module in modules {
        std::fs::create_dir_all(root.path().join("sys/module").join(module)).unwrap();
    }
    let provider = VerbsProvider::over(fake.verbs()).with_root(root.keep());
    let context = Context::builder().verbs(provider).build().unwrap();
    context.open("fake0").unwrap()
}

/// Endpoints to which kernels may post, so the engine is in the path.
fn pair(device: &Device) -> Pair {
    Pair::on(device.clone(), &EndpointConfig::for_gpu(&simt()))
}

/// 8 KiB of a GPU, as it is registered and as the test sees it, with an engine at its own pace.
fn memory(dmabuf: Option<(OwnedFd, u64)>) -> (Region, Region, Arc<LazyCopier>) {
    let copier = Arc::new(LazyCopier::default());
    copier.allow(u64::MAX);
    let (region, view) = LazyMemory::exporting(8192, 0, &copier, dmabuf).unwrap();
    (region, view, copier)
}

fn file() -> Option<(OwnedFd, u64)> {
    Some((std::fs::File::open("/proc/self/exe").unwrap().into(), 4096))
}

/// There and back: a WRITE, a READ, a message and the result of an atomic.
fn moves_bytes(
    pair: &Pair,
    memory: &MemoryRegion,
    put: impl Fn(u64, &[u8]),
    get: impl Fn(u64, usize) -> Vec<u8>,
) {
    let (a, b) = (pair.a.host().unwrap(), pair.b.host().unwrap());
    let part = |at, len| memory.local().slice(at, len).unwrap();
    let there = |at, len| pair.dst.remote().slice(at, len).unwrap();
    put(0, b"out of the GPU");
    let work = a.post_write(part(0, 14), there(100, 14), SIGNALED).unwrap();
    a.wait(work).unwrap();
    assert_eq!(bytes(&pair.dst, 100, 14), b"out of the GPU");

    pair.dst.write(200, b"into the GPU").unwrap();
    let work = a.post_read(part(1000, 12), there(200, 12), SIGNALED).unwrap();
    a.wait(work).unwrap();
    assert_eq!(get(1000, 13), b"into the GPU\0");

    let _ = a.post_recv(part(2000, 64)).unwrap();
    pair.src.write(0, b"a message").unwrap();
    let work = b.post_send(pair.src.local().slice(0, 9).unwrap(), SIGNALED).unwrap();
    assert_eq!(a.wait_recv().unwrap().byte_len, 9);
    b.wait(work).unwrap();
    assert_eq!(get(2000, 10), b"a message\0");

    let _ = b.post_recv(pair.dst.local().slice(300, 64).unwrap()).unwrap();
    put(3000, b"from the GPU");
    let work = a.post_send(part(3000, 12), SIGNALED).unwrap();
    assert_eq!(b.wait_recv().unwrap().byte_len, 12);
    a.wait(work).unwrap();
    assert_eq!(bytes(&pair.dst, 300, 12), b"from the GPU");
}

#[test]
fn a_dmabuf_is_registered_where_it_lies_and_nothing_is_copied() {
    let Some(fake) = fake() else { return };
    fake.dmabuf_is_here(true);
    let device = device(&fake, &["nvidia_peermem"]);
    let (region, view, copier) = memory(file());
    let slice = region.slice(4096, 4096).unwrap();
    let addr = slice.addr();
    let registered = device.register_region(slice, OWN).unwrap();
    let how = registered.how();
    assert_eq!((how.route, how.explain().as_str()), (RegistrationPath::Dmabuf, "dmabuf"));
    assert_eq!(fake.mr_place(registered.rkey()), Some((8192, addr, 4096)));
    copier.break_down();
    let all = view.slice(4096, 4096).unwrap();
    let get = |at, len| {
        let mut out = vec![0; len];
        all.read(at, &mut out).unwrap();
        out
    };
    moves_bytes(&pair(&device), &registered, |at, data| all.write(at, data).unwrap(), get);
    // Peers may reach it, too.
    let open = device.register_region(region, all_access()).unwrap();
    assert_eq!(open.how().route, RegistrationPath::Dmabuf);
}

#[test]
fn the_next_ways_are_taken_in_order_and_the_reasons_told() {
    let Some(fake) = fake() else { return };
    let with = device(&fake, &["nvidia_peermem"]);
    fake.fail_next("ibv_reg_dmabuf_mr", UNSUPPORTED);
    let region = with.register_region(memory(file()).0, OWN).unwrap();
    assert_eq!(region.how().route, RegistrationPath::PeerMemory);
    assert!(region.how().explain().contains("dmabuf: "), "{}", region.how().explain());

    let without = device(&fake, &[]);
    let region = without.register_region(memory(None).0, OWN).unwrap();
    let why = region.how().explain();
    assert_eq!(region.how().route, RegistrationPath::Bounce);
    for words in ["bounce through host memory (", "cuda:0 memory is not exported", "nvidia_peermem"]
    {
        assert!(why.contains(words), "{words:?} is not in {why}");
    }
    let error = without.register_region(memory(None).0, Access::LOCAL_WRITE).unwrap_err();
    assert!(error.to_string().contains("bounce through host memory: not asked for"), "{error}");
}

#[test]
fn memory_that_bounces_is_copied_on_the_way() {
    let Some(fake) = fake() else { return };
    let device = device(&fake, &[]);
    let (region, view, _copier) = memory(None);
    let registered = device.register_region(region, OWN).unwrap();
    let get = |at, len| {
        let mut out = vec![0; len];
        view.read(at, &mut out).unwrap();
        out
    };
    let pair = pair(&device);
    moves_bytes(&pair, &registered, |at, data| view.write(at, data).unwrap(), get);
    assert!(pair.a.health().unwrap().is_ok() && pair.b.health().unwrap().is_ok());
}

#[test]
fn the_hosts_own_calls_do_not_pass_the_engine_and_are_refused() {
    let Some(fake) = fake() else { return };
    let device = device(&fake, &[]);
    let memory = device.register_region(memory(None).0, OWN).unwrap();
    let pair = Pair::on(device, &EndpointConfig::host());
    let (host, part) = (pair.a.host().unwrap(), memory.local().slice(0, 8).unwrap());
    let there = pair.dst.remote().slice(0, 8).unwrap();
    let error = host.post_write(part, there, SIGNALED).and_then(|work| host.wait(work));
    assert!(matches!(error, Err(TransportError::Work(_))), "{error:?}");
    let first = pair.a.health().unwrap().first_error.unwrap();
    assert_eq!(first.rule, Some(Rule::Bounced { key: memory.lkey() }));
}

#[test]
fn peers_get_no_rights_to_memory_that_bounces() {
    let Some(fake) = fake() else { return };
    let device = device(&fake, &[]);
    let before = fake.live();
    let options = RegisterOptions::new(all_access()).bounce(true);
    let error = device.register_region(memory(None).0, options).unwrap_err();
    assert!(matches!(error, TransportError::Verbs(VerbsError::BouncedRights { .. })), "{error}");
    assert_eq!((error.kind(), fake.live()), (ErrorKind::BadCaller, before));
    assert!(error.to_string().contains("Place::Shared"), "{error}");
}

#[test]
fn everything_goes_in_any_order_with_copies_under_way() {
    let Some(fake) = fake() else { return };
    for order in (0..720).step_by(31) {
        let device = device(&fake, &[]);
        let copier = Arc::new(LazyCopier::default());
        let (region, _view) = LazyMemory::regions(8192, 0, &copier).unwrap();
        let memory = device.register_region(region, OWN).unwrap();
        let Pair { a, b, src, dst, device: _ } = pair(&device);
        let host = a.host().unwrap();
        for at in 0..8u64 {
            let part = memory.local().slice(at * 8, 8).unwrap();
            let there = dst.remote().slice(at * 8, 8).unwrap();
            let _ = host.post_write(part, there, SendFlags::UNSIGNALED).unwrap();
            let _ = host.post_read(part, there, SIGNALED).unwrap();
        }
        let parts: [Box<dyn Any>; 6] = [
            Box::new(a),
            Box::new(b),
            Box::new(src),
            Box::new(dst),
            Box::new(device),
            Box::new(memory),
        ];
        drop_in_order(parts, order);
        // Memory that the copies still touch lives until they end.
        copier.allow(u64::MAX);
        assert_eq!(fake.live(), Live::default(), "order {order}");
    }
}

#[test]
fn inline_data_of_any_size_goes_through_a_device_that_takes_none() {
    let Some(fake) = fake() else { return };
    for limit in [0, 16, 100] {
        fake.max_inline(limit);
        for config in [EndpointConfig::for_gpu(&simt()), EndpointConfig::host()] {
            let pair = Pair::on(device(&fake, &[]), &config.inline_bytes(220));
            let host = pair.a.host().unwrap();
            for i in 0..1000u64 {
                let data = [i as u8 | 1; 220];
                let at = pair.dst.remote().slice(i % 100 * 220, 220).unwrap();
                let flags = if i % 7 == 0 { SIGNALED } else { SendFlags::UNSIGNALED };
                let _ =
                    host.post_write_inline(&data[..(i % 54 + 1) as usize * 4], at, flags).unwrap();
            }
            host.quiet().unwrap();
            for i in 900..1000u64 {
                let len = (i % 54 + 1) as usize * 4;
                let found = bytes(&pair.dst, i % 100 * 220, len);
                assert_eq!(found, vec![i as u8 | 1; len], "{i} at limit {limit}");
            }
            assert!(pair.a.health().unwrap().is_ok());
        }
    }
}

#[test]
fn the_software_nic_copies_and_says_so() {
    let device = Context::new().unwrap().open("soft").unwrap();
    let (region, ..) = memory(None);
    let gpus = device.register_region(region, OWN).unwrap();
    assert_eq!(gpus.how().route, RegistrationPath::CopyEngine);
    let hosts = device.alloc_host(64, all_access()).unwrap();
    assert_eq!(hosts.how().explain(), "host memory");
}

/// Device memory with 4 KiB of something before it in the same allocation of the driver.
fn cuda() -> (Arc<dyn Gpu>, warpverbs_gpu::Buffer) {
    let gpu = warpverbs_gpu::open(GpuChoice::Cuda(0)).unwrap();
    let _before = gpu.alloc(4096, Place::Device).unwrap();
    let buffer = gpu.alloc(64 << 10, Place::Device).unwrap();
    (gpu, buffer)
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_gpus_dmabuf_is_registered_at_its_offset_under_its_addresses() {
    let Some(fake) = fake() else { return };
    let (gpu, buffer) = cuda();
    assert!(gpu.info().dmabuf, "{:?}", gpu.info());
    let device = device(&fake, &[]);
    let region = buffer.region().clone();
    for (at, len) in [(0, 64 << 10), (4096, 4096), (8192, 100)] {
        let part = region.slice(at, len).unwrap();
        let exported = part.export_dmabuf().unwrap();
        assert!(exported.fd.as_fd().as_raw_fd() >= 0);
        assert_eq!(exported.offset % 4096, part.addr() % 4096, "the same place in a page");
        let registered = device.register_region(part.clone(), all_access()).unwrap();
        let how = registered.how().explain();
        println!("+{at:#x}, {len} bytes: {how}, offset {:#x}", exported.offset);
        assert_eq!(registered.how().route, RegistrationPath::Dmabuf);
        let place = (exported.offset, part.addr(), len as u64);
        assert_eq!(fake.mr_place(registered.rkey()), Some(place));
    }
    let shared = gpu.alloc(4096, Place::Shared).unwrap();
    assert_eq!(shared.region().kind(), Kind::Host);
    assert_eq!(device.register(shared, OWN).unwrap().how().route, RegistrationPath::Host);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_gpus_memory_bounces_where_dmabufs_are_refused() {
    let Some(fake) = fake() else { return };
    let (gpu, buffer) = cuda();
    let device = device(&fake, &[]);
    fake.fail_next("ibv_reg_dmabuf_mr", UNSUPPORTED);
    let error = device.register(buffer.clone(), Access::LOCAL_WRITE).unwrap_err();
    println!("{error}");
    fake.fail_next("ibv_reg_dmabuf_mr", UNSUPPORTED);
    let registered = device.register(buffer.clone(), OWN).unwrap();
    println!("{}", registered.how().explain());
    assert_eq!(registered.how().route, RegistrationPath::Bounce);
    let get = |at, len| {
        let mut out = vec![0; len];
        gpu.read(&buffer, at, &mut out).unwrap();
        out
    };
    let pair = pair(&device);
    moves_bytes(&pair, &registered, |at, data| gpu.write(&buffer, at, data).unwrap(), get);
    // All of it at once, over and over.
    let (a, local) = (pair.a.host().unwrap(), registered.local());
    for round in 0..20u8 {
        let data: Vec<u8> = (0..64usize << 10).map(|i| (i * 7) as u8 ^ round).collect();
        gpu.write(&buffer, 0, &data).unwrap();
        let work = a.post_write(local, pair.dst.remote(), SIGNALED).unwrap();
        a.wait(work).unwrap();
        assert!(bytes(&pair.dst, 0, data.len()) == data, "round {round}, out");
        gpu.write(&buffer, 0, &vec![0; data.len()]).unwrap();
        let work = a.post_read(local, pair.dst.remote(), SIGNALED).unwrap();
        a.wait(work).unwrap();
        assert!(get(0, data.len()) == data, "round {round}, back");
    }
}

#[test]
fn a_survey_says_what_is_refused_and_leaves_nothing_behind() {
    let Some(fake) = fake() else { return };
    let provider = VerbsProvider::over(fake.verbs());
    let simt = simt();
    let found = provider.survey("fake0", &simt);
    let live = fake.live();
    let reader = found.reader().unwrap();
    assert_eq!((&found.kernels, reader.route, &found.register), (&Ok(()), Reader::Proxy, &None));
    // The reason is handed on.
    let [queues] = &reader.not_better[..] else { panic!("{reader:?}") };
    assert_eq!(Some(queues), found.queues.as_ref().err());
    assert!(queues.why.contains("fake0"), "{queues}");
    assert_eq!(found.memory.unwrap().route, RegistrationPath::Host);
    assert_eq!(found.bounce, None);
    fake.fail_next("ibv_reg_mr", 12);
    let found = provider.survey("fake0", &simt);
    let reader = found.reader().unwrap();
    assert_eq!((reader.route, reader.not_better.len()), (Reader::Bounce, 2), "{reader:?}");
    assert!(found.memory.unwrap_err().why.contains("ENOMEM"));
    // Host memory takes no copy: the second attempt registers it.
    assert_eq!((found.bounce, fake.live()), (Some(true), live));
    let found = provider.survey("fake9", &simt);
    assert!(found.reader().unwrap_err().why.contains("fake9"));
    assert!(found.memory.unwrap_err().why.contains("fake9"));
}
