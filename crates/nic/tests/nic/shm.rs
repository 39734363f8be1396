//! The shared-memory link: peers that end, and peers that are no links.

use rand::RngExt;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, sendmsg, socket_with,
};
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use warpverbs_dev::{Host, bytes, connect_over, remote, sge};
use warpverbs_mem::{map_sealed, sealed_memfd};
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::link::{Link, LinkError, Shm};
use warpverbs_nic::{Config, LinkKind, Mtu, QpAttrs, UdpConfig};

/// Of a ring's memfd.
const MEMORY: u64 = 4096 + (1 << 20);

fn at(port: u16) -> UdpConfig {
    UdpConfig::at(([127, 0, 0, 1], port).into())
}

fn host(port: u16) -> Host {
    Host::new(Config { link: LinkKind::Shm.at(at(port)), ..Config::default() })
}

/// The queue pair gives up after about 40 ms.
fn attrs() -> QpAttrs {
    let (timeout, retry) = (Some(10), Some(7));
    QpAttrs { mtu: Some(Mtu::B4096), timeout, retry, ..QpAttrs::default() }
}

fn pair() -> (Host, Host) {
    let (a, b) = (host(0), host(0));
    a.join(&b, attrs());
    (a, b)
}

/// One WRITE of `data`; its error.
fn write(a: &mut Host, b: &Host, data: &[u8]) -> Option<Syndrome> {
    a.mr.region().write(0, data).expect("inside");
    let (from, to) = (sge(&a.mr, 0, data.len() as u32), remote(&b.mr, 0));
    a.port.post_wqe(|buf, at| WqeBuilder::write(buf, at, to).sge(from).signaled());
    a.outcome(b)
}

fn arrives(a: &mut Host, b: &Host, salt: u8) {
    let data: Vec<u8> = (0..50_000u32).map(|i| i as u8 ^ (i >> 7) as u8 ^ salt).collect();
    assert_eq!(write(a, b, &data), None);
    assert_eq!(bytes(b.mr.region(), 0, data.len()), data);
}

#[test]
fn an_address_is_taken_once() {
    let taken = Shm::bind(&at(0)).expect("an address");
    let bind = taken.local();
    let kind = std::io::ErrorKind::AddrInUse;
    let refused = Shm::bind(&UdpConfig::at(bind)).map(|_| ());
    assert_eq!(refused, Err(LinkError::Open { addr: bind, kind }));
    drop(taken);
    assert!(Shm::bind(&UdpConfig::at(bind)).is_ok());
    let any = SocketAddr::from(([0, 0, 0, 0], 17));
    let refused = Shm::bind(&UdpConfig::at(any)).map(|_| ());
    assert_eq!(refused, Err(LinkError::UnspecifiedAddress { addr: any }));
}

#[test]
fn a_peer_that_ends_is_a_timeout_and_its_successor_is_found() {
    let (mut a, b) = pair();
    arrives(&mut a, &b, 1);
    let (address, bystander) = (b.nic.local_addr().expect("a link"), host(0));
    drop(b);
    // The bystander's memory only lends an address and a key.
    assert_eq!(write(&mut a, &bystander, b"nobody"), Some(Syndrome::TransportRetryExc));

    let b = host(address.port());
    a.port = a.another();
    a.join(&b, attrs());
    arrives(&mut a, &b, 2);
}

/// A process that connects to a link, and what it sends.
struct Stranger(OwnedFd);

impl Stranger {
    fn connect(to: &Host) -> Self {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a boot id");
        let address = to.nic.local_addr().expect("a link");
        let name = format!("warpverbs-link-{}-{address}", boot.trim());
        let name = SocketAddrUnix::new_abstract_name(name.as_bytes()).expect("a name");
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .expect("a socket");
        connect(&socket, &name).expect("a listener");
        Self(socket)
    }

    fn say(&self, message: &[u8], fd: Option<&OwnedFd>) {
        let fds: Vec<_> = fd.into_iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&fds));
        }
        sendmsg(&self.0, &[IoSlice::new(message)], &mut control, SendFlags::NOSIGNAL)
            .expect("the listener keeps it");
    }

    /// As a link does, from `from`.
    fn greet(&self, from: SocketAddr, fd: &OwnedFd) {
        let SocketAddr::V4(from) = from else { panic!("IPv4 here") };
        let mut message = b"wvlink\x03\x00".to_vec();
        // Postcard: numbers by 7 bits, the lowest first, and the number of the address's kind.
        let varint = |out: &mut Vec<u8>, mut number: u64| {
            while number >= 0x80 {
                out.push(number as u8 | 0x80);
                number >>= 7;
            }
            out.push(number as u8);
        };
        varint(&mut message, MEMORY);
        message.push(0);
        message.extend(from.ip().octets());
        varint(&mut message, from.port().into());
        self.say(&message, Some(fd));
    }
}

#[test]
fn strangers_do_not_disturb_a_link() {
    let (mut a, b) = pair();
    let from = a.nic.local_addr().expect("a link");
    let silent: Vec<_> = (0..200).map(|_| Stranger::connect(&b)).collect();
    arrives(&mut a, &b, 3);
    let null = OwnedFd::from(std::fs::File::open("/dev/null").expect("a file"));
    let short = sealed_memfd(4096).expect("a memfd");
    let talkers: Vec<_> = (0..8).map(|_| Stranger::connect(&b)).collect();
    talkers[0].say(b"hello", None);
    talkers[1].say(&[0xff; 34], Some(&null));
    talkers[2].say(&vec![1; 5000], Some(&short));
    talkers[3].greet(from, &null);
    talkers[4].greet(from, &short);
    let loose = rustix::fs::memfd_create("loose", rustix::fs::MemfdFlags::ALLOW_SEALING);
    let loose = loose.expect("a memfd");
    rustix::fs::ftruncate(&loose, MEMORY).expect("room");
    talkers[5].greet(from, &loose);
    arrives(&mut a, &b, 4);
    drop(silent);
    arrives(&mut a, &b, 5);
}

/// Rings full of random bytes, whose positions say that there are records.
#[test]
fn random_rings_do_not_disturb_a_link() {
    let seed = rand::random();
    println!("seed {seed}");
    let mut rng = <rand::rngs::StdRng as rand::SeedableRng>::seed_from_u64(seed);
    let (mut a, b) = pair();
    let from = a.nic.local_addr().expect("a link");
    let (stranger, memory) = (Stranger::connect(&b), sealed_memfd(MEMORY).expect("a memfd"));
    let ring = map_sealed(&memory, MEMORY).expect("memory");
    stranger.greet(from, &memory);
    let mut written = 0u64;
    for round in 0..200 {
        // Small numbers are lengths that a record may have.
        let words: Vec<u8> = (0..1024)
            .flat_map(|_| {
                let small = rng.random_range(0..100u32);
                if rng.random() { small } else { rng.random() }.to_ne_bytes()
            })
            .collect();
        ring.write(4096 + (written % (1 << 20)).min((1 << 20) - 4096), &words).expect("inside");
        written = written.wrapping_add(match rng.random_range(0..20) {
            0 => rng.random(),
            _ => rng.random_range(0..256) * 16,
        });
        ring.write(0, &written.to_ne_bytes()).expect("inside");
        if round % 10 == 0 {
            arrives(&mut a, &b, round as u8);
        }
    }
}

/// A peer that reads nothing: what does not fit its ring is lost, and nobody else waits.
#[test]
fn a_peer_that_reads_nothing_stops_nobody_else() {
    let ((mut a, b), idle) = (pair(), host(0));
    let mut stuck = a.another();
    let never = QpAttrs { timeout: Some(0), ..attrs() };
    connect_over(&stuck, idle.nic.local_addr().expect("a link"), idle.port.qp.qpn(), never);
    let (from, to) = (sge(&a.mr, 0, 60_000), remote(&idle.mr, 0));
    for _ in 0..40 {
        stuck.post_wqe(|buf, at| WqeBuilder::write(buf, at, to).sge(from).signaled());
    }
    for salt in 0..20 {
        arrives(&mut a, &b, salt);
    }
    assert!(stuck.poll_send().is_none());
}
