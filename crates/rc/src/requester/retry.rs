//! When to send again and when to give up: counters and timers (vol. 1, 9.7.6.1.3, 9.7.5.2.8).

use core::time::Duration;

use crate::{Config, Instant, Peer, Status};

/// The timers of a connection.
#[derive(Clone, Copy, Debug)]
enum Timer {
    /// No progress for the acknowledgement timeout.
    Ack,
    /// No progress for some round trips.
    Early,
    /// The peer asked to wait; set means that nothing is sent.
    Rnr,
}

#[derive(Clone, Copy, Debug, Default)]
struct Timers([Option<Instant>; 3]);

impl Timers {
    #[inline]
    fn set(&mut self, timer: Timer, at: Option<Instant>) {
        self.0[timer as usize] = at;
    }

    #[inline]
    fn get(&self, timer: Timer) -> Option<Instant> {
        self.0[timer as usize]
    }

    /// Clears the timer if it is due.
    fn take_due(&mut self, timer: Timer, now: Instant) -> bool {
        let due = self.get(timer).is_some_and(|at| at <= now);
        if due {
            self.set(timer, None);
        }
        due
    }

    fn next(&self) -> Option<Instant> {
        self.0.into_iter().flatten().min()
    }
}

/// The 3-bit code of an RNR retry counter that never runs out.
const FOR_EVER: u8 = 7;
/// An early resend waits for a round trip and this many mean deviations (RFC 6298), and for so many
/// minima before the first sample.
const DEVIATIONS: u32 = 4;
const EARLY_UNSAMPLED: u32 = 8;
const EARLY_BACKOFF_MAX: u32 = 16;

/// Looks of the peer after which what was sent before them is answered: one may have begun before,
/// the second finds it, the answer leaves before the third.
const LOOKS: u64 = 4;
/// While the peer has no processor, the timeout is looked at again after this part of it.
const PAUSES: u32 = 16;

/// Actions that are due because time has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// The peer had no processor: the timers have begun anew.
    Paused,
    /// Send everything outstanding again, the timeout has passed.
    Timeout,
    /// Likewise, before the timeout.
    Early,
    /// Send again, the peer's wait is over.
    RnrOver,
    Fail(Status),
}

/// A peer that is watched since a timer ran out.
#[derive(Clone, Copy, Debug)]
struct Watched {
    looks: u64,
    since: Instant,
}

#[derive(Debug)]
pub(crate) struct Retry {
    timeout: Option<Duration>,
    early_min: Option<Duration>,
    retry: u8,
    rnr_retry: u8,
    retries_left: u8,
    rnr_left: u8,
    timers: Timers,
    /// The oldest outstanding position at the last loss: one loss is answered once.
    answered: Option<u64>,
    /// A position and when it was sent: the round trip being measured.
    sample: Option<(u64, Instant)>,
    /// Average round trip, and its mean deviation.
    round_trip: Option<(Duration, Duration)>,
    backoff: u32,
    /// Since the acknowledgement timer, and the early one, ran out first after progress, or after they
    /// had everything sent again. Each has its own: the early one runs out far more often.
    watched: [Option<Watched>; 2],
}

impl Retry {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            timeout: config.timeout.duration(),
            early_min: config.early_resend,
            retry: config.retry,
            rnr_retry: config.rnr_retry,
            retries_left: config.retry,
            rnr_left: config.rnr_retry,
            timers: Timers::default(),
            answered: None,
            sample: None,
            round_trip: None,
            backoff: 0,
            watched: [None; 2],
        }
    }

    /// Other times and counts from now on.
    //= [conn.modify]
    pub(crate) fn modify(&mut self, config: &Config) {
        self.timeout = config.timeout.duration();
        (self.retry, self.retries_left) = (config.retry, config.retry);
        (self.rnr_retry, self.rnr_left) = (config.rnr_retry, config.rnr_retry);
    }

    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.timers.next()
    }

    #[inline]
    pub(crate) fn waits_for_receive(&self) -> bool {
        self.timers.get(Timer::Rnr).is_some()
    }

    pub(crate) fn stop(&mut self) {
        self.timers = Timers::default();
    }

    /// A request left that is to be answered; `sampled` is the position after it if its round
    /// trip can be measured.
    #[inline]
    pub(crate) fn on_sent(&mut self, now: Instant, sampled: Option<u64>) {
        if let (Some(position), None) = (sampled, self.sample) {
            self.sample = Some((position, now));
        }
        if self.timers.get(Timer::Ack).is_none() && self.timers.get(Timer::Early).is_none() {
            self.arm(now);
        }
    }

    /// Everything before `una` is answered; `outstanding` says whether anything else is sent.
    //= [req.retry-reset]
    pub(crate) fn on_progress(&mut self, now: Instant, una: u64, outstanding: bool) {
        self.retries_left = self.retry;
        self.rnr_left = self.rnr_retry;
        self.answered = None;
        self.backoff = 0;
        self.watched = [None; 2];
        if let Some((_, sent)) = self.sample.filter(|(position, _)| *position <= una) {
            self.measure(now.since(sent));
        }
        match outstanding && !self.waits_for_receive() {
            true => self.arm(now),
            false => {
                self.timers.set(Timer::Ack, None);
                self.timers.set(Timer::Early, None);
            }
        }
    }

    /// A NAK or a gap in the responses shows that the packet at `una` is lost. Whether to send
    /// again: once for each loss, however often it is reported.
    //= [req.nak-sequence]
    pub(crate) fn on_loss(&mut self, now: Instant, una: u64) -> Result<bool, Status> {
        if self.answered == Some(una) || self.waits_for_receive() {
            return Ok(false);
        }
        self.take_retry()?;
        self.answered = Some(una);
        self.sample = None;
        self.arm(now);
        Ok(true)
    }

    /// The peer has no receive for the packet at `una` and asks to wait. Whether to wait, rather
    /// than fail.
    //= [req.rnr-wait]
    pub(crate) fn on_rnr(&mut self, now: Instant, delay: Duration) -> Result<bool, Status> {
        if self.waits_for_receive() {
            return Ok(false);
        }
        if self.rnr_retry != FOR_EVER {
            self.rnr_left = self.rnr_left.checked_sub(1).ok_or(Status::RnrRetryExceeded)?;
        }
        self.timers = Timers::default();
        self.timers.set(Timer::Rnr, Some(now + delay));
        self.sample = None;
        Ok(true)
    }

    /// Looks at one timer that is due; call until there is nothing. `peer` is what was known of it
    /// before the last packets were received.
    //= [req.timeout]
    pub(crate) fn on_time(&mut self, now: Instant, peer: Peer) -> Due {
        if self.timers.take_due(Timer::Rnr, now) {
            return Due::RnrOver;
        }
        let is_due = |timer: &Timer| self.timers.get(*timer).is_some_and(|at| at <= now);
        let Some(due) = [Timer::Ack, Timer::Early].into_iter().find(is_due) else {
            return Due::Nothing;
        };
        //= [req.peer-ended]
        if peer == Peer::Ended {
            return Due::Fail(Status::RetryExceeded);
        }
        if self.stands_still(due, now, peer) {
            self.pause(due, now);
            return Due::Paused;
        }
        if self.timers.take_due(Timer::Ack, now) {
            self.sample = None;
            self.answered = None;
            return match self.take_retry() {
                Ok(()) => {
                    self.arm(now);
                    Due::Timeout
                }
                Err(status) => Due::Fail(status),
            };
        }
        //= [req.early-resend]
        if self.timers.take_due(Timer::Early, now) {
            self.sample = None;
            self.answered = None;
            self.backoff = (self.backoff + 1).min(EARLY_BACKOFF_MAX);
            self.arm_early(now);
            return Due::Early;
        }
        Due::Nothing
    }

    /// Whether the time since everything was sent is none of the peer's: it had no processor.
    //= [req.peer-paused]
    fn stands_still(&mut self, due: Timer, now: Instant, peer: Peer) -> bool {
        let watched = &mut self.watched[due as usize];
        let Peer::Looked(looks) = peer else {
            *watched = None;
            return false;
        };
        match *watched {
            // Everything has left by now; when the peer looked last, is not known.
            None => {
                *watched = Some(Watched { looks, since: now });
                true
            }
            Some(Watched { looks: before, since }) if looks.wrapping_sub(before) < LOOKS => {
                now.since(since) < Config::STANDSTILL
            }
            Some(_) => {
                *watched = None;
                false
            }
        }
    }

    /// The timer that is due begins anew.
    fn pause(&mut self, due: Timer, now: Instant) {
        match due {
            Timer::Ack => {
                self.timers.set(due, self.timeout.map(|timeout| now + timeout / PAUSES));
            }
            _ => self.arm_early(now),
        }
    }

    fn take_retry(&mut self) -> Result<(), Status> {
        self.retries_left = self.retries_left.checked_sub(1).ok_or(Status::RetryExceeded)?;
        Ok(())
    }

    fn arm(&mut self, now: Instant) {
        self.timers.set(Timer::Ack, self.timeout.map(|timeout| now + timeout));
        self.arm_early(now);
    }

    fn arm_early(&mut self, now: Instant) {
        let delay = self.early_min.map(|min| match self.round_trip {
            Some((round_trip, deviation)) => min.max(round_trip + deviation * DEVIATIONS),
            None => min * EARLY_UNSAMPLED,
        });
        let delay = delay.map(|delay| delay.saturating_mul(1 << self.backoff));
        self.timers.set(Timer::Early, delay.map(|delay| now + delay));
    }

    /// Averages over about eight samples, and four (RFC 6298).
    fn measure(&mut self, sample: Duration) {
        self.sample = None;
        self.round_trip = Some(match self.round_trip {
            Some((average, deviation)) => {
                ((average * 7 + sample) / 8, (deviation * 3 + average.abs_diff(sample)) / 4)
            }
            None => (sample, sample / 2),
        });
    }
}
