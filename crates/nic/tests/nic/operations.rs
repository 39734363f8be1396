//! Every operation, with success.

use warpverbs_dev::{Pair, bytes, local, remote, sge};
use warpverbs_mlx5::amo::{MaskedCompareSwap, MaskedCs, MaskedFa, MaskedFetchAdd};
use warpverbs_mlx5::cqe::{Cqe, ReceivedKind};
use warpverbs_mlx5::num::Rkey;
use warpverbs_mlx5::opcode::SendOpcode;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_mlx5::wqe::WqeBuilder;

/// The next send completion is a success of `opcode` at `index`, the last one.
fn assert_sent(pair: &mut Pair, opcode: SendOpcode, index: u64, byte_cnt: u32) {
    let qpn = pair.a.position().qpn;
    let wqe_counter = index as u16;
    let expected = Cqe::Requester { qpn, wqe_counter, opcode, byte_cnt };
    assert_eq!(pair.a.poll_send(), Some(expected));
    assert_eq!(pair.a.poll_send(), None);
    assert_eq!(pair.nic.take_violations(), []);
}

fn assert_received(pair: &mut Pair, kind: ReceivedKind, index: u16, byte_cnt: u32) {
    let qpn = pair.b.position().qpn;
    let expected = Cqe::Receive {
        qpn,
        wqe_counter: index,
        kind,
        byte_cnt,
        srqn: 0,
        solicited: false,
        from: None,
    };
    assert_eq!(pair.b.poll_recv(), Some(expected));
    assert_eq!(pair.b.poll_recv(), None);
}

#[test]
fn write() {
    let mut pair = Pair::default();
    pair.mr_a.region().write(100, b"a write").unwrap();
    let (from, to) = (sge(&pair.mr_a, 100, 7), remote(&pair.mr_b, 9));
    let index = pair.a.post_wqe(|b, at| WqeBuilder::write(b, at, to).sge(from).signaled());
    assert_eq!(pair.run(), 1);
    assert_sent(&mut pair, SendOpcode::RdmaWrite, index, 0);
    assert_eq!(bytes(pair.mr_b.region(), 8, 9), b"\0a write\0");
}

#[test]
fn write_gathers() {
    let mut pair = Pair::default();
    pair.mr_a.region().write(0, b"onetwothree").unwrap();
    let to = remote(&pair.mr_b, 1);
    let parts = [(6, 5), (3, 3), (0, 3)].map(|(at, len)| sge(&pair.mr_a, at, len));
    let index = pair.a.post_wqe(|b, at| {
        parts.iter().fold(WqeBuilder::write(b, at, to), |w, &s| w.sge(s)).signaled()
    });
    pair.run();
    assert_sent(&mut pair, SendOpcode::RdmaWrite, index, 0);
    assert_eq!(bytes(pair.mr_b.region(), 0, 13), b"\0threetwoone\0");
}

/// UCX puts its headers into the WQE, and the user's bytes are taken from memory.
#[test]
fn a_message_may_begin_in_the_wqe() {
    let mut pair = Pair::default();
    pair.mr_a.region().write(0, b"onetwo").unwrap();
    let (one, two) = (sge(&pair.mr_a, 0, 3), sge(&pair.mr_a, 3, 3));
    let to = remote(&pair.mr_b, 1);
    let index = pair.a.post_wqe(|b, at| {
        WqeBuilder::write(b, at, to).inline(b"a long head, ").sge(two).sge(one).signaled()
    });
    pair.run();
    assert_sent(&mut pair, SendOpcode::RdmaWrite, index, 0);
    assert_eq!(bytes(pair.mr_b.region(), 0, 21), b"\0a long head, twoone\0");
    // Longer than any header.
    let long = sge(&pair.mr_a, 0, 1 << 20);
    pair.a.post_wqe(|b, at| WqeBuilder::write(b, at, to).inline(b"x").sge(long).signaled());
    pair.run();
    assert!(matches!(pair.a.poll_send(), Some(Cqe::Error { .. })));
    let violations = pair.nic.take_violations();
    let rule = warpverbs_nic::Rule::MessageLength { len: (1 << 20) + 1, max: 1 << 20 };
    assert_eq!(violations[0].rule, rule);
}

#[test]
fn write_inline_over_two_wqebbs() {
    let mut pair = Pair::default();
    let payload: Vec<u8> = (0..80).collect();
    let to = remote(&pair.mr_b, 3);
    let index = pair.a.post_wqe(|b, at| WqeBuilder::write(b, at, to).inline(&payload).signaled());
    assert_eq!(pair.a.posted, 2);
    pair.run();
    assert_sent(&mut pair, SendOpcode::RdmaWrite, index, 0);
    assert_eq!(bytes(pair.mr_b.region(), 3, 80), payload);
}

#[test]
fn write_imm_consumes_a_receive_without_segments() {
    let mut pair = Pair::default();
    pair.b.post_recv(&[]);
    let (from, to) = (sge(&pair.mr_a, 0, 8), remote(&pair.mr_b, 0));
    let index =
        pair.a.post_wqe(|b, at| WqeBuilder::write_imm(b, at, to, 0xdead_beef).sge(from).signaled());
    pair.run();
    assert_sent(&mut pair, SendOpcode::RdmaWriteImm, index, 0);
    assert_received(&mut pair, ReceivedKind::WriteImm(0xdead_beef), 0, 8);
}

#[test]
fn sends_fill_receives_in_order() {
    let mut pair = Pair::default();
    pair.b.post_recv(&[sge(&pair.mr_b, 10, 3), sge(&pair.mr_b, 0, 5)]);
    pair.b.post_recv(&[sge(&pair.mr_b, 20, 5)]);
    let index = pair.a.post_wqe(|b, at| WqeBuilder::send(b, at).inline(b"scatter").signaled());
    pair.run();
    assert_sent(&mut pair, SendOpcode::Send, index, 0);
    assert_received(&mut pair, ReceivedKind::Send, 0, 7);
    assert_eq!(bytes(pair.mr_b.region(), 0, 14), b"tter\0\0\0\0\0\0sca\0");
    let index = pair.a.post_wqe(|b, at| WqeBuilder::send_imm(b, at, 7).inline(b"imm").signaled());
    pair.run();
    assert_sent(&mut pair, SendOpcode::SendImm, index, 0);
    assert_received(&mut pair, ReceivedKind::SendImm(7), 1, 3);
    assert_eq!(bytes(pair.mr_b.region(), 20, 5), b"imm\0\0");
}

#[test]
fn send_inval_takes_the_key() {
    let mut pair = Pair::default();
    pair.b.post_recv(&[sge(&pair.mr_b, 0, 8)]);
    let extra =
        pair.nic.reg_mr(&pair.pd, pair.mr_b.region(), warpverbs_mem::Access::all()).unwrap();
    let rkey = Rkey(extra.rkey());
    let index = pair.a.post_wqe(|b, at| WqeBuilder::send_inval(b, at, rkey).signaled());
    pair.run();
    assert_sent(&mut pair, SendOpcode::SendInval, index, 0);
    assert_received(&mut pair, ReceivedKind::SendInvalidate(rkey), 0, 0);
    let to = remote(&extra, 0);
    pair.a.post_wqe(|b, at| WqeBuilder::write(b, at, to).inline(b"x"));
    pair.run();
    assert_eq!(pair.a.sent(), [(1, Some(Syndrome::RemoteAccess))]);
}

#[test]
fn read_scatters() {
    let mut pair = Pair::default();
    pair.mr_b.region().write(50, b"abcdefgh").unwrap();
    let from = remote(&pair.mr_b, 50);
    let parts = [(8, 3), (0, 5)].map(|(at, len)| sge(&pair.mr_a, at, len));
    let index = pair.a.post_wqe(|b, at| {
        parts.iter().fold(WqeBuilder::read(b, at, from), |w, &s| w.sge(s)).signaled()
    });
    pair.run();
    assert_sent(&mut pair, SendOpcode::RdmaRead, index, 8);
    assert_eq!(bytes(pair.mr_a.region(), 0, 12), b"defgh\0\0\0abc\0");
}

#[test]
fn atomics_of_eight_bytes() {
    let mut pair = Pair::default();
    let word =
        |pair: &Pair| u64::from_le_bytes(bytes(pair.mr_b.region(), 8, 8).try_into().unwrap());
    let old = |pair: &Pair| u64::from_le_bytes(bytes(pair.mr_a.region(), 0, 8).try_into().unwrap());
    pair.mr_b.region().write(8, &41u64.to_le_bytes()).unwrap();
    let (to, back) = (remote(&pair.mr_b, 8), local(&pair.mr_a, 0));
    let index = pair.a.post_wqe(|b, at| WqeBuilder::fetch_add(b, at, to, 1, back).signaled());
    pair.run();
    assert_sent(&mut pair, SendOpcode::AtomicFa, index, 8);
    assert_eq!((old(&pair), word(&pair)), (41, 42));
    for (compare, expect) in [(41, 42), (42, 99)] {
        let index = pair
            .a
            .post_wqe(|b, at| WqeBuilder::compare_swap(b, at, to, compare, 99, back).signaled());
        pair.run();
        assert_sent(&mut pair, SendOpcode::AtomicCs, index, 8);
        assert_eq!((old(&pair), word(&pair)), (42, expect));
    }
    let operands = MaskedCompareSwap::B8(MaskedCs {
        compare: 99,
        compare_mask: 0xff,
        swap: 0x1_0000,
        swap_mask: 0xff_0000,
    });
    let index = pair
        .a
        .post_wqe(|b, at| WqeBuilder::masked_compare_swap(b, at, to, operands, back).signaled());
    assert_eq!(pair.a.posted, index + 2);
    pair.run();
    assert_sent(&mut pair, SendOpcode::MaskedCs, index, 8);
    assert_eq!((old(&pair), word(&pair)), (99, 0x1_0063));
}

#[test]
fn masked_atomics_of_four_bytes_come_back_big_endian() {
    let mut pair = Pair::default();
    pair.mr_b.region().write(4, &0x0102_03ffu32.to_le_bytes()).unwrap();
    let (to, back) = (remote(&pair.mr_b, 4), local(&pair.mr_a, 12));
    let operands = MaskedFetchAdd::B4(MaskedFa { add: 1, boundary: 0x80 });
    let index =
        pair.a.post_wqe(|b, at| WqeBuilder::masked_fetch_add(b, at, to, operands, back).signaled());
    pair.run();
    assert_sent(&mut pair, SendOpcode::MaskedFa, index, 4);
    assert_eq!(bytes(pair.mr_a.region(), 12, 5), [1, 2, 3, 0xff, 0]);
    assert_eq!(bytes(pair.mr_b.region(), 0, 8), [0, 0, 0, 0, 0, 3, 2, 1]);
}

#[test]
fn nop_and_local_inval() {
    let mut pair = Pair::default();
    let index = pair.a.post_wqe(|b, at| WqeBuilder::nop(b, at).signaled());
    pair.run();
    assert_sent(&mut pair, SendOpcode::Nop, index, 0);
    let key = Rkey(pair.mr_a.lkey());
    let index = pair.a.post_wqe(|b, at| WqeBuilder::local_inval(b, at, key).signaled());
    pair.run();
    assert_sent(&mut pair, SendOpcode::LocalInval, index, 0);
}

#[test]
fn messages_of_no_bytes_need_no_keys() {
    let mut pair = Pair::default();
    pair.b.post_recv(&[]);
    let nowhere = warpverbs_mlx5::wqe::Remote { addr: 1, rkey: Rkey(2) };
    pair.a.post_wqe(|b, at| WqeBuilder::write(b, at, nowhere));
    pair.a.post_wqe(|b, at| WqeBuilder::read(b, at, nowhere));
    let index = pair.a.post_wqe(|b, at| WqeBuilder::send(b, at).signaled());
    assert_eq!(pair.run(), 3);
    assert_sent(&mut pair, SendOpcode::Send, index, 0);
    assert_received(&mut pair, ReceivedKind::Send, 0, 0);
}
