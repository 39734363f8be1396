//! After an error, and at the end.

use crate::Setup;
use crate::outcome::{Stop, check};
use crate::peer::Shape;
use crate::rig::{End, Pair, SIGNALED, UNSIGNALED, bytes, refused, same, word};
use std::any::Any;
use warpverbs::transport::{QpState, QueueKind, RemoteRegion, Syndrome};

/// A place that does not exist.
fn nowhere() -> RemoteRegion {
    RemoteRegion::new(0x1000, 8, 0x5a5a_5a00)
}

pub(super) fn first_cause_stays(setup: &Setup) -> End {
    let pair = setup.host_pair()?;
    let (a, _) = pair.posters()?;
    let bad = a.post_write_inline(&[2; 8], nowhere(), SIGNALED)?;
    let mut last = bad;
    for _ in 0..20 {
        match a.post_nop(SIGNALED) {
            Ok(posted) => last = posted,
            error => drop(refused(error, Syndrome::RemoteAccess, "work behind it")?),
        }
    }
    let work = refused(a.wait(last), Syndrome::RemoteAccess, "the last of them")?;
    let first = refused(a.wait(bad), Syndrome::RemoteAccess, "the one that failed")?;
    check!(work == first, "{work} and {first} are two errors");
    check!(u64::from(first.index) == bad.index(), "{first}: expected index {}", bad.index());
    let later = refused(a.post_nop(SIGNALED), Syndrome::RemoteAccess, "a later call")?;
    check!(later == first, "{later} instead of {first}");
    let health = pair.a.health()?;
    check!(health.state == QpState::Err, "the QP is in {}, expected ERR", health.state);
    let syndrome = health.syndrome();
    check!(syndrome == Some(Syndrome::RemoteAccess), "its first error is {syndrome:?}");
    Ok(())
}

pub(super) fn nothing_behind_an_error(setup: &Setup) -> End {
    let pair = setup.host_pair()?;
    let (a, _) = pair.posters()?;
    let _ = a.post_write_inline(&[1; 8], pair.dst.remote(), UNSIGNALED)?;
    let _ = a.post_write_inline(&[2; 8], nowhere(), UNSIGNALED)?;
    for _ in 0..10 {
        // It may be known already; then nothing is posted.
        if a.post_write_inline(&[3; 8], pair.dst.remote(), UNSIGNALED).is_err() {
            break;
        }
    }
    refused(a.quiet(), Syndrome::RemoteAccess, "the queue")?;
    same(&bytes(&pair.dst, 0, 8)?, &[1; 8], "the WRITE before the error")
}

pub(super) fn receives_are_flushed(setup: &Setup) -> End {
    let pair = setup.host_pair()?;
    let (_, b) = pair.posters()?;
    pair.works()?;
    let _ = b.post_recv(pair.dst.local())?;
    pair.b.fail()?;
    let work = refused(b.wait_recv(), Syndrome::WrFlush, "a receive of a failed QP")?;
    check!(work.queue == QueueKind::Receive, "the {} queue has the error", work.queue);
    Ok(())
}

pub(super) fn reset_and_reconnect(setup: &Setup) -> End {
    let mut pair = setup.pair(Shape::host().send_depth(128))?;
    for round in 0..4u64 {
        let (a, b) = pair.posters()?;
        for n in 0..200 + round {
            let at = pair.dst.remote().slice(8, 8)?;
            let _ = a.post_write_inline(&n.to_le_bytes(), at, SIGNALED)?;
        }
        a.quiet()?;
        let found = word(&pair.dst, 8)?;
        check!(found == 199 + round, "round {round}: {found}, expected {}", 199 + round);
        let _ = b.post_recv(pair.dst.local().slice(0, 8)?)?;
        let _ = b.post_recv([])?;
        a.wait(a.post_send_inline(&round.to_le_bytes(), SIGNALED)?)?;
        let got = b.wait_recv()?;
        check!(got.index == 0, "round {round}: {got:?}, expected receive 0");
        check!(word(&pair.dst, 0)? == round, "round {round}: another message arrived");
        // Errors, flushes and unread completions must all be gone afterwards.
        let _ = a.post_write_inline(&[0; 8], nowhere(), SIGNALED)?;
        for _ in 0..10 {
            let _ = a.post_nop(SIGNALED);
        }
        refused(a.quiet(), Syndrome::RemoteAccess, "the queue")?;
        let qpn = pair.a.qpn();
        pair.a.reset()?;
        pair.b.reset()?;
        let found = (pair.a.qpn(), pair.a.state(), pair.a.peer());
        check!(found == (qpn, QpState::Init, None), "after reset: {found:?}");
        pair.connect()?;
    }
    pair.works()?;
    pair.is_well()
}

pub(super) fn others_go_on(setup: &Setup) -> End {
    let (bad, good) = (setup.host_pair()?, setup.host_pair()?);
    let (a, _) = bad.posters()?;
    let posted = a.post_write_inline(&[0; 8], nowhere(), SIGNALED)?;
    refused(a.wait(posted), Syndrome::RemoteAccess, "the bad pair")?;
    good.works()?;
    drop(bad);
    good.works()?;
    good.is_well()
}

/// Posts much and drops the parts in the order that `order` names.
fn drop_in_order(setup: &Setup, order: [usize; 4]) -> End {
    let Pair { a, b, src, dst } = setup.host_pair()?;
    let host = a.host()?;
    for n in 0..40 {
        let at = n * 4096;
        let (here, there) = (src.local().slice(at, 4096)?, dst.remote().slice(at, 4096)?);
        let _ = host.post_write(here, there, UNSIGNALED)?;
        let _ = host.post_read(here, there, SIGNALED)?;
    }
    let _ = b.post_recv(dst.local())?;
    let mut parts: [Option<Box<dyn Any>>; 4] =
        [Some(Box::new(a)), Some(Box::new(b)), Some(Box::new(src)), Some(Box::new(dst))];
    for part in order {
        parts[part] = None;
        std::thread::yield_now();
    }
    Ok(())
}

pub(super) fn destroyed_under_load(setup: &Setup) -> End {
    for n in 0..24 {
        // The n-th order of four.
        let (mut left, mut rest, mut order) = (vec![0, 1, 2, 3], n, [0; 4]);
        for place in &mut order {
            *place = left.remove(rest % left.len());
            rest /= left.len() + 1;
        }
        drop_in_order(setup, order)
            .map_err(|_| Stop::Failed(format!("posting failed before {order:?} was dropped")))?;
    }
    let pair = setup.host_pair()?;
    pair.works()?;
    pair.is_well()
}
