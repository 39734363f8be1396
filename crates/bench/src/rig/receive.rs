//! The far end of SENDs through the loopback: a thread that takes what arrives and offers the
//! memory again.

use super::machine::Pair;
use super::threads::with_partner;
use anyhow::{Result, ensure};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use warpverbs::transport::Poster;

/// Runs `work`, which sends to the far ends of `pairs`, and checks that `messages` came to each.
pub(crate) fn receiving<T>(
    pairs: &[Pair],
    messages: u64,
    work: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let (done, counts) = with_partner(|over| take_all(pairs, over), work);
    // The sender's error comes first: the receiver's follows from it.
    let (done, counts) = (done?, counts?);
    for (pair, count) in counts.into_iter().enumerate() {
        ensure!(count == messages, "queue pair {pair}: {count} messages came, expected {messages}");
    }
    Ok(done)
}

fn take_all(pairs: &[Pair], over: &AtomicBool) -> Result<Vec<u64>> {
    let hosts: Vec<Poster<'_>> =
        pairs.iter().map(|pair| Ok(pair.link.far.host()?)).collect::<Result<_>>()?;
    let mut counts = vec![0; pairs.len()];
    loop {
        // Messages that were sent before the work was over have arrived by then.
        let last = over.load(Ordering::Acquire);
        let mut news = false;
        for ((host, pair), count) in hosts.iter().zip(pairs).zip(&mut counts) {
            while let Some(received) = host.poll_recv()? {
                let (found, sent) = (received.byte_len as usize, pair.remote.len());
                ensure!(found == sent, "a message of {found} bytes came, expected {sent}");
                host.post_recv(pair.remote.local())?;
                (*count, news) = (*count + 1, true);
            }
        }
        if last && !news {
            return Ok(counts);
        }
        if !news {
            thread::yield_now();
        }
    }
}
