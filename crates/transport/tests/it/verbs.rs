//! Endpoints on a device of libibverbs: one without hardware, whose work is done while it is posted.
//! Skipped, with a line that says so, where that library cannot be compiled.

use crate::common::{Pair, all_access, bytes, drop_in_order, simt, word};
use crate::ops::writes_and_reads;
use std::any::Any;
use warpverbs_gpu::{GpuInfo, GpuKind};
use warpverbs_transport::VerbsProvider;
use warpverbs_transport::{
    Context, CqMode, Device, EndpointConfig, EndpointHandle, FabricAddress, QpState, ReceivedKind,
    RemoteRegion, SendFlags, Syndrome, TransportError, UsageError,
};
use warpverbs_verbs::testing::{Fake, Live, fake};

const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// Posted to by calls, and by rings.
fn both() -> [EndpointConfig; 2] {
    [EndpointConfig::host(), EndpointConfig::for_gpu(&simt())]
}

pub(crate) fn context(fake: &Fake) -> Context {
    let provider = VerbsProvider::over(fake.verbs());
    Context::builder().verbs(provider).build().unwrap()
}

pub(crate) fn device(fake: &Fake) -> Device {
    context(fake).open("fake0").unwrap()
}

#[test]
fn every_operation_goes_through_the_device() {
    let Some(fake) = fake() else { return };
    let [calls, rings] = both();
    for config in [calls, rings.clone(), rings.send_cq(CqMode::Ring)] {
        let pair = Pair::on(device(&fake), &config);
        let host = pair.a.host().unwrap();
        writes_and_reads(&pair, host);
        let target = pair.dst.remote().slice(64, 8).unwrap();
        pair.dst.write(64, &40u64.to_le_bytes()).unwrap();
        assert_eq!(host.fetch_add(target, 2).unwrap(), 40);
        assert_eq!(host.compare_swap(target, 42, 7).unwrap(), 42);
        assert_eq!(host.compare_swap(target, 42, 9).unwrap(), 7);
        assert_eq!(word(&pair.dst, 64), 7);
        for i in 0..600u64 {
            let at = pair.dst.remote().slice(i % 64 * 8, 8).unwrap();
            let _ = host.post_write_inline(&i.to_le_bytes(), at, SendFlags::UNSIGNALED).unwrap();
        }
        host.quiet().unwrap();
        assert_eq!(word(&pair.dst, 8), 577);
        assert!(pair.a.health().unwrap().is_ok() && pair.b.health().unwrap().is_ok());
    }
}

#[test]
fn messages_arrive_with_what_goes_beside_them() {
    let Some(fake) = fake() else { return };
    both().iter().for_each(|config| exchange(&Pair::on(device(&fake), config)));
}

fn exchange(pair: &Pair) {
    let (a, b) = (pair.a.host().unwrap(), pair.b.host().unwrap());
    pair.src.write(0, b"a message").unwrap();
    let text = pair.src.local().slice(0, 9).unwrap();
    for at in [0u64, 100, 200] {
        let _ = b.post_recv(pair.dst.local().slice(at, 100).unwrap()).unwrap();
    }
    let _ = a.post_send(text, SIGNALED).unwrap();
    let _ = a.post_send_imm(text, 0x1234_5678, SIGNALED).unwrap();
    let last = a.post_write_imm(text, pair.dst.remote().slice(300, 9).unwrap(), 9, SIGNALED);
    a.wait(last.unwrap()).unwrap();
    let kinds = [ReceivedKind::Send, ReceivedKind::SendImm(0x1234_5678), ReceivedKind::WriteImm(9)];
    for kind in kinds {
        let received = b.wait_recv().unwrap();
        assert_eq!((received.kind, received.byte_len), (kind, 9));
    }
    for at in [0, 100, 300] {
        assert_eq!(bytes(&pair.dst, at, 9), b"a message");
    }
}

#[test]
fn shared_receives_serve_several_endpoints() {
    let Some(fake) = fake() else { return };
    let device = device(&fake);
    let srq = device.srq(16, 1).unwrap();
    let pairs = both().map(|config| Pair::on(device.clone(), &config.srq(&srq)));
    for at in 0..4 {
        srq.post_recv(pairs[0].dst.local().slice(at * 64, 64).unwrap()).unwrap();
    }
    for pair in &pairs {
        let host = pair.a.host().unwrap();
        for _ in 0..2 {
            let sent = host.post_send(pair.src.local().slice(0, 8).unwrap(), SIGNALED).unwrap();
            host.wait(sent).unwrap();
        }
    }
    for pair in &pairs {
        for _ in 0..2 {
            assert_eq!(pair.b.host().unwrap().wait_recv().unwrap().byte_len, 8);
        }
    }
}

#[test]
fn an_error_of_the_device_comes_with_its_cause_and_can_be_reset() {
    let Some(fake) = fake() else { return };
    both().iter().for_each(|config| fail_and_begin_anew(Pair::on(device(&fake), config)));
}

fn fail_and_begin_anew(mut pair: Pair) {
    let wrong = RemoteRegion::new(pair.dst.addr(), 8, pair.dst.rkey() ^ 0xff_ff00);
    let host = pair.a.host().unwrap();
    let posted = host.post_write(pair.src.local().slice(0, 8).unwrap(), wrong, SIGNALED).unwrap();
    let error = host.wait(posted).unwrap_err();
    assert!(error.to_string().contains("remote access error"), "{error}");
    let health = pair.a.health().unwrap();
    assert_eq!((health.state, health.syndrome()), (QpState::Err, Some(Syndrome::RemoteAccess)));
    pair.restart();
    writes_and_reads(&pair, pair.a.host().unwrap());
}

#[test]
fn keys_for_peers_are_the_devices() {
    let Some(fake) = fake() else { return };
    let device = device(&fake);
    let region = device.alloc_host(4096, all_access()).unwrap();
    assert_ne!(region.lkey(), region.rkey(), "the NIC's, and the device's");
    assert_eq!(fake.mr_access(region.rkey()), Some(0b1111));
    let (handle, kind) = {
        let endpoint = device.endpoint(&EndpointConfig::host()).unwrap();
        (endpoint.handle(), endpoint.handle().reach())
    };
    assert!(matches!(kind, FabricAddress::RoceV2 { .. }), "{kind}");
    assert_eq!(handle.addr().unwrap().port(), 4791);
    assert_eq!(EndpointHandle::from_bytes(&handle.to_bytes()), Ok(handle));
}

#[test]
fn devices_of_two_networks_and_software_without_one_do_not_meet() {
    let Some(fake) = fake() else { return };
    let context = context(&fake);
    let endpoint =
        |nic: &str| context.open(nic).unwrap().endpoint(&EndpointConfig::host()).unwrap();
    let (roce, ib, soft) = (endpoint("fake0"), endpoint("fake1"), endpoint("soft"));
    assert!(matches!(ib.handle().reach(), FabricAddress::Infiniband { lid: 1.., .. }));
    for (one, other) in [(&roce, &ib), (&ib, &roce), (&roce, &soft), (&soft, &ib)] {
        let error = one.connect(&other.handle()).unwrap_err();
        assert!(matches!(error, TransportError::Usage(UsageError::NoWay { .. })), "{error}");
        assert_eq!((one.state(), one.peer()), (QpState::Init, None), "{error}");
    }
}

#[test]
fn auto_takes_the_device_and_says_why() {
    let Some(fake) = fake() else { return };
    let context = context(&fake);
    let chosen = context.open("auto").unwrap();
    assert_eq!((chosen.info().name.as_str(), chosen.info().provider), ("fake0", "verbs"));
    assert!(chosen.why().contains("RoCEv2"), "{}", chosen.why());
    assert!(chosen.why().contains("; proxy: the CPU reads"), "{}", chosen.why());
    let names: Vec<_> = context.devices().unwrap().into_iter().map(|info| info.name).collect();
    assert_eq!(names, ["fake0", "fake1", "soft0"]);
    let soft = Context::builder().without_verbs().build().unwrap().open("auto").unwrap();
    assert_eq!(soft.info().provider, "soft");
}

#[test]
fn auto_takes_the_device_nearest_to_the_gpu() {
    let Some(fake) = fake() else { return };
    let root = tempfile::tempdir().unwrap();
    let place = |link: &str, folder: &str| {
        let (link, folder) = (root.path().join(link), root.path().join(folder));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::create_dir_all(link.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(folder, link).unwrap();
    };
    let (near, far) =
        ("sys/devices/pci0000:80/0000:80:01.0", "sys/devices/pci0000:00/0000:00:01.0");
    place("nowhere/infiniband/fake0/device", &format!("{far}/0000:05:00.0"));
    place("nowhere/infiniband/fake1/device", &format!("{near}/0000:81:00.0"));
    for (gpu, above) in [("0000:82:00.0", near), ("0000:06:00.0", far)] {
        place(&format!("sys/bus/pci/devices/{gpu}"), &format!("{above}/{gpu}"));
    }
    let provider = VerbsProvider::over(fake.verbs()).with_root(root.path());
    let context = Context::builder().verbs(provider).build().unwrap();
    let of_gpu = |pci: Option<&str>| {
        let mut info = GpuInfo::new(GpuKind::Cuda, 0, "a GPU");
        info.pci = pci.map(str::to_owned);
        let nic = context.open_near("auto", &info).unwrap();
        (nic.info().name.clone(), nic.why().to_owned())
    };
    for (gpu, nic) in [("0000:82:00.0", "fake1"), ("0000:06:00.0", "fake0")] {
        let (name, why) = of_gpu(Some(gpu));
        assert_eq!(name, nic, "{why}");
        assert!(why.contains("from the GPU through PCIe switches only; "), "{why}");
    }
    // A GPU that is nowhere on the bus is near to none: the first device is taken.
    for pci in [None, Some("0000:99:00.0")] {
        let (name, why) = of_gpu(pci);
        assert_eq!((name.as_str(), why.contains("GPU")), ("fake0", false), "{why}");
    }
    // Asked for by name, the nearest does not matter.
    let named = context.open_near("fake0", &GpuInfo::new(GpuKind::Cuda, 0, "a GPU")).unwrap();
    assert_eq!(named.info().name, "fake0");
}

#[test]
fn a_device_that_does_not_open_is_named_beside_the_one_that_is_taken() {
    let Some(fake) = fake() else { return };
    let context = context(&fake);
    fake.fail_next("ibv_open_device", nix::errno::Errno::EACCES as i32);
    let chosen = context.open("auto").unwrap();
    assert!(chosen.why().starts_with("fake1: ") && chosen.why().contains("(fake0: "));
    let [passed] = &chosen.choice().not_better[..] else { panic!("{}", chosen.why()) };
    assert!(passed.what == "fake0" && passed.why.contains("EACCES"), "{passed}");
}

#[test]
fn what_the_device_refuses_is_told_and_leaves_nothing_behind() {
    let Some(fake) = fake() else { return };
    let device = device(&fake);
    let before = fake.live();
    for (call, errno) in [("ibv_create_cq", 12), ("ibv_create_qp", 12), ("ibv_modify_qp", 22)] {
        fake.fail_next(call, errno);
        let error = device.endpoint(&EndpointConfig::host()).unwrap_err();
        assert!(matches!(error, TransportError::Verbs(_)), "{call}: {error}");
        assert_eq!(fake.live(), before, "{call}");
    }
    fake.fail_next("ibv_reg_mr", 12);
    let error = device.alloc_host(4096, all_access()).unwrap_err();
    assert!(error.to_string().contains("ibv_reg_mr"), "{error}");
    assert_eq!(fake.live(), before);
    // Refused on the way to RTR: the endpoint can be connected still.
    let pair = [(); 2].map(|()| device.endpoint(&EndpointConfig::host()).unwrap());
    fake.fail_next("ibv_modify_qp", 110);
    let error = pair[0].connect(&pair[1].handle()).unwrap_err();
    assert!(matches!(error, TransportError::Verbs(_)), "{error}");
    pair[0].connect(&pair[1].handle()).unwrap();
}

#[test]
fn everything_goes_in_any_order_with_work_outstanding() {
    let Some(fake) = fake() else { return };
    for (order, config) in (0..120).zip(both().iter().cycle()) {
        let Pair { a, b, src, dst, device } = Pair::on(device(&fake), config);
        for _ in 0..20 {
            let host = a.host().unwrap();
            let _ = host.post_write(src.local(), dst.remote(), SendFlags::UNSIGNALED);
        }
        let parts: [Box<dyn Any>; 5] =
            [Box::new(a), Box::new(b), Box::new(src), Box::new(dst), Box::new(device)];
        drop_in_order(parts, order);
        assert_eq!(fake.live(), Live::default(), "order {order}");
    }
}
