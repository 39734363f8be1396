//! The timed parts, posted by the host. Nothing here waits inside `transport`: whoever waits drives
//! the engine, and looks now and then whether the peer still lives.

use super::feed::Feed;
use super::messages::{Message, Part};
use super::pair::PairEnd;
use super::side::{Role, Side};
use super::watch::Watch;
use crate::rig::plan::Op;
use anyhow::{Context as _, Result, bail};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};
use warpverbs::transport::{LocalRegion, Poster};

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Amount {
    /// Operations on each queue pair.
    Operations(u64),
    /// As many as there is time for.
    Time(Duration),
}

impl Amount {
    /// Operations at most, and their time at most.
    pub(crate) fn bounds(self) -> (u64, Duration) {
        match self {
            Self::Operations(n) => (n, Duration::MAX),
            Self::Time(time) => (u64::MAX, time),
        }
    }
}

/// Operations posted to one queue pair before the next one.
const BURST: u32 = 16;

/// Operations on all queue pairs, as many under way as they may have, and how long they took. How
/// many there were on each.
pub(crate) fn stream(
    side: &Side,
    pairs: &[PairEnd],
    part: &Part,
    (most, time): (u64, Duration),
    watch: &mut Watch<'_>,
) -> Result<(Vec<u64>, Duration)> {
    let feeds = pairs.iter().map(|pair| Feed::forth(pair, side, part));
    let mut feeds: Vec<Feed<'_>> = feeds.collect::<Result<_>>()?;
    let mut quotas = vec![most; feeds.len()];
    let (start, mut closing) = (Instant::now(), false);
    loop {
        let (mut news, mut over) = (false, true);
        for (feed, quota) in feeds.iter_mut().zip(&quotas) {
            news |= feed.fill(*quota, BURST)?;
            over &= feed.is_over(*quota);
        }
        if over {
            break;
        }
        if news {
            watch.news();
            watch.push();
        } else {
            watch.pause_alone()?;
        }
        watch.in_time()?;
        if !closing && start.elapsed() >= time {
            closing = true;
            // The last of each queue pair is signalled.
            quotas = feeds.iter().map(|feed| most.min(feed.posted + 1)).collect();
        }
    }
    let time = start.elapsed();
    Ok((feeds.iter().map(|feed| feed.posted).collect(), time))
}

/// One operation after the other, each from post to completion: nanoseconds of each.
pub(crate) fn one_by_one(
    side: &Side,
    pair: &PairEnd,
    part: &Part,
    much: (u64, Amount),
    watch: &mut Watch<'_>,
) -> Result<(Vec<u64>, u64)> {
    let mut feed = Feed::forth(pair, side, part)?;
    let post = |feed: &mut Feed<'_>| feed.post(true);
    let samples = turns(&mut feed, much, watch, post, |feed| Ok(feed.poster.poll()? >= feed.end))?;
    Ok((samples, feed.posted))
}

/// A message there, and one back, again and again: nanoseconds of half a round trip.
pub(crate) fn ping_pong(
    side: &Side,
    pair: &PairEnd,
    part: &Part,
    much: (u64, Amount),
    watch: &mut Watch<'_>,
) -> Result<(Vec<u64>, u64)> {
    let mut rally = Rally::new(side, pair, part)?;
    let samples = turns(&mut rally, much, watch, Rally::hit, Rally::arrived)?;
    Ok((samples.iter().map(|ns| ns / 2).collect(), rally.turn))
}

/// Posts, and waits until it is over, again and again: nanoseconds of each turn.
fn turns<T>(
    of: &mut T,
    (warmup, amount): (u64, Amount),
    watch: &mut Watch<'_>,
    mut post: impl FnMut(&mut T) -> Result<()>,
    mut is_over: impl FnMut(&mut T) -> Result<bool>,
) -> Result<Vec<u64>> {
    let mut clock = Clock::new(warmup, amount);
    while !clock.is_over() {
        post(of)?;
        watch.push();
        while !is_over(of)? {
            watch.pause_alone()?;
        }
        watch.news();
        clock.tick();
    }
    Ok(clock.samples)
}

/// The server's half of [`ping_pong`], until the client says that it is over: how many messages
/// there were of its own.
pub(crate) fn answer(
    side: &Side,
    pair: &PairEnd,
    part: &Part,
    watch: &mut Watch<'_>,
) -> Result<(u64, Message)> {
    let mut rally = Rally::new(side, pair, part)?;
    loop {
        while !rally.arrived()? {
            if let Some(message) = watch.pause()? {
                return Ok((rally.turn, message));
            }
        }
        watch.news();
        rally.hit()?;
        watch.push();
    }
}

/// Takes what is sent to every queue pair, until the client says that it is over and everything
/// that it has sent is there.
pub(crate) fn receive(
    pairs: &[PairEnd],
    part: &Part,
    watch: &mut Watch<'_>,
) -> Result<(Vec<u64>, Message)> {
    let inboxes = pairs.iter().map(|pair| Ok((pair.endpoint.host()?, pair.main.local())));
    let inboxes: Vec<_> = inboxes.collect::<Result<_>>()?;
    let (mut counts, mut over) = (vec![0u64; pairs.len()], None);
    loop {
        let mut news = false;
        for ((host, inbox), count) in inboxes.iter().zip(&mut counts) {
            while take(host, *inbox, part)? {
                (*count, news) = (*count + 1, true);
            }
        }
        let message = if news {
            watch.news();
            watch.push();
            None
        } else {
            watch.pause()?
        };
        over = over.or(message);
        if let Some(Message::Stop(sent)) = &over
            && (*sent == counts || sent.len() != counts.len())
        {
            break;
        } else if matches!(over, Some(ref message) if !matches!(message, Message::Stop(_))) {
            break;
        }
    }
    Ok((counts, over.unwrap_or(Message::End)))
}

/// Takes one message, and offers its memory again; whether there was one.
#[inline]
fn take(host: &Poster<'_>, inbox: LocalRegion, part: &Part) -> Result<bool> {
    let Some(received) = host.poll_recv()? else { return Ok(false) };
    if u64::from(received.byte_len) != part.bytes {
        bail!("a message of {} bytes arrived, expected {}", received.byte_len, part.bytes);
    }
    host.post_recv(inbox)?;
    Ok(true)
}

/// One end of a ping-pong.
struct Rally<'l> {
    feed: Feed<'l>,
    inbox: LocalRegion,
    part: Part,
    /// Bytes that count turns, going out and coming in.
    out: &'l AtomicU8,
    incoming: &'l AtomicU8,
    /// Messages that this end has sent.
    turn: u64,
    /// Messages of the peer that have arrived.
    received: u64,
}

impl<'l> Rally<'l> {
    fn new(side: &Side, pair: &'l PairEnd, part: &Part) -> Result<Self> {
        let back = pair.back.as_ref().context("no memory for answers")?;
        let (feed, out, inbox) = match side.role {
            Role::Client => (Feed::forth(pair, side, part)?, &pair.main, back),
            Role::Server => (Feed::back(pair, side, part)?, back, &pair.main),
        };
        Ok(Self {
            feed,
            inbox: inbox.local(),
            part: *part,
            out: PairEnd::last_byte(out, part)?,
            incoming: PairEnd::last_byte(inbox, part)?,
            turn: 0,
            received: 0,
        })
    }

    #[inline]
    fn hit(&mut self) -> Result<()> {
        self.turn += 1;
        if self.feed.op == Op::Write {
            // Only now may the bytes change: the peer has all of the message before.
            self.out.store(self.turn as u8, Ordering::Release);
        }
        let signaled = self.turn.is_multiple_of(self.feed.every);
        if signaled {
            self.feed.completed = self.feed.poster.poll()?;
        }
        self.feed.post(signaled)
    }

    #[inline]
    fn arrived(&mut self) -> Result<bool> {
        let next = self.received + 1;
        let there = match self.feed.op {
            Op::Write => self.incoming.load(Ordering::Acquire) == next as u8,
            _ => take(&self.feed.poster, self.inbox, &self.part)?,
        };
        if there {
            self.received = next;
        }
        Ok(there)
    }
}

/// Times turns, each from the end of the one before. Where turns are measured for a time, those before
/// them take no longer than that either: on a busy machine one turn may take as long as a thousand.
struct Clock {
    warmup: u64,
    warm: bool,
    amount: Amount,
    turns: u64,
    begin: Instant,
    last: Instant,
    samples: Vec<u64>,
}

impl Clock {
    fn new(warmup: u64, amount: Amount) -> Self {
        let now = Instant::now();
        let room = match amount {
            Amount::Operations(n) => n as usize,
            Amount::Time(_) => 1 << 17,
        };
        let samples = Vec::with_capacity(room);
        Self { warmup, warm: warmup == 0, amount, turns: 0, begin: now, last: now, samples }
    }

    #[inline]
    fn tick(&mut self) {
        let now = Instant::now();
        self.turns += 1;
        if self.warm {
            self.samples.push((now - self.last).as_nanos() as u64);
        } else if self.turns == self.warmup || now - self.begin >= self.amount.bounds().1 {
            (self.warm, self.begin) = (true, now);
        }
        self.last = now;
    }

    #[inline]
    fn is_over(&self) -> bool {
        match self.amount {
            Amount::Operations(n) => self.samples.len() as u64 >= n,
            Amount::Time(time) => !self.samples.is_empty() && self.last - self.begin >= time,
        }
    }
}
