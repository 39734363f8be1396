//! The order in which effects of work must be seen.

use crate::Setup;
use crate::outcome::check;
use crate::rig::{End, SIGNALED, UNSIGNALED, bytes, pattern, same, word};
use warpverbs::transport::SendFlags;

pub(super) fn write_then_send(setup: &Setup) -> End {
    let pair = setup.host_pair()?;
    let (a, b) = pair.posters()?;
    let len = 3 * pair.mtu() + 5;
    for round in 0..setup.times(100) {
        let _ = b.post_recv(pair.dst.local().slice(0, 8)?)?;
        pair.src.write(0, &pattern(len, round))?;
        let (from, to) = (pair.src.local(), pair.dst.remote());
        let _ = a.post_write(from.slice(0, len as u64)?, to.slice(64, len as u64)?, UNSIGNALED)?;
        let sent = a.post_send_inline(&round.to_le_bytes(), SIGNALED)?;
        // Nothing but the message says that the data is there.
        let got = b.wait_recv()?;
        same(&bytes(&pair.dst, 64, len)?, &pattern(len, round), "a WRITE before a message")?;
        check!((got.index, word(&pair.dst, 0)?) == (round, round), "{got:?} in round {round}");
        a.wait(sent)?;
    }
    pair.is_well()
}

pub(super) fn last_write_wins(setup: &Setup) -> End {
    let pair = setup.host_pair()?;
    let (a, _) = pair.posters()?;
    let target = pair.dst.remote();
    for round in 0..20u64 {
        for n in 0..50 {
            let _ = a.post_write_inline(&(round * 50 + n).to_le_bytes(), target, UNSIGNALED)?;
        }
        a.quiet()?;
        let (found, expected) = (word(&pair.dst, 0)?, round * 50 + 49);
        check!(found == expected, "the word is {found}, expected the last one, {expected}");
    }
    pair.is_well()
}

pub(super) fn fenced(setup: &Setup) -> End {
    let pair = setup.host_pair()?;
    let (a, _) = pair.posters()?;
    let (here, there) = (pair.src.local(), pair.dst.remote());
    let len = 2 * pair.mtu() as u64;
    for round in 0..setup.times(100) {
        pair.dst.write(0, &pattern(len as usize, round + 7))?;
        let _ = a.post_read(here.slice(0, len)?, there.slice(0, len)?, UNSIGNALED)?;
        // Without the fence it may leave before the READ's bytes are here.
        let flags = SendFlags::SIGNALED | SendFlags::FENCE;
        a.wait(a.post_write(here.slice(0, len)?, there.slice(len, len)?, flags)?)?;
        let back = bytes(&pair.dst, len as usize, len as usize)?;
        same(&back, &pattern(len as usize, round + 7), "a fenced WRITE of what a READ brought")?;
    }
    pair.is_well()
}

pub(super) fn reads_and_writes(setup: &Setup) -> End {
    let pair = setup.host_pair()?;
    let (a, _) = pair.posters()?;
    for round in 1..=setup.times(200) {
        let _ = a.post_write_inline(&round.to_le_bytes(), pair.dst.remote(), UNSIGNALED)?;
        let (to, from) = (pair.src.local().slice(64, 8)?, pair.dst.remote().slice(0, 8)?);
        a.wait(a.post_read(to, from, SIGNALED)?)?;
        let found = word(&pair.src, 64)?;
        check!(found == round, "a READ behind a WRITE of {round} saw {found}");
    }
    pair.is_well()
}
