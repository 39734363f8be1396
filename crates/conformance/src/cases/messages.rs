//! SEND and its receives.

use crate::Setup;
use crate::outcome::check;
use crate::peer::Shape;
use crate::rig::{End, SIGNALED, UNSIGNALED, all_access, bytes, fails, pattern, same};
use warpverbs::transport::{Access, ReceivedKind, Rkey, Syndrome};

pub(super) fn send_sizes(setup: &Setup) -> End {
    let pair = setup.host_pair()?;
    let (a, b) = pair.posters()?;
    for (index, len) in (0..).zip(pair.lengths()) {
        pair.dst.write(0, &pattern(len + 8, 2))?;
        let _ = b.post_recv(pair.dst.local())?;
        a.wait(a.post_send(pair.src.local().slice(0, len as u64)?, SIGNALED)?)?;
        let got = b.wait_recv()?;
        let expected = (index, len as u32, ReceivedKind::Send);
        check!((got.index, got.byte_len, got.kind) == expected, "{got:?}, expected {expected:?}");
        same(&bytes(&pair.dst, 0, len)?, &pattern(len, 1), "message")?;
        let beyond = &pattern(len + 8, 2)[len..];
        same(&bytes(&pair.dst, len, 8)?, beyond, "memory behind the message")?;
    }
    pair.is_well()
}

pub(super) fn send_imm(setup: &Setup) -> End {
    let pair = setup.host_pair()?;
    let (a, b) = pair.posters()?;
    let lengths = [0, 5, pair.mtu() + 9];
    for (imm, len) in [0, 0xdead_beef, u32::MAX].into_iter().zip(lengths) {
        let _ = b.post_recv(pair.dst.local())?;
        let from = pair.src.local().slice(0, len as u64)?;
        a.wait(a.post_send_imm(from, imm, SIGNALED)?)?;
        let got = b.wait_recv()?;
        let expected = (len as u32, ReceivedKind::SendImm(imm));
        check!((got.byte_len, got.kind) == expected, "{got:?}, expected {expected:?}");
        same(&bytes(&pair.dst, 0, len)?, &pattern(len, 1), "message")?;
    }
    pair.is_well()
}

pub(super) fn send_inline(setup: &Setup) -> End {
    let pair = setup.pair(Shape::host().inline_bytes(220))?;
    let (a, b) = pair.posters()?;
    let most = pair.a.inline_bytes();
    for len in [1, 12, 13, 28, 29, 92, 93, 220, most].into_iter().filter(|len| *len <= most) {
        let _ = b.post_recv(pair.dst.local())?;
        let mut data = pattern(len, len as u64);
        let posted = a.post_send_inline(&data, SIGNALED)?;
        data.fill(0);
        a.wait(posted)?;
        let got = b.wait_recv()?;
        check!(got.byte_len == len as u32, "{got:?}, expected {len} bytes");
        same(&bytes(&pair.dst, 0, len)?, &pattern(len, len as u64), "message")?;
    }
    pair.is_well()
}

pub(super) fn send_scatter(setup: &Setup) -> End {
    let pair = setup.pair(Shape::host().recv_sges(4))?;
    let (a, b) = pair.posters()?;
    let src = |at, len| pair.src.local().slice(at, len);
    let dst = |at, len| pair.dst.local().slice(at, len);
    let mtu = pair.mtu() as u64;
    // 10 + 0 + mtu + 3 bytes into 5 + mtu - 2 + the rest.
    let from = [src(100, 10)?, src(0, 0)?, src(4096, mtu)?, src(9, 3)?];
    let to = [dst(0, 5)?, dst(10_000, mtu - 2)?, dst(50_000, 1000)?];
    let _ = b.post_recv(to)?;
    a.wait(a.post_send(from, SIGNALED)?)?;
    let got = b.wait_recv()?;
    let len = mtu as usize + 13;
    check!(got.byte_len as usize == len, "{got:?}, expected {len} bytes");
    let source = pattern(20_000, 1);
    let at = |at: usize, len: usize| &source[at..at + len];
    let sent = [at(100, 10), at(4096, mtu as usize), at(9, 3)].concat();
    let mtu = mtu as usize;
    let pieces = [bytes(&pair.dst, 0, 5)?, bytes(&pair.dst, 10_000, mtu - 2)?];
    let arrived = [pieces.concat(), bytes(&pair.dst, 50_000, 10)?].concat();
    same(&arrived, &sent, "scattered message")?;
    same(&bytes(&pair.dst, 5, 8)?, &[0; 8], "memory behind the first piece")?;
    same(&bytes(&pair.dst, 50_010, 8)?, &[0; 8], "memory behind the message")?;
    pair.is_well()
}

pub(super) fn send_nothing(setup: &Setup) -> End {
    let pair = setup.host_pair()?;
    let (a, b) = pair.posters()?;
    let _ = b.post_recv([])?;
    let _ = b.post_recv(pair.dst.local())?;
    for _ in 0..2 {
        a.wait(a.post_send([], SIGNALED)?)?;
        let got = b.wait_recv()?;
        check!((got.byte_len, got.kind) == (0, ReceivedKind::Send), "{got:?}, expected no bytes");
    }
    same(&bytes(&pair.dst, 0, 64)?, &[0; 64], "memory of the receive")?;
    pair.is_well()
}

pub(super) fn send_invalidate(setup: &Setup) -> End {
    let pair = setup.host_pair()?;
    let (a, b) = pair.posters()?;
    let access = Access::INVALIDATE | all_access();
    let window = setup.b.region(64, access)?;
    a.wait(a.post_write_inline(b"before", window.remote(), SIGNALED)?)?;
    let _ = b.post_recv(pair.dst.local())?;
    let from = pair.src.local().slice(0, 4)?;
    a.wait(a.post_send_inval(from, window.rkey(), SIGNALED)?)?;
    let got = b.wait_recv()?;
    let expected = ReceivedKind::SendInvalidate(Rkey(window.rkey()));
    check!(got.kind == expected, "{got:?}, expected {expected:?}");
    let late = a.post_write_inline(b"behind", window.remote(), SIGNALED);
    fails(a, late, Syndrome::RemoteAccess, "a WRITE under the key that was taken back")?;
    same(&bytes(&window, 0, 6)?, b"before", "memory under the key that was taken back")
}

pub(super) fn receive_order(setup: &Setup) -> End {
    let pair = setup.pair(Shape::host().recv_depth(4).recv_sges(4))?;
    let (a, b) = pair.posters()?;
    // Of a message's eight bytes.
    let pieces = |i: u64| [(0, 5), (8, 2), (16, 1)].map(|(at, len)| (i % 3 * 24 + at, len));
    // A ring of four has room for three in every format.
    for n in (0..3 * setup.times(130)).step_by(3) {
        for i in n..n + 3 {
            let [first, second, third] = pieces(i).map(|(at, len)| pair.dst.local().slice(at, len));
            let posted = b.post_recv([first?, second?, third?])?;
            check!(posted == i, "receive {} was posted as {i}", posted);
        }
        for i in n..n + 3 {
            let _ = a.post_send_inline(&i.to_le_bytes(), UNSIGNALED)?;
        }
        for i in n..n + 3 {
            let got = b.wait_recv()?;
            check!((got.index, got.byte_len) == (i, 8), "{got:?}, expected receive {i}");
            let mut data = Vec::new();
            for (at, len) in pieces(i) {
                data.extend(bytes(&pair.dst, at as usize, len as usize)?);
            }
            same(&data, &i.to_le_bytes(), "message")?;
        }
    }
    a.quiet()?;
    check!(b.poll_recv()?.is_none(), "a message that nobody sent");
    pair.is_well()
}
