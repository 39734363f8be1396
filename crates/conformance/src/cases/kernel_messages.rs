//! Messages that kernels send and take, at either side.

use super::kernels::{Carried, IMM, ONE, carry, status, went_well};
use crate::Setup;
use crate::outcome::check;
use crate::peer::{PeerEndpoint, Shape};
use crate::rig::{End, Pair, SIGNALED, all_access, bytes, pattern, same};
use warpverbs::transport::Access;

/// CQE opcodes of what arrives.
const WRITE_IMM: u32 = 1;
const SEND: u32 = 2;
const SEND_IMM: u32 = 3;
const SEND_INVAL: u32 = 4;

/// The kernel at the peer's ends well. It has taken messages of this many bytes, with such an
/// immediate, if they have one, and CQE opcode.
fn takes(b: &PeerEndpoint, expected: &[(u32, Option<u32>, u32)]) -> End {
    let taken = b.taken()?;
    check!(taken.status == 0, "the kernel that takes ended with status {:#x}", taken.status);
    let count = (taken.messages.len(), expected.len());
    check!(count.0 == count.1, "{} messages were taken, expected {}", count.0, count.1);
    for (n, (found, (len, imm, opcode))) in taken.messages.iter().zip(expected).enumerate() {
        let expected = [*len, imm.unwrap_or(found[1]), *opcode];
        let right = *found == expected;
        check!(right, "message {n}: (bytes, immediate, opcode) {found:x?}, expected {expected:x?}");
    }
    Ok(())
}

/// A kernel at each side: one carries `count` pieces of `len` bytes, one takes them.
fn carried(setup: &Setup, what: Carried, (len, count): (u32, u32)) -> End {
    let (pair, status) = (setup.kernel_pair_both()?, status(setup)?);
    let (room, opcode) = match what {
        Carried::Message => (len, SEND),
        Carried::MessageImm => (len, SEND_IMM),
        // The receive is only counted, never written to: the bytes go where the WRITE says.
        Carried::WriteImm => (0, WRITE_IMM),
    };
    let kernel = carry(&pair, what, (len, count), &status);
    pair.b.take(&pair.dst, (count, room, 8))?;
    setup.launch(&kernel, ONE)?;
    went_well(&pair, &status)?;
    let imm = |n| (opcode != SEND).then_some(IMM + n);
    let expected: Vec<_> = (0..count).map(|n| (len, imm(n), opcode)).collect();
    takes(&pair.b, &expected)?;
    let all = len as usize * count as usize;
    same(&bytes(&pair.dst, 0, all)?, &pattern(all, 1), "the kernel's messages")
}

pub(super) fn kernel_write_imm(setup: &Setup) -> End {
    let mtu = setup.kernel_pair_both()?.mtu() as u32;
    carried(setup, Carried::WriteImm, (8, 40))?;
    carried(setup, Carried::WriteImm, (mtu + 100, 3))
}

pub(super) fn kernel_messages(setup: &Setup) -> End {
    carried(setup, Carried::Message, (999, 11))?;
    carried(setup, Carried::Message, (5000, 40))?;
    carried(setup, Carried::Message, (1, 64))
}

pub(super) fn kernel_send_imm(setup: &Setup) -> End {
    carried(setup, Carried::MessageImm, (100, 20))?;
    carried(setup, Carried::MessageImm, (5000, 3))
}

pub(super) fn kernel_receives(setup: &Setup) -> End {
    let pair = setup.unequal_pair(&Shape::host(), &Shape::kernels())?;
    let (a, from) = (pair.a.host()?, pair.src.local());
    pair.b.take(&pair.dst, (3, 100, 3))?;
    a.wait(a.post_send(from.slice(0, 100)?, SIGNALED)?)?;
    a.wait(a.post_send_imm(from.slice(0, 7)?, IMM, SIGNALED)?)?;
    let to = pair.dst.remote().slice(200, 100)?;
    a.wait(a.post_write_imm(from.slice(200, 100)?, to, IMM + 1, SIGNALED)?)?;
    let imm = |value| Some(value);
    takes(&pair.b, &[(100, None, SEND), (7, imm(IMM), SEND_IMM), (100, imm(IMM + 1), WRITE_IMM)])?;
    let source = pattern(300, 1);
    let expected = [&source[..100], &source[..7], &[0; 93], &source[200..]].concat();
    same(&bytes(&pair.dst, 0, 300)?, &expected, "the messages")?;
    pair.is_well()
}

pub(super) fn kernel_receives_invalidate(setup: &Setup) -> End {
    let pair = setup.unequal_pair(&Shape::host(), &Shape::kernels())?;
    let a = pair.a.host()?;
    let window = setup.b.region(64, Access::INVALIDATE | all_access())?;
    pair.b.take(&pair.dst, (1, 64, 1))?;
    a.wait(a.post_send_inval(pair.src.local().slice(0, 4)?, window.rkey(), SIGNALED)?)?;
    takes(&pair.b, &[(4, Some(window.rkey()), SEND_INVAL)])?;
    pair.is_well()
}

/// Two endpoints of a peer take from one queue; the host fills it, kernels take.
pub(super) fn kernel_shared_receives(setup: &Setup) -> End {
    let queue = setup.b.srq(8, 1)?;
    let shared = Shape::kernels().recv_depth(64).srq(queue.number());
    let pair = || setup.unequal_pair(&Shape::kernels(), &shared);
    let (first, second) = (pair()?, pair()?);
    let send = |pair: &Pair, count: u32| -> End {
        let status = status(setup)?;
        let kernel = carry(pair, Carried::Message, (50, count), &status);
        pair.b.take(&pair.dst, (count, 0, 0))?;
        setup.launch(&kernel, ONE)?;
        went_well(pair, &status)?;
        takes(&pair.b, &vec![(50, None, SEND); count as usize])
    };
    for n in 0..5 {
        queue.post_recv(first.dst.local().slice(n * 50, 50)?)?;
    }
    send(&first, 3)?;
    send(&second, 2)?;
    // Receives are consumed in order by any thread; each sender begins at the front.
    let expected = [pattern(150, 1), pattern(100, 1)].concat();
    same(&bytes(&first.dst, 0, 250)?, &expected, "messages of two senders")
}
