//! Forms of completion queue entries: user indexes, entries of 128 bytes, rings that are
//! resized, payload in place of memory.

use crate::rng;
use rand::RngExt;
use warpverbs_dev::{Net, Pair, PairConfig, Port, PortConfig, bytes, local, remote, rest, sge};
use warpverbs_mem::HostBuf;
use warpverbs_mlx5::cqe::{Cqe, ReceivedKind};
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::link::FaultPlan;
use warpverbs_nic::{CqMode, CqeSize, Mr, NicError, QpAttrs, ScatterToCqe, Service};

const INDEX: u32 = 0x0a_0b0c;

fn net(ports: &PortConfig) -> Result<Net, NicError> {
    Net::new(FaultPlan::default(), ports, QpAttrs::default())
}

/// More messages than a CQ has entries, so that the owner bit changes.
fn exchange(net: &mut Net) -> Vec<Cqe> {
    let (from, to) = (sge(&net.a.mr, 0, 8), sge(&net.b.mr, 64, 8));
    let mut cqes = Vec::new();
    for round in 0..20u64 {
        net.a.mr.region().write(0, &round.to_ne_bytes()).unwrap();
        net.b.port.post_recv(&[to]);
        net.a.port.post_wqe(|buf, at| WqeBuilder::send(buf, at).sge(from).signaled());
        net.run();
        assert_eq!(net.a.port.sent(), [(round as u16, None)]);
        cqes.push(net.b.port.poll_recv().expect("a message"));
        assert_eq!(bytes(net.b.mr.region(), 64, 8), round.to_ne_bytes());
    }
    cqes
}

#[test]
fn entries_of_either_size_say_the_same() {
    let of = |cqe_size| {
        let ports = PortConfig { cqe_size, log_cq: 3, ..PortConfig::default() };
        let cqes = exchange(&mut net(&ports).unwrap()).into_iter().map(|cqe| match cqe {
            Cqe::Receive { wqe_counter, kind, byte_cnt, solicited, .. } => {
                (wqe_counter, kind, byte_cnt, solicited)
            }
            other => panic!("{other:?}"),
        });
        cqes.collect::<Vec<_>>()
    };
    assert_eq!(of(CqeSize::B64), of(CqeSize::B128));
}

#[test]
fn the_user_index_stands_in_every_completion() {
    for cqe_size in [CqeSize::B64, CqeSize::B128] {
        let ports = PortConfig { cqe_size, user_index: Some(INDEX), ..PortConfig::default() };
        for cqe in exchange(&mut net(&ports).unwrap()) {
            assert!(matches!(cqe, Cqe::Receive { srqn: INDEX, .. }), "{cqe:?}");
        }
    }
    // Of sends, and of errors.
    let cq_mode = CqMode::Collapsed;
    let ports = PortConfig { cq_mode, user_index: Some(INDEX), ..PortConfig::default() };
    let mut net = net(&ports).unwrap();
    net.b.port.post_recv(&[sge(&net.b.mr, 0, 8)]);
    for (len, failed) in [(8, false), (9, true)] {
        let from = warpverbs_mlx5::wqe::Sge { len, ..sge(&net.a.mr, 0, 8) };
        net.b.port.post_recv(&[sge(&net.b.mr, 0, 8)]);
        net.a.port.post_wqe(|buf, at| WqeBuilder::send(buf, at).sge(from).signaled());
        net.run();
        let cqe = net.a.port.collapsed();
        assert_eq!(cqe[32..36], INDEX.to_be_bytes());
        assert_eq!(matches!(Cqe::parse(&cqe), Ok(Cqe::Error { .. })), failed);
    }
}

#[test]
fn a_user_index_has_24_bits() {
    let ports = PortConfig { user_index: Some(1 << 24), ..PortConfig::default() };
    assert!(matches!(net(&ports), Err(NicError::OutOfRange { what: "user index", .. })));
}

#[test]
fn a_ring_is_resized_with_cqes_in_it() {
    let (seed, mut rng) = rng();
    for cqe_size in [CqeSize::B64, CqeSize::B128] {
        let ports = PortConfig { cqe_size, log_cq: 3, ..PortConfig::default() };
        let mut pair = Pair::new(PairConfig { a: ports, ..PairConfig::default() }).unwrap();
        let (mut log_size, mut posted, mut polled) = (3, 0u64, 0u64);
        for _ in 0..500 {
            // The CQE that ends a ring has a place in it, too.
            let room = (1 << log_size) - 1 - (posted - polled);
            for _ in 0..rng.random_range(0..=room.min(9)) {
                pair.a.post_wqe(|buf, at| WqeBuilder::nop(buf, at).signaled());
                posted += 1;
                pair.run();
            }
            for _ in 0..rng.random_range(0..=posted - polled) {
                let cqe = pair.a.poll_send();
                let expected = polled as u16;
                let right = matches!(cqe, Some(Cqe::Requester { wqe_counter, .. }) if wqe_counter == expected);
                assert!(right, "CQE {polled}, seed {seed}: {cqe:?}");
                polled += 1;
            }
            let to = rng.random_range(0..7);
            match pair.a.resize_send_cq(to) {
                Ok(()) => {
                    assert!(posted - polled < 1 << to, "seed {seed}");
                    log_size = to;
                }
                Err(NicError::CqFull { outstanding, .. }) => {
                    assert!(outstanding >= 1 << to.min(log_size), "seed {seed}");
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn what_cannot_be_resized_says_why() {
    let pair = Pair::default();
    let cq = pair.a.send_cq();
    let buf = HostBuf::region(64 << 4).unwrap();
    let short = cq.resize(5, &buf);
    assert!(matches!(short, Err(NicError::Memory { what: "CQ buffer", .. })), "{short:?}");
    let (what, min, max) = ("log_size of a CQ", 0, 22);
    assert_eq!(cq.resize(23, &buf), Err(NicError::OutOfRange { what, value: 23, min, max }));
    let a = PortConfig { cq_mode: CqMode::Collapsed, ..PortConfig::default() };
    let pair = Pair::new(PairConfig { a, ..PairConfig::default() }).unwrap();
    assert_eq!(pair.a.send_cq().resize(4, &buf), Err(NicError::CollapsedResize));
}

/// A READ, an atomic and a SEND of `len` bytes; what the CQEs of READ and SEND carried, and whether
/// the bytes are in memory. `run` lets the NICs work.
fn short_messages(
    [a, b]: [(&mut Port, &Mr); 2],
    len: usize,
    run: &dyn Fn() -> u32,
) -> [(Option<Vec<u8>>, bool); 2] {
    let ((a, own), (b, far)) = (a, b);
    let data: Vec<u8> = (1..=len as u8).collect();
    far.region().write(0, &data).unwrap();
    own.region().write(512, &data).unwrap();
    own.region().write(1024, &[0; 128]).unwrap();
    far.region().write(1024, &[0; 128]).unwrap();
    let (into, from) = (sge(own, 1024, len as u32), remote(far, 0));
    // The first has no CQE, so its bytes go into memory.
    let unsignaled = sge(own, 2048, len as u32);
    own.region().write(2048, &[0; 128]).unwrap();
    a.post_wqe(|buf, at| WqeBuilder::read(buf, at, from).sge(unsignaled));
    a.post_wqe(|buf, at| WqeBuilder::read(buf, at, from).sge(into).signaled());
    run();
    assert!(
        matches!(a.poll_send(), Some(Cqe::Requester { byte_cnt, .. }) if byte_cnt == len as u32)
    );
    assert_eq!(bytes(own.region(), 2048, len), data);
    let carried = |payload: &[u8]| {
        let (data, rest) = payload.split_at_checked(len)?;
        assert!(rest.iter().all(|byte| *byte == 0));
        Some(data.to_vec())
    };
    let read = (carried(a.payload()[0]), bytes(own.region(), 1024, len) == data);
    b.post_recv(&[sge(far, 1024, 3), sge(far, 1027, 125)]);
    let message = sge(own, 512, len as u32);
    a.post_wqe(|buf, at| WqeBuilder::send_imm(buf, at, 7).sge(message).signaled());
    run();
    let cqe = b.poll_recv();
    let Some(Cqe::Receive { kind, byte_cnt, .. }) = cqe else { panic!("{cqe:?}") };
    assert_eq!((kind, byte_cnt), (ReceivedKind::SendImm(7), len as u32));
    assert!(a.poll_send().is_some());
    let sent = (carried(b.payload()[1]), bytes(far.region(), 1024, len) == data);
    [read, sent].map(|(found, there)| (found.inspect(|found| assert_eq!(*found, data)), there))
}

#[test]
fn short_payload_is_in_the_cqe_and_not_in_memory() {
    let scatter_to_cqe = ScatterToCqe { requests: true, receives: true };
    for (cqe_size, most) in [(CqeSize::B64, 32), (CqeSize::B128, 64)] {
        let ports = PortConfig { cqe_size, scatter_to_cqe, log_cq: 3, ..PortConfig::default() };
        let mut pair =
            Pair::new(PairConfig { a: ports.clone(), b: ports.clone(), ..PairConfig::default() })
                .unwrap();
        let mut net = net(&ports).unwrap();
        for len in [1, 8, 31, 32, 33, 40, 63, 64, 65, 100] {
            let Pair { nic, a, b, mr_a, mr_b, .. } = &mut pair;
            let here = short_messages([(a, mr_a), (b, mr_b)], len, &|| rest([nic]));
            let (a, b) = (&mut net.a, &mut net.b);
            let run = || rest([&a.nic, &b.nic]);
            let there = short_messages([(&mut a.port, &a.mr), (&mut b.port, &b.mr)], len, &run);
            for found in here.into_iter().chain(there) {
                assert_eq!((found.0.is_some(), found.1), (len <= most, len > most), "{len} bytes");
            }
        }
    }
}

/// Libraries disagree about the byte order of one in a CQE.
#[test]
fn the_result_of_an_atomic_is_in_memory() {
    let scatter_to_cqe = ScatterToCqe { requests: true, receives: false };
    let ports = PortConfig { scatter_to_cqe, ..PortConfig::default() };
    let check = |port: &mut Port, own: &Mr, far: &Mr, run: &dyn Fn() -> u32| {
        let before: u64 = rand::random();
        far.region().write(8, &before.to_ne_bytes()).unwrap();
        let (to, result) = (remote(far, 8), local(own, 0));
        port.post_wqe(|buf, at| WqeBuilder::fetch_add(buf, at, to, 2, result).signaled());
        run();
        assert!(matches!(port.poll_send(), Some(Cqe::Requester { byte_cnt: 8, .. })));
        assert_eq!(port.payload()[0], []);
        assert_eq!(bytes(own.region(), 0, 8), before.to_ne_bytes());
        assert_eq!(bytes(far.region(), 8, 8), before.wrapping_add(2).to_ne_bytes());
    };
    let mut net = net(&ports).unwrap();
    let (a, b) = (&mut net.a, &net.b);
    check(&mut a.port, &a.mr, &b.mr, &|| rest([&a.nic, &b.nic]));
    let mut pair = Pair::new(PairConfig { a: ports, ..PairConfig::default() }).unwrap();
    let Pair { nic, a, mr_a, mr_b, .. } = &mut pair;
    check(a, mr_a, mr_b, &|| rest([nic]));
}

#[test]
fn payload_in_cqes_is_for_connected_qps() {
    let scatter_to_cqe = ScatterToCqe { requests: true, receives: true };
    let service = Service::Datagram;
    let ports = PortConfig { service, scatter_to_cqe, ..PortConfig::default() };
    assert!(matches!(net(&ports), Err(NicError::DatagramInCqe)));
}
