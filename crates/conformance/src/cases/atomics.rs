//! Atomics.

use crate::Setup;
use crate::outcome::{Stop, check};
use crate::peer::Shape;
use crate::rig::{End, SIGNALED, all_access, bytes, same, word};
use std::thread;
use warpverbs::transport::{Endpoint, MaskedCompareSwap, MaskedCs, MaskedFa, MaskedFetchAdd};

/// Where the word is.
const AT: usize = 64;

fn expect(what: &str, found: u64, expected: u64) -> End {
    check!(found == expected, "{what} is {found:#x}, expected {expected:#x}");
    Ok(())
}

pub(super) fn fetch_add(setup: &Setup) -> End {
    let pair = setup.host_pair()?;
    let (a, _) = pair.posters()?;
    let (result, target) = (pair.src.local(), pair.dst.remote().slice(AT as u64, 8)?);
    pair.dst.write(AT as u64, &40u64.to_le_bytes())?;
    a.wait(a.post_fetch_add(result, target, 2, SIGNALED)?)?;
    expect("the old value", word(&pair.src, 0)?, 40)?;
    expect("the sum", word(&pair.dst, AT)?, 42)?;
    expect("the old value", a.fetch_add(target, u64::MAX)?, 42)?;
    expect("the sum, round the end", word(&pair.dst, AT)?, 41)?;
    expect("the word behind", word(&pair.dst, AT + 8)?, 0)?;
    pair.is_well()
}

pub(super) fn compare_swap(setup: &Setup) -> End {
    let pair = setup.host_pair()?;
    let (a, _) = pair.posters()?;
    let (result, target) = (pair.src.local(), pair.dst.remote().slice(AT as u64, 8)?);
    pair.dst.write(AT as u64, &7u64.to_le_bytes())?;
    expect("the old value", a.compare_swap(target, 8, 99)?, 7)?;
    expect("a word that was not expected", word(&pair.dst, AT)?, 7)?;
    expect("the old value", a.compare_swap(target, 7, u64::MAX)?, 7)?;
    expect("the word", word(&pair.dst, AT)?, u64::MAX)?;
    a.wait(a.post_compare_swap(result, target, u64::MAX, 1, SIGNALED)?)?;
    expect("the old value", word(&pair.src, 0)?, u64::MAX)?;
    expect("the word", word(&pair.dst, AT)?, 1)?;
    pair.is_well()
}

pub(super) fn contended(setup: &Setup) -> End {
    let each = setup.times(60);
    let word_at_b = setup.b.region(8, all_access())?;
    let connected = || -> Result<_, Stop> {
        let (a, b) = (setup.endpoint(&Shape::host())?, setup.b.endpoint(&Shape::host())?);
        a.connect(&b.handle())?;
        b.connect(&a.handle())?;
        Ok((a, b))
    };
    let pairs = (0..3).map(|_| connected()).collect::<Result<Vec<_>, _>>()?;
    let target = word_at_b.remote();
    let count = |adds: bool, a: &Endpoint| -> Result<Vec<u64>, Stop> {
        let host = a.host()?;
        let (mut seen, mut guess) = (Vec::new(), 0);
        while (seen.len() as u64) < each {
            let old = match adds {
                true => host.fetch_add(target, 1)?,
                false => host.compare_swap(target, guess, guess + 1)?,
            };
            if adds || old == guess {
                seen.push(old);
            }
            guess = if old == guess { old + 1 } else { old };
        }
        Ok(seen)
    };
    let seen = thread::scope(|scope| {
        let posting = pairs.iter().map(|(a, _)| a).enumerate();
        let threads: Vec<_> = posting.map(|(n, a)| scope.spawn(move || count(n > 0, a))).collect();
        let ends = threads.into_iter().map(|thread| {
            thread.join().unwrap_or_else(|_| Err(Stop::Failed("a thread panicked".into())))
        });
        ends.collect::<Result<Vec<_>, _>>()
    })?;
    let mut seen = seen.concat();
    seen.sort_unstable();
    let wrong = seen.iter().zip(0..).find(|(found, expected)| **found != *expected);
    check!(wrong.is_none(), "(found, expected) old value: {wrong:?}");
    expect("the final value", word(&word_at_b, 0)?, 3 * each)
}

pub(super) fn masked_atomics(setup: &Setup) -> End {
    let pair = setup.host_pair()?;
    let (a, _) = pair.posters()?;
    let (result, target) = (pair.src.local(), pair.dst.remote().slice(AT as u64, 8)?);
    // Two 32-bit fields; no carry from the lower one.
    pair.dst.write(AT as u64, &0x1_ffff_ffffu64.to_le_bytes())?;
    let fields = MaskedFetchAdd::B8(MaskedFa { add: 0x1_0000_0001, boundary: 1 << 31 });
    a.wait(a.post_masked_fetch_add(result, target, fields, SIGNALED)?)?;
    expect("the old value", word(&pair.src, 0)?, 0x1_ffff_ffff)?;
    expect("the fields", word(&pair.dst, AT)?, 0x2_0000_0000)?;
    let swap = MaskedCs { compare: 2 << 32, compare_mask: 0xff << 32, swap: 0xab, swap_mask: 0xff };
    let swap = MaskedCompareSwap::B8(swap);
    a.wait(a.post_masked_compare_swap(result, target, swap, SIGNALED)?)?;
    expect("the word", word(&pair.dst, AT)?, 0x2_0000_00ab)?;
    // A 4-byte result comes back big-endian.
    let narrow = MaskedFetchAdd::B4(MaskedFa { add: 1, boundary: 0 });
    a.wait(a.post_masked_fetch_add(result, target, narrow, SIGNALED)?)?;
    same(&bytes(&pair.src, 0, 4)?, &0xabu32.to_be_bytes(), "the old value of 4 bytes")?;
    expect("the word", word(&pair.dst, AT)?, 0x2_0000_00ac)?;
    pair.is_well()
}
