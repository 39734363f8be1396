//! Work that must be refused, each with its syndrome.

use crate::Setup;
use crate::outcome::Stop;
use crate::peer::{PeerRegion, Shape};
use crate::rig::{End, Pair, SIGNALED, all_access, bytes, fails, refused, same};
use warpverbs::transport::{
    Access, LocalRegion, Posted, Poster, QueueKind, RemoteRegion, Syndrome, TransportError,
};

/// A key that was never given out: another than `key`, with the same or another index part.
fn other_key(key: u32) -> u32 {
    key ^ 0x5a00_0055
}

/// Checks that the work of `post` on a fresh pair fails with `syndrome`, and that the peer's memory
/// is as it was.
fn fails_on_a_pair(
    setup: &Setup,
    syndrome: Syndrome,
    what: &str,
    post: impl Fn(Poster<'_>, &Pair) -> Result<Posted, TransportError>,
) -> End {
    let pair = setup.host_pair()?;
    let (a, _) = pair.posters()?;
    fails(a, post(a, &pair), syndrome, what)?;
    same(&bytes(&pair.dst, 0, 4096)?, &[0; 4096], &format!("memory of the peer after {what}"))
}

pub(super) fn bad_lkey(setup: &Setup) -> End {
    let wrong =
        |pair: &Pair, len| LocalRegion::new(pair.src.addr(), len, other_key(pair.src.lkey()));
    let prot = Syndrome::LocalProt;
    fails_on_a_pair(setup, prot, "a WRITE from an unknown key", |a, pair| {
        a.post_write(wrong(pair, 8), pair.dst.remote(), SIGNALED)
    })?;
    fails_on_a_pair(setup, prot, "a long WRITE from an unknown key", |a, pair| {
        a.post_write(wrong(pair, 20_000), pair.dst.remote(), SIGNALED)
    })?;
    fails_on_a_pair(setup, prot, "a SEND from an unknown key", |a, pair| {
        a.post_send(wrong(pair, 8), SIGNALED)
    })?;
    fails_on_a_pair(setup, prot, "a READ into an unknown key", |a, pair| {
        a.post_read(wrong(pair, 8), pair.dst.remote(), SIGNALED)
    })
}

pub(super) fn local_bounds(setup: &Setup) -> End {
    for (before, len) in [(0, 64 + 8), (64 - 1, 8), (64, 8), (1 << 40, 8)] {
        let short = setup.memory(64, all_access())?;
        let part = LocalRegion::new(short.addr().wrapping_add(before), len, short.lkey());
        let what = format!("a WRITE of {len} bytes from {before} on, of 64");
        fails_on_a_pair(setup, Syndrome::LocalProt, &what, |a, pair| {
            a.post_write(part, pair.dst.remote(), SIGNALED)
        })?;
    }
    Ok(())
}

pub(super) fn read_needs_local_write(setup: &Setup) -> End {
    let constant = setup.memory(64, Access::empty())?;
    let what = "a READ into memory without LOCAL_WRITE";
    fails_on_a_pair(setup, Syndrome::LocalProt, what, |a, pair| {
        a.post_read(constant.local(), pair.dst.remote(), SIGNALED)
    })?;
    let what = "an atomic whose result goes to memory without LOCAL_WRITE";
    fails_on_a_pair(setup, Syndrome::LocalProt, what, |a, pair| {
        a.post_fetch_add(constant.local(), pair.dst.remote(), 0, SIGNALED)
    })
}

pub(super) fn foreign_lkey(setup: &Setup) -> End {
    let foreign = setup.a.region(&setup.a.stranger, 64, all_access())?;
    let what = "a WRITE from memory of another protection domain";
    fails_on_a_pair(setup, Syndrome::LocalProt, what, |a, pair| {
        a.post_write(foreign.local(), pair.dst.remote(), SIGNALED)
    })
}

/// WRITE, READ and fetch-and-add at `region`, each on a fresh pair, fail with `syndrome`.
fn all_fail_at(setup: &Setup, region: RemoteRegion, syndrome: Syndrome, which: &str) -> End {
    let len = region.len().min(28);
    fails_on_a_pair(setup, syndrome, &format!("a WRITE to {which}"), |a, pair| {
        a.post_write(pair.src.local().slice(0, region.len())?, region, SIGNALED)
    })?;
    fails_on_a_pair(setup, syndrome, &format!("an inline WRITE to {which}"), |a, _| {
        a.post_write_inline(&[1; 28][..len as usize], region, SIGNALED)
    })?;
    fails_on_a_pair(setup, syndrome, &format!("a READ from {which}"), |a, pair| {
        a.post_read(pair.src.local().slice(0, region.len())?, region, SIGNALED)
    })?;
    fails_on_a_pair(setup, syndrome, &format!("an atomic at {which}"), |a, pair| {
        a.post_fetch_add(pair.src.local(), region, 1, SIGNALED)
    })
}

pub(super) fn bad_rkey(setup: &Setup) -> End {
    let target = setup.b.region(64, all_access())?;
    let wrong = RemoteRegion::new(target.addr(), 8, other_key(target.rkey()));
    all_fail_at(setup, wrong, Syndrome::RemoteAccess, "an unknown key")?;
    same(&bytes(&target, 0, 64)?, &[0; 64], "memory under another key")
}

pub(super) fn remote_bounds(setup: &Setup) -> End {
    let target = setup.b.region(64, all_access())?;
    for (at, len) in [(64, 8), (1 << 40, 8), (0u64.wrapping_sub(8), 8)] {
        let beyond = RemoteRegion::new(target.addr().wrapping_add(at), len, target.rkey());
        let which = format!("{len} bytes from {at:#x} on, of 64");
        all_fail_at(setup, beyond, Syndrome::RemoteAccess, &which)?;
    }
    // One that begins inside, in one packet and in many.
    for (at, len) in [(56, 16), (0, 20_000)] {
        let beyond = RemoteRegion::new(target.addr() + at, len, target.rkey());
        let which = format!("{len} bytes from {at} on, of 64");
        let access = Syndrome::RemoteAccess;
        fails_on_a_pair(setup, access, &format!("a WRITE to {which}"), |a, pair| {
            a.post_write(pair.src.local().slice(0, len)?, beyond, SIGNALED)
        })?;
        fails_on_a_pair(setup, access, &format!("a READ from {which}"), |a, pair| {
            a.post_read(pair.src.local().slice(0, len)?, beyond, SIGNALED)
        })?;
    }
    same(&bytes(&target, 0, 64)?, &[0; 64], "memory before the bounds")
}

pub(super) fn missing_right(setup: &Setup) -> End {
    let with = |access| setup.b.region(64, access);
    let rest = |right: Access| with(all_access().difference(right));
    let at = |region: &PeerRegion| region.remote().slice(0, 8);
    let access = Syndrome::RemoteAccess;
    let constant = rest(Access::REMOTE_WRITE)?;
    let to = at(&constant)?;
    fails_on_a_pair(setup, access, "a WRITE without REMOTE_WRITE", |a, _| {
        a.post_write_inline(&[1; 8], to, SIGNALED)
    })?;
    same(&bytes(&constant, 0, 64)?, &[0; 64], "memory without REMOTE_WRITE")?;
    let secret = rest(Access::REMOTE_READ)?;
    let from = at(&secret)?;
    fails_on_a_pair(setup, access, "a READ without REMOTE_READ", |a, pair| {
        a.post_read(pair.src.local().slice(0, 8)?, from, SIGNALED)
    })?;
    let plain = rest(Access::REMOTE_ATOMIC)?;
    let word = at(&plain)?;
    fails_on_a_pair(setup, access, "an atomic without REMOTE_ATOMIC", |a, pair| {
        a.post_fetch_add(pair.src.local(), word, 1, SIGNALED)
    })?;
    same(&bytes(&plain, 0, 64)?, &[0; 64], "memory without REMOTE_ATOMIC")
}

pub(super) fn foreign_rkey(setup: &Setup) -> End {
    let foreign = setup.b.foreign_region(64, all_access())?;
    let target = foreign.remote().slice(0, 8)?;
    all_fail_at(setup, target, Syndrome::RemoteAccess, "another protection domain")?;
    same(&bytes(&foreign, 0, 64)?, &[0; 64], "memory of another protection domain")
}

pub(super) fn stale_rkey(setup: &Setup) -> End {
    let gone = setup.b.region(64, all_access())?;
    let target = gone.remote().slice(0, 8)?;
    drop(gone);
    all_fail_at(setup, target, Syndrome::RemoteAccess, "a region that is gone")
}

pub(super) fn queue_pair_denies(setup: &Setup) -> End {
    let all = [Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC];
    for (index, right) in all.into_iter().enumerate() {
        let others = all.into_iter().filter(|other| *other != right).collect::<Access>();
        let pair = setup.unequal_pair(&Shape::host(), &Shape::host().access(others))?;
        let (a, _) = pair.posters()?;
        let (here, there) = (pair.src.local().slice(0, 8)?, pair.dst.remote().slice(0, 8)?);
        let posted = match index {
            0 => a.post_write(here, there, SIGNALED),
            1 => a.post_read(here, there, SIGNALED),
            _ => a.post_fetch_add(here, there, 1, SIGNALED),
        };
        let what = format!("an operation on a QP without {right:?}");
        fails(a, posted, Syndrome::RemoteInvalReq, &what)?;
        same(&bytes(&pair.dst, 0, 8)?, &[0; 8], "memory of the peer")?;
    }
    Ok(())
}

/// The message that `post` sends fails at both ends, `at_b` at the receive.
fn receive_fails(setup: &Setup, to: LocalRegion, len: u64, at_a: Syndrome, at_b: Syndrome) -> End {
    let pair = setup.host_pair()?;
    let (a, b) = pair.posters()?;
    let _ = b.post_recv(to)?;
    let posted = a.post_send(pair.src.local().slice(0, len)?, SIGNALED);
    fails(a, posted, at_a, "the SEND")?;
    let work = refused(b.wait_recv(), at_b, "the receive")?;
    match work.queue {
        QueueKind::Receive => Ok(()),
        queue => Err(Stop::Failed(format!("the {queue} queue of the peer has the error"))),
    }
}

pub(super) fn receive_too_small(setup: &Setup) -> End {
    for (room, len) in [(4, 5), (4, 8), (5000, 5001), (64, 60_000)] {
        let memory = setup.b.region(8192, all_access())?;
        let to = memory.local().slice(0, room)?;
        receive_fails(setup, to, len, Syndrome::RemoteInvalReq, Syndrome::LocalLength)?;
        let behind = bytes(&memory, room as usize, 64)?;
        same(&behind, &[0; 64], "memory behind the receive")?;
    }
    Ok(())
}

pub(super) fn receive_without_right(setup: &Setup) -> End {
    let constant = setup.b.region(64, Access::empty())?;
    receive_fails(setup, constant.local(), 8, Syndrome::RemoteOp, Syndrome::LocalProt)?;
    same(&bytes(&constant, 0, 64)?, &[0; 64], "memory without LOCAL_WRITE")
}

pub(super) fn local_invalidate(setup: &Setup) -> End {
    let pair = setup.host_pair()?;
    let (a, _) = pair.posters()?;
    let access = Access::INVALIDATE | all_access();
    let own = setup.memory(64, access)?;
    a.wait(a.post_local_inval(own.lkey(), SIGNALED)?)?;
    let stale = a.post_write(own.local(), pair.dst.remote(), SIGNALED);
    fails(a, stale, Syndrome::LocalProt, "a WRITE from a key that was taken back")?;
    same(&bytes(&pair.dst, 0, 64)?, &[0; 64], "memory of the peer")
}
