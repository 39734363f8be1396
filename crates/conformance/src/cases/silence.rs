//! Peers that do not answer, or have no receive.

use crate::Setup;
use crate::outcome::check;
use crate::peer::Shape;
use crate::rig::{End, SIGNALED, bytes, fails, pattern, same};
use std::time::Duration;
use warpverbs::transport::Syndrome;

/// An answer is missed after 67 ms and asked for five times more, so that a peer on a busy machine
/// is not given up; a missing receive is asked for twice more, after 1 ms each.
fn impatient() -> Shape {
    Shape::host().timers(14, 14).retries(5, 2)
}

pub(super) fn no_receive(setup: &Setup) -> End {
    let pair = setup.pair(impatient())?;
    let (a, _) = pair.posters()?;
    let posted = a.post_send(pair.src.local().slice(0, 8)?, SIGNALED);
    fails(a, posted, Syndrome::RnrRetryExc, "a SEND without a receive")?;
    let pair = setup.pair(impatient())?;
    let (a, _) = pair.posters()?;
    let (here, there) = (pair.src.local().slice(0, 8)?, pair.dst.remote().slice(0, 8)?);
    let posted = a.post_write_imm(here, there, 1, SIGNALED);
    fails(a, posted, Syndrome::RnrRetryExc, "a WRITE with immediate without a receive")
}

pub(super) fn late_receive(setup: &Setup) -> End {
    let pair = setup.host_pair()?;
    let (a, b) = pair.posters()?;
    for len in [8, 3 * pair.mtu()] {
        let posted = a.post_send(pair.src.local().slice(0, len as u64)?, SIGNALED)?;
        // The NIC has asked in vain by then, as a rule; nothing fails if it has not.
        std::thread::sleep(Duration::from_millis(20));
        check!(!a.is_done(posted)?, "a SEND was done before there was a receive");
        let _ = b.post_recv(pair.dst.local())?;
        a.wait(posted)?;
        let got = b.wait_recv()?;
        check!(got.byte_len as usize == len, "{got:?}, expected {len} bytes");
        same(&bytes(&pair.dst, 0, len)?, &pattern(len, 1), "message")?;
    }
    pair.is_well()
}

pub(super) fn peer_gone(setup: &Setup) -> End {
    let pair = setup.pair(impatient())?;
    pair.works()?;
    let (a, there) = (pair.a.host()?, pair.dst.remote());
    drop(pair.b);
    let posted = a.post_write_inline(b"x", there, SIGNALED);
    fails(a, posted, Syndrome::TransportRetryExc, "a WRITE to a peer that is gone")
}

pub(super) fn peer_failed(setup: &Setup) -> End {
    let pair = setup.pair(impatient())?;
    pair.b.fail()?;
    let (a, _) = pair.posters()?;
    let posted = a.post_write_inline(b"x", pair.dst.remote(), SIGNALED);
    fails(a, posted, Syndrome::TransportRetryExc, "a WRITE to a peer in the error state")?;
    same(&bytes(&pair.dst, 0, 1)?, &[0], "memory of the peer")
}
