//! Forms of completion queue entries: user indexes, and entries of 128 bytes.

use warpverbs_mlx5::cqe::Cqe;
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::link::{FaultPlan, cable};
use warpverbs_nic::testing::{Net, PortConfig, addresses, bytes, sge};
use warpverbs_nic::{CqMode, CqeSize, NicError, QpAttrs};

const INDEX: u32 = 0x0a_0b0c;

fn net(ports: &PortConfig) -> Result<Net, NicError> {
    let (a, b) = addresses();
    let (a, b) = cable(a, b);
    Net::faulty([Box::new(a), Box::new(b)], FaultPlan::default(), ports, QpAttrs::default())
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
        let sent = net.a.port.poll_send();
        assert!(matches!(sent, Some(Cqe::Requester { .. })), "{round}: {sent:?}");
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
