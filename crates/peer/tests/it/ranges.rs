//! Ranges of memory that a process offers, as peers reach them.

use crate::pair::simt;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};
use warpverbs_dev::{Child, say};
use warpverbs_gpu::{Buffer, Gpu, Place};
use warpverbs_peer::descriptor::Trust;
use warpverbs_peer::{
    Exporter, Identity, Introduction, RangeOffer, RangePlace, Reason, RemoteRange, Route, reach,
    read_back, write_word,
};
use warpverbs_transport::{Access, Context, MemoryRegion};

const PAGE: u64 = 1 << 16;
const SOON: Duration = Duration::from_secs(60);

/// Three segments of different lengths in a row, the bytes of which count up.
fn joined(gpu: &dyn Gpu) -> Buffer {
    let page = gpu.arena(1).unwrap().granule().max(PAGE);
    let arena = gpu.arena(16 * page).unwrap();
    let segments: Vec<_> = [(2, 1), (3, 2), (5, 4)]
        .map(|(at, pages)| arena.commit(at * page, pages * page).unwrap())
        .into();
    let buffer = arena.join(&segments).unwrap();
    let bytes: Vec<u8> = (0..buffer.len()).map(|i| pattern(i as u64)).collect();
    gpu.write(&buffer, 0, &bytes).unwrap();
    buffer
}

fn pattern(i: u64) -> u8 {
    (i.wrapping_mul(0x9e37_79b9) >> 13) as u8
}

fn reached(gpu: &dyn Gpu, peer: &Introduction, offer: &RangeOffer) -> RemoteRange {
    let own = Identity::of_this_process(gpu);
    reach(gpu, &own, peer, offer, Ok(Trust::Launch), Instant::now() + SOON)
}

/// As it travels.
fn sent(offer: &RangeOffer) -> RangeOffer {
    serde_json::from_str(&serde_json::to_string(offer).unwrap()).unwrap()
}

fn registered(buffer: &Buffer) -> Arc<MemoryRegion> {
    let nic = Context::new().unwrap().open("soft").unwrap();
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    Arc::new(nic.register(buffer.clone(), access).unwrap())
}

#[test]
fn any_part_of_memory_over_several_allocations_is_mapped() {
    let gpu = simt();
    let (all, exporter) = (joined(&*gpu), Exporter::start(&*gpu).unwrap());
    let cases = [
        (0, 7 * PAGE),
        (PAGE - 3, 7),
        (16, PAGE - 16),
        (PAGE, 2 * PAGE),
        (PAGE + 8, 2 * PAGE),
        (3 * PAGE + 1, 4 * PAGE - 1),
        (2 * PAGE, 0),
        (7 * PAGE - 1, 1),
    ];
    for (offset, len) in cases {
        let exported = exporter.export(all.slice(offset, len as usize).unwrap(), None);
        let range = reached(&*gpu, exporter.introduction(), &sent(exported.offer()));
        let decision = range.decision().explain();
        assert_eq!(range.decision().route, Route::Direct, "{offset}+{len}: {decision}");
        assert_eq!(decision, "direct by abstract socket");
        let mapped = range.mapped().unwrap();
        assert_ne!(mapped.kernel_addr(), all.kernel_addr() + offset, "a mapping of its own");
        let place = RangePlace { route: Route::Direct, address: mapped.kernel_addr(), key: 0 };
        assert_eq!((range.place(), range.len()), (Some(place), len));
        let mut bytes = vec![0; len as usize];
        gpu.read(mapped, 0, &mut bytes).unwrap();
        assert!((offset..).zip(&bytes).all(|(i, byte)| *byte == pattern(i)), "{offset}+{len}");
    }
}

#[test]
fn a_kernel_writes_through_a_mapping_that_outlives_offer_and_range() {
    let gpu = simt();
    let (all, exporter) = (joined(&*gpu), Exporter::start(&*gpu).unwrap());
    let exported = exporter.export(all.slice(PAGE - 8, 4096).unwrap(), None);
    let (offer, peer) = (sent(exported.offer()), exporter.introduction().clone());
    let range = reached(&*gpu, &peer, &offer);
    let mapped = range.mapped().unwrap().clone();
    drop((range, exported));
    write_word(&*gpu, &mapped, 8, 0x0123_4567_89ab_cdef, SOON).unwrap();
    read_back(&*gpu, &all, PAGE, 0x0123_4567_89ab_cdef).unwrap();
    // A peer that comes after the offer was withdrawn gets nothing.
    let late = reached(&*gpu, &peer, &offer);
    assert_eq!((late.decision().route, late.place()), (Route::None, None));
    let why = late.decision().explain();
    assert!(why.contains("no longer offers it") && why.contains("not registered"), "{why}");
}

#[test]
fn memory_that_cannot_be_mapped_is_reached_by_its_key() {
    let gpu = simt();
    let exporter = Exporter::start(&*gpu).unwrap();
    let buffer = gpu.alloc(4096, Place::Device).unwrap();
    let region = registered(&buffer);
    let exported = exporter.export(buffer.clone(), Some(region.clone()));
    let range = reached(&*gpu, exporter.introduction(), &sent(exported.offer()));
    let rdma = RangePlace { route: Route::Rdma, address: region.addr(), key: region.rkey() };
    assert_eq!(range.place(), Some(rdma));
    let why = range.decision().explain();
    assert!(why.contains("was not allocated to be shared"), "{why}");
    // Without a registration it is not reached at all.
    let exported = exporter.export(buffer, None);
    let range = reached(&*gpu, exporter.introduction(), exported.offer());
    assert_eq!(range.decision().route, Route::None);
}

#[test]
fn loads_and_stores_that_are_not_wanted_are_not_taken() {
    let gpu = simt();
    let (all, exporter) = (joined(&*gpu), Exporter::start(&*gpu).unwrap());
    let exported = exporter.export(all.clone(), Some(registered(&all)));
    let peer = exporter.introduction();
    assert_eq!(reached(&*gpu, peer, exported.offer()).decision().route, Route::Direct);
    let (own, forced) = (peer.identity.clone(), Reason::new("loads and stores", "forced"));
    let deadline = Instant::now() + SOON;
    let range = reach(&*gpu, &own, peer, exported.offer(), Err(forced), deadline);
    assert_eq!(range.decision().explain(), "rdma (loads and stores: forced)");
    // Nor is another machine asked.
    let mut far = peer.clone();
    far.identity.boot_id = "far".into();
    let range = reached(&*gpu, &far, exported.offer());
    assert_eq!(range.decision().route, Route::Rdma);
    assert!(range.decision().explain().contains("another machine"));
}

#[test]
fn an_offer_that_lies_is_refused() {
    let gpu = simt();
    let (all, exporter) = (joined(&*gpu), Exporter::start(&*gpu).unwrap());
    let exported = exporter.export(all.clone(), Some(registered(&all)));
    let honest = serde_json::to_value(exported.offer()).unwrap();
    let lies: [(&str, serde_json::Value); 7] = [
        ("/len", (7 * PAGE + 1).into()),
        ("/len", u64::MAX.into()),
        ("/offset", (7 * PAGE).into()),
        ("/offset", u64::MAX.into()),
        ("/pieces/Ok/1/Descriptor/len", u64::MAX.into()),
        ("/pieces/Ok/1/Descriptor/len", PAGE.into()),
        ("/pieces/Ok", serde_json::json!([])),
    ];
    for (place, value) in lies {
        let mut lie = honest.clone();
        *lie.pointer_mut(place).unwrap() = value.clone();
        let lie = serde_json::from_value(lie).unwrap();
        let range = reached(&*gpu, exporter.introduction(), &lie);
        assert!(range.mapped().is_none(), "{place} {value}: {range:?}");
        assert!(!range.decision().not_better.is_empty());
    }
    // An IPC handle is of no use to this device, nor is one of another length to any.
    for (bytes, expected) in [(64, "CUDA IPC handle"), (3, "expected 64")] {
        let mut lie = honest.clone();
        let handle = serde_json::json!([{"CudaIpc": {"handle": vec![7; bytes], "len": 8 * PAGE}}]);
        *lie.pointer_mut("/pieces/Ok").unwrap() = handle;
        *lie.pointer_mut("/region").unwrap() = serde_json::json!([1, 2, 3]);
        let range = reached(&*gpu, exporter.introduction(), &serde_json::from_value(lie).unwrap());
        let why = range.decision().explain();
        assert!(range.place().is_none() && why.contains(expected), "{why}");
        assert!(why.contains("the peer's registration"), "{why}");
    }
}

#[test]
fn adopted_memory_is_reached_by_its_key_and_kept_alive() {
    let gpu = simt();
    let memory = gpu.alloc(8192, Place::Device).unwrap();
    let keep = Arc::new(memory.region().clone());
    let weak = Arc::downgrade(&keep);
    // SAFETY: the region lives as long as `keep`.
    let adopted = unsafe { gpu.adopt(memory.region().addr() + 9, 4096, keep) }.unwrap();
    let region = registered(&adopted);
    let exporter = Exporter::start(&*gpu).unwrap();
    let exported = exporter.export(adopted, Some(region));
    let range = reached(&*gpu, exporter.introduction(), exported.offer());
    assert_eq!(range.place().unwrap().address, memory.region().addr() + 9);
    assert!(weak.upgrade().is_some());
    drop(exported);
    assert!(weak.upgrade().is_none());
}

#[derive(Serialize, Deserialize)]
struct Said {
    peer: Introduction,
    offers: Vec<RangeOffer>,
}

const OWNER: &str = "RANGE_OWNER";

/// The part of another process: offers memory of a device until it is killed or its input ends. Each
/// range begins with byte 100 of the pattern.
#[test]
fn owner() {
    let Ok(device) = std::env::var(OWNER) else { return };
    let gpu = warpverbs_gpu::open(device.parse().unwrap()).unwrap();
    let (all, exporter) = (joined(&*gpu), Exporter::start(&*gpu).unwrap());
    let mut ranges = vec![all.slice(100, 5000).unwrap()];
    if device != "simt" {
        let own = gpu.alloc(all.len(), Place::Device).unwrap();
        let mut bytes = vec![0; all.len()];
        gpu.read(&all, 0, &mut bytes).unwrap();
        gpu.write(&own, 0, &bytes).unwrap();
        ranges.push(own.slice(100, own.len() - 100).unwrap());
        // As another library's tensor, over all segments.
        let (addr, keep) = (all.kernel_addr(), Arc::new(all.clone()));
        // SAFETY: the buffer lives as long as `keep`.
        let adopted = unsafe { gpu.adopt(addr, all.len(), keep) }.unwrap();
        ranges.push(adopted.slice(100, all.len() - 100).unwrap());
    }
    let exported: Vec<_> = ranges.into_iter().map(|range| exporter.export(range, None)).collect();
    let offers = exported.iter().map(|exported| exported.offer().clone()).collect();
    let said = Said { peer: exporter.introduction().clone(), offers };
    say(serde_json::to_string(&said).unwrap());
    let _ = std::io::stdin().read_line(&mut String::new());
}

fn start_owner(device: &str) -> (Child, Said) {
    let mut child = Child::of_test("ranges::owner", OWNER, device);
    let said = serde_json::from_str(&child.said()).unwrap();
    (child, said)
}

fn check_pattern(gpu: &dyn Gpu, range: &RemoteRange) {
    let mut bytes = vec![0; range.len() as usize];
    let mapped = range.mapped().unwrap_or_else(|| panic!("{}", range.decision().explain()));
    gpu.read(mapped, 0, &mut bytes).unwrap();
    assert!((100..).zip(&bytes).all(|(i, byte)| *byte == pattern(i)));
}

#[test]
fn memory_of_a_killed_process_stays_and_is_not_to_be_had_anew() {
    let gpu = simt();
    let (mut child, said) = start_owner("simt");
    let range = reached(&*gpu, &said.peer, &said.offers[0]);
    child.kill();
    check_pattern(&*gpu, &range);
    let late = reached(&*gpu, &said.peer, &said.offers[0]);
    assert_eq!(late.decision().route, Route::None);
    assert!(late.decision().not_better.len() >= 3, "{}", late.decision().explain());
}

/// Segments by descriptors, plain device memory by an IPC handle, and memory that was adopted.
#[test]
#[ignore = "needs a GPU"]
fn memory_of_a_gpu_is_mapped_by_another_process() {
    let device = std::env::var("WARPVERBS_TEST_OWNER").unwrap_or_else(|_| warpverbs_dev::gpu(0));
    let gpu = warpverbs_gpu::open(warpverbs_dev::gpu(0).parse().unwrap()).unwrap();
    let (child, said) = start_owner(&device);
    for (offer, by) in said.offers.iter().zip(["abstract socket", "IPC handle", "abstract socket"])
    {
        let range = reached(&*gpu, &said.peer, offer);
        check_pattern(&*gpu, &range);
        assert_eq!(range.decision().explain(), format!("direct by {by}"));
    }
    assert!(child.end().success());
}
