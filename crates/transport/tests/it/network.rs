//! Endpoints on NICs that only a network joins, as in two processes.

use crate::common::{all_access, bytes, connect};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use warpverbs_gpu::{GpuChoice, Place};
use warpverbs_mem::testing::{LazyCopier, LazyMemory};
use warpverbs_mem::{HostBuf, Region};
use warpverbs_nic::{Config, LinkConfig, UdpConfig};
use warpverbs_transport::{
    Context, Device, Endpoint, EndpointConfig, EndpointHandle, LinkKind, MemoryRegion, Mtu,
    QpState, RemoteRegion, SendFlags, TransportError, UsageError,
};

const LEN: usize = 1 << 20;
const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// Parts of one process.
struct Rank {
    device: Device,
    endpoint: Endpoint,
    memory: MemoryRegion,
}

fn device() -> Device {
    let bind = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let link = LinkConfig::Udp(UdpConfig { max_mtu: Some(Mtu::B2048), ..UdpConfig::at(bind) });
    let config = Config { link, ..Config::default() };
    Context::builder().soft_config(config).build().unwrap().open("soft").unwrap()
}

fn rank(config: &EndpointConfig) -> Rank {
    rank_with(config, HostBuf::region(LEN).unwrap())
}

fn rank_with(config: &EndpointConfig, memory: Region) -> Rank {
    let device = device();
    let endpoint = device.endpoint(config).unwrap();
    let memory = device.register_region(memory, all_access()).unwrap();
    Rank { device, endpoint, memory }
}

/// Connects by bytes alone; what each knows of the other's memory.
fn meet(a: &Rank, b: &Rank) -> [RemoteRegion; 2] {
    let [to_a, to_b] = [a, b].map(|rank| rank.endpoint.handle().to_bytes());
    a.endpoint.connect(&EndpointHandle::from_bytes(&to_b).unwrap()).unwrap();
    b.endpoint.connect(&EndpointHandle::from_bytes(&to_a).unwrap()).unwrap();
    [a, b].map(|rank| RemoteRegion::from_bytes(&rank.memory.remote().to_bytes()).unwrap())
}

#[test]
fn handles_and_regions_that_travelled_as_bytes_are_enough() {
    let config = EndpointConfig::host();
    let (a, b) = (rank(&config), rank(&config));
    let handle = a.endpoint.handle();
    assert_eq!(
        (handle.mtu(), handle.addr().unwrap().ip()),
        (Mtu::B2048, Ipv4Addr::LOCALHOST.into())
    );
    assert!(a.device.info().description.contains("RoCEv2 at 127.0.0.1"));
    let [_, there] = meet(&a, &b);
    let (here, host) = (a.memory.local(), a.endpoint.host().unwrap());
    let data: Vec<u8> = (0..1 << 20).map(|i: u32| (i * 7 + i / 256) as u8).collect();
    a.memory.write(0, &data).unwrap();
    host.wait(host.post_write(here, there, SIGNALED).unwrap()).unwrap();
    assert_eq!(bytes(&b.memory, 0, 1 << 20), data);
}

#[test]
fn every_kind_of_link_that_a_builder_gives_leads_to_another_context() {
    for kind in [LinkKind::Udp, LinkKind::Shm, LinkKind::Auto] {
        let [a, b] = [0, 1].map(|_| {
            let nics = Context::builder().soft_link(kind, (Ipv4Addr::LOCALHOST, 0).into());
            nics.build().unwrap().open("soft").unwrap()
        });
        let config = EndpointConfig::host();
        let (here, there) = (a.endpoint(&config).unwrap(), b.endpoint(&config).unwrap());
        connect(&here, &there);
        let from = a.alloc_host(64, all_access()).unwrap();
        let to = b.alloc_host(64, all_access()).unwrap();
        let data: [u8; 64] = std::array::from_fn(|i| (i * 5 + 1) as u8);
        from.write(0, &data).unwrap();
        let host = here.host().unwrap();
        host.wait(host.post_write(from.local(), to.remote(), SIGNALED).unwrap()).unwrap();
        assert_eq!(to.to_vec().unwrap(), data, "{kind:?}");
    }
}

#[test]
fn a_peer_without_a_network_is_refused() {
    let here = rank(&EndpointConfig::host());
    let loopback = Context::new().unwrap().open("soft").unwrap();
    let far = loopback.endpoint(&EndpointConfig::host()).unwrap();
    for (own, peer) in [(&here.endpoint, &far), (&far, &here.endpoint)] {
        let error = own.connect(&peer.handle()).unwrap_err();
        assert!(matches!(error, TransportError::Usage(UsageError::NoWay { .. })), "{error}");
        assert_eq!((own.peer(), own.state()), (None, QpState::Init));
    }
}

#[test]
fn a_solicited_message_says_so_at_the_other_end() {
    let config = EndpointConfig::host();
    let (a, b) = (rank(&config), rank(&config));
    let [_, there] = meet(&a, &b);
    let (from, to) = (a.endpoint.host().unwrap(), b.endpoint.host().unwrap());
    // One packet, and several, of which only the last says it.
    for len in [8, 3 * 2048 + 1] {
        let here = a.memory.local().slice(0, len).unwrap();
        for flags in [SIGNALED, SIGNALED | SendFlags::SOLICITED] {
            let solicited = flags.contains(SendFlags::SOLICITED);
            for _ in 0..2 {
                let _ = to.post_recv(b.memory.local()).unwrap();
            }
            from.wait(from.post_send(here, flags).unwrap()).unwrap();
            assert_eq!(to.wait_recv().unwrap().solicited, solicited, "SEND of {len}");
            from.wait(from.post_write_imm(here, there, 1, flags).unwrap()).unwrap();
            assert_eq!(to.wait_recv().unwrap().solicited, solicited, "WRITE of {len}");
        }
    }
}

fn pattern(len: usize, salt: u32) -> Vec<u8> {
    (0..len as u32).map(|i| (i * 7 + i / 256 + salt) as u8).collect()
}

/// Every kind of operation, with the memory of both ranks where `memory` puts it.
fn every_operation(memory: impl Fn() -> Region) {
    let config = EndpointConfig::host().recv_depth(16);
    let (a, b) = (rank_with(&config, memory()), rank_with(&config, memory()));
    let [_, there] = meet(&a, &b);
    let (here, host) = (a.memory.local(), a.endpoint.host().unwrap());
    for (len, salt) in [(1, 1), (8, 2), (2047, 3), (100_000, 4), (LEN, 5)] {
        a.memory.write(0, &pattern(len, salt)).unwrap();
        let (from, to) = (here.slice(0, len as u64).unwrap(), there.slice(0, len as u64).unwrap());
        host.wait(host.post_write(from, to, SIGNALED).unwrap()).unwrap();
        assert!(bytes(&b.memory, 0, len) == pattern(len, salt), "WRITE of {len}");
        a.memory.write(0, &vec![0; len]).unwrap();
        host.wait(host.post_read(from, to, SIGNALED).unwrap()).unwrap();
        assert!(bytes(&a.memory, 0, len) == pattern(len, salt), "READ of {len}");
        b.memory.write(0, &vec![0; len]).unwrap();
        let far = b.endpoint.host().unwrap();
        far.post_recv(b.memory.local().slice(0, len as u64).unwrap()).unwrap();
        host.wait(host.post_send(from, SIGNALED).unwrap()).unwrap();
        assert_eq!(far.wait_recv().unwrap().byte_len as usize, len);
        assert!(bytes(&b.memory, 0, len) == pattern(len, salt), "SEND of {len}");
    }
    b.memory.write(64, &40u64.to_le_bytes()).unwrap();
    let (word, old) = (there.slice(64, 8).unwrap(), here.slice(8, 8).unwrap());
    host.wait(host.post_fetch_add(old, word, 2, SIGNALED).unwrap()).unwrap();
    host.wait(host.post_compare_swap(old, word, 42, 7, SIGNALED).unwrap()).unwrap();
    assert_eq!(bytes(&a.memory, 8, 8), 42u64.to_le_bytes());
    assert_eq!(bytes(&b.memory, 64, 8), 7u64.to_le_bytes());
}

#[test]
fn payload_may_lie_where_only_a_copy_engine_reaches() {
    every_operation(|| {
        let copier = Arc::new(LazyCopier::default());
        copier.pace(2);
        LazyMemory::regions(LEN, 0, &copier).unwrap().0
    });
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn payload_may_lie_in_memory_of_a_gpu() {
    let gpu = warpverbs_gpu::open(GpuChoice::Cuda(0)).unwrap();
    every_operation(|| gpu.alloc(LEN, Place::Device).unwrap().region().clone());
}
