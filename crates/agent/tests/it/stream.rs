//! Streams between two agents of one process, over each path: what arrives is what a model says was
//! sent; who stalls, gives up or stops; what is refused.

use crate::bed::{SOON, tell};
use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};
use warpverbs_agent::{
    Agent, AgentConfig, AgentError, CopyBy, Message, PathKind, StreamConfig, StreamReceiver,
    StreamSender,
};
use warpverbs_dev::seed;
use warpverbs_mem::HostBuf;
use warpverbs_transport::Context;

const AT_ONCE: Duration = Duration::from_millis(30);

/// Every path that leads from an agent to another one of its process.
fn paths() -> Vec<(PathKind, AgentConfig)> {
    let nic = Context::new().unwrap().open("soft").unwrap();
    let (direct, config) = (PathKind::SameProcess, AgentConfig::default);
    vec![
        (direct, config()),
        (direct, config().copy_by(CopyBy::Kernel)),
        (PathKind::Mapped, config().require(PathKind::Mapped)),
        (PathKind::Network, config().nic(&nic).require(PathKind::Network)),
        (PathKind::Tcp, config().require(PathKind::Tcp)),
    ]
}

struct Ends {
    sender: StreamSender,
    receiver: StreamReceiver,
    agents: [Agent; 2],
}

fn ends(config: &AgentConfig, stream: StreamConfig) -> Ends {
    let agents = ["source", "sink"].map(|name| Agent::new(name, config.clone()).unwrap());
    let [source, sink] = &agents;
    tell(source, sink);
    let receiver = sink.stream("s", stream).unwrap();
    let sender = source.stream_to("sink", "s", SOON).unwrap();
    Ends { sender, receiver, agents }
}

fn plain(stream: StreamConfig) -> Ends {
    ends(&AgentConfig::default(), stream)
}

/// The model: message `number` of a seed, by bytes that no other message has.
fn message(seed: u64, number: u64, most: u64) -> Vec<u8> {
    let mut random = SmallRng::seed_from_u64(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let len = match random.random_range(0..8) {
        0 => 0,
        1 => most,
        _ => random.random_range(1..=most),
    };
    let mut bytes = vec![0; len as usize];
    random.fill_bytes(&mut bytes);
    bytes
}

/// Takes `count` messages and compares them with the model; holds some, and gives slots back in any
/// order.
fn receive(receiver: &mut StreamReceiver, seed: u64, count: u64, most: u64, slots: u64) {
    let mut random = SmallRng::seed_from_u64(!seed);
    let mut held: Vec<Message> = Vec::new();
    for number in 0..count {
        let message = receiver.recv(SOON).unwrap().unwrap();
        assert_eq!(message.number(), number);
        assert!(message.to_vec().unwrap() == self::message(seed, number, most), "{number}");
        held.push(message);
        // The next one comes into the slot of the oldest that may be held.
        let full = |held: &[Message]| held.iter().any(|old| old.number() + slots == number + 1);
        while full(&held) || (!held.is_empty() && random.random_bool(0.6)) {
            let message = held.swap_remove(random.random_range(0..held.len()));
            // Nothing has been written over it.
            let (number, bytes) = (message.number(), message.to_vec().unwrap());
            assert!(bytes == self::message(seed, number, most), "{number} was overwritten");
        }
        if random.random_bool(0.1) {
            std::thread::yield_now();
        }
    }
    assert!(receiver.recv(SOON).unwrap().is_none());
    assert!(receiver.recv(AT_ONCE).unwrap().is_none(), "the end stays");
}

/// The memory that a sender stages grows with its own messages, whatever lengths its peer offers.
#[test]
fn the_slots_of_a_receiver_take_no_memory_of_its_sender() {
    const SLOT: u64 = 48 << 20;
    let seed = seed();
    for (path, config) in paths() {
        let stream = StreamConfig::default().slots(2).slot_bytes(SLOT);
        let Ends { mut sender, mut receiver, agents: [source, sink] } = ends(&config, stream);
        let staged = || {
            tell(&sink, &source);
            sink.remote("source", "staging of a stream").unwrap().len()
        };
        let first = staged();
        assert!(first <= 16 << 20, "{first} bytes are staged, {path}");
        for (number, len) in [100, 9 << 20, 20 << 20, 30, 20 << 20].into_iter().enumerate() {
            let bytes = warpverbs_dev::pattern(len, seed ^ number as u64);
            sender.send(&bytes, SOON).unwrap();
            let message = receiver.recv(SOON).unwrap().unwrap();
            assert!(message.to_vec().unwrap() == bytes, "{len} bytes, {path}");
        }
        let last = staged();
        assert!(((40 << 20)..2 * SLOT).contains(&last), "{last} bytes are staged, {path}");
    }
}

#[test]
fn messages_arrive_in_order_and_once_over_every_path() {
    let seed = seed();
    let mut random = SmallRng::seed_from_u64(seed);
    for (path, config) in paths() {
        for _ in 0..3 {
            let slots = random.random_range(1..24u32);
            let most = random.random_range(1..20_000u64);
            let count = random.random_range(1..300u64);
            let what = format!("{path}, {count} messages, {slots} slots of {most} bytes");
            println!("{what}");
            let stream = StreamConfig::default().slots(slots).slot_bytes(most);
            let Ends { mut sender, mut receiver, agents: _agents } = ends(&config, stream);
            assert_eq!(sender.path(), path, "{what}");
            std::thread::scope(|scope| {
                let sending = scope.spawn(|| {
                    let mut bytes = 0;
                    for number in 0..count {
                        let message = message(seed, number, most);
                        bytes += message.len() as u64;
                        sender.send(&message, SOON).unwrap();
                    }
                    sender.finish(SOON).unwrap();
                    let stats = sender.stats();
                    assert_eq!((stats.messages, stats.bytes), (count, bytes));
                    // In quarters, and one more each time that all slots were in use.
                    let quarters = count / u64::from(slots).div_ceil(4);
                    assert!(stats.credits <= quarters + stats.stalls + 1, "{stats:?}");
                });
                receive(&mut receiver, seed, count, most, slots.into());
                sending.join().unwrap();
            });
        }
    }
}

/// CPU time of this thread.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[test]
fn a_receiver_that_takes_nothing_stalls_its_sender_without_loss() {
    for (path, config) in paths() {
        let stream = StreamConfig::default().slots(8).slot_bytes(1000);
        let Ends { mut sender, mut receiver, agents: _agents } = ends(&config, stream);
        for number in 0..8u64 {
            sender.send(&number.to_le_bytes(), SOON).unwrap();
        }
        let (start, before) = (Instant::now(), cpu());
        let late = sender.send(b"late", Duration::from_secs(1)).unwrap_err();
        let (took, used) = (start.elapsed(), cpu() - before);
        assert!(matches!(late, AgentError::Timeout { .. }), "{path}: {late}");
        assert!(late.to_string().contains("\"s\" to sink ("), "{late}");
        // At least: the deadline is what is tried.
        assert!(took >= Duration::from_secs(1));
        // Time of this thread alone, which other load does not add to: a few looks, however slow each is,
        // where one that spins uses all that it gets.
        assert!(used < took / 2, "{path}: {used:?} of CPU time in {took:?}");
        // Nothing of it was sent.
        let first = receiver.recv(SOON).unwrap().unwrap();
        assert_eq!(first.to_vec().unwrap(), 0u64.to_le_bytes());
        let late = sender.send(b"late", AT_ONCE).unwrap_err();
        assert!(matches!(late, AgentError::Timeout { .. }), "{path}: {late}");
        // The first slot is given back while the sender waits.
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| sender.send(&8u64.to_le_bytes(), SOON));
            drop(first);
            sending.join().unwrap().unwrap();
        });
        for number in 1..9u64 {
            let next = receiver.recv(SOON).unwrap().unwrap();
            assert_eq!(next.to_vec().unwrap(), number.to_le_bytes(), "{path}");
        }
        let stats = sender.stats();
        assert!((stats.messages, stats.credits) >= (9, 1) && stats.stalls <= 1, "{stats:?}");
        assert!(stats.stalled >= Duration::from_secs(1), "{stats:?}");
    }
}

#[test]
fn a_message_longer_than_a_slot_is_refused_and_the_stream_goes_on() {
    let Ends { mut sender, mut receiver, agents: _agents } =
        plain(StreamConfig::default().slots(1).slot_bytes(4));
    let long = sender.send(b"12345", SOON).unwrap_err();
    assert_eq!(long.to_string(), "a message of 5 bytes, stream \"s\" takes at most 4");
    sender.send(b"1234", SOON).unwrap();
    assert_eq!(receiver.recv(SOON).unwrap().unwrap().to_vec().unwrap(), b"1234");
    sender.send(b"", SOON).unwrap();
    assert!(receiver.recv(SOON).unwrap().unwrap().is_empty());
    sender.finish(SOON).unwrap();
    sender.finish(SOON).unwrap();
    assert!(sender.send(b"", SOON).unwrap_err().to_string().contains("finished"));
    drop(sender);
    assert!(receiver.recv(SOON).unwrap().is_none());
}

#[test]
fn an_end_that_is_dropped_or_stopped_is_missed_by_the_other() {
    let stream = || StreamConfig::default().slots(2).slot_bytes(8);
    // A sender without an end: what it has sent comes first.
    let Ends { mut sender, mut receiver, agents: _agents } = plain(stream());
    sender.send(b"one", SOON).unwrap();
    drop(sender);
    assert_eq!(receiver.recv(SOON).unwrap().unwrap().to_vec().unwrap(), b"one");
    let missed = receiver.recv(SOON).unwrap_err();
    assert!(matches!(missed, AgentError::GivenUp { .. }), "{missed}");
    assert!(missed.to_string().contains("source ("), "{missed}");

    // A receiver, while the sender waits for a slot.
    let Ends { mut sender, receiver, agents: _agents } = plain(stream());
    for _ in 0..2 {
        sender.send(b"two", SOON).unwrap();
    }
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| sender.send(b"three", SOON));
        drop(receiver);
        let missed = waiting.join().unwrap().unwrap_err().to_string();
        assert!(missed.contains("sink (") && missed.contains("receiver was dropped"), "{missed}");
    });
    assert!(sender.finish(SOON).unwrap_err().to_string().contains("receiver was dropped"));

    // Both from other threads.
    for stop_sender in [false, true] {
        let Ends { mut sender, mut receiver, agents: _agents } = plain(stream());
        let stop = if stop_sender { sender.stopper() } else { receiver.stopper() };
        std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                loop {
                    if let Err(error) = sender.send(b"x", SOON) {
                        return error;
                    }
                }
            });
            let receiving = scope.spawn(|| {
                // The first that comes is kept, so that sooner or later both wait.
                let first = receiver.recv(SOON);
                match first {
                    Err(error) => error,
                    Ok(_) => loop {
                        if let Err(error) = receiver.recv(SOON) {
                            return error;
                        }
                    },
                }
            });
            stop.stop();
            let (sent, received) = (sending.join().unwrap(), receiving.join().unwrap());
            let (own, other) = if stop_sender { (sent, received) } else { (received, sent) };
            assert!(matches!(own, AgentError::Cancelled), "{own}");
            assert!(other.to_string().contains("it was cancelled"), "{other}");
        });
    }
}

#[test]
fn a_stream_needs_a_name_a_ring_and_a_receiver() {
    let agents = ["source", "sink"].map(|name| Agent::new(name, AgentConfig::default()).unwrap());
    let [source, sink] = &agents;
    tell(source, sink);
    let wrong = |config: StreamConfig| sink.stream("s", config).unwrap_err().to_string();
    assert_eq!(wrong(StreamConfig::default().slots(0)), "slots is 0, expected 1 to 65536");
    assert!(wrong(StreamConfig::default().slots(65537)).contains("expected 1 to 65536"));
    assert!(wrong(StreamConfig::default().slot_bytes(0)).contains("slot_bytes is 0"));
    assert!(wrong(StreamConfig::default().slots(2).slot_bytes(1 << 63)).contains("slot_bytes"));
    let short = HostBuf::region(99).unwrap();
    let short = StreamConfig::default().slots(10).slot_bytes(10).memory(short);
    assert_eq!(wrong(short), "memory is 99 bytes, expected the bytes of all slots");

    // With a short deadline the peer's answer may be what is missing: then longer, until it has come.
    let nobody =
        |doubled: u32| source.stream_to("sink", "s", AT_ONCE * (1 << doubled)).unwrap_err();
    let mut errors = (0..14).map(|doubled| nobody(doubled).to_string());
    let names = |error: String| error.contains("stream \"s\" of sink (");
    assert!(errors.any(names), "no error names the stream");
    let unknown = source.stream_to("nobody", "s", SOON).unwrap_err();
    assert!(matches!(unknown, AgentError::UnknownPeer { .. }), "{unknown}");

    // The sender may come first.
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| source.stream_to("sink", "s", SOON).unwrap());
        let ring = HostBuf::region(100).unwrap();
        let config = StreamConfig::default().slots(10).slot_bytes(10).memory(ring.clone());
        let mut receiver = sink.stream("s", config).unwrap();
        let mut sender = opening.join().unwrap();
        assert_eq!((sender.slots(), sender.slot_bytes()), (10, 10));
        sender.send(b"0123456789", SOON).unwrap();
        let message = receiver.recv(SOON).unwrap().unwrap();
        assert_eq!(receiver.sender().unwrap().name.as_ref(), "source");
        let mut seen = [0; 10];
        ring.read(0, &mut seen).unwrap();
        assert_eq!((&seen, message.to_vec().unwrap()), (b"0123456789", b"0123456789".to_vec()));
        assert!(message.read(5, &mut [0; 6]).is_err());
        // A second sender waits for a second stream of the name.
        assert!(source.stream_to("sink", "s", AT_ONCE).is_err());
        let _second = sink.stream("s", StreamConfig::default().slots(1)).unwrap();
        let twice = sink.stream("s", StreamConfig::default().slots(1)).unwrap_err();
        assert!(twice.to_string().contains("no offered stream has yet"), "{twice}");
        // Requests of a caller that has given up waiting do not take it away.
        let hasty = |_| source.stream_to("sink", "s", Duration::from_nanos(1)).is_ok();
        if !(0..20).any(hasty) {
            source.stream_to("sink", "s", SOON).unwrap();
        }
    });
}

#[test]
fn an_agent_that_ends_ends_its_streams() {
    for ends_source in [true, false] {
        let Ends { mut sender, mut receiver, agents: [source, sink] } =
            plain(StreamConfig::default().slots(1).slot_bytes(8));
        sender.send(b"1", SOON).unwrap();
        assert!(receiver.recv(SOON).unwrap().is_some());
        drop(if ends_source { source } else { sink });
        let lost = receiver.recv(SOON).unwrap_err();
        assert!(matches!(lost, AgentError::PeerLost { .. }), "{lost}");
        let lost = loop {
            if let Err(lost) = sender.send(b"2", SOON) {
                break lost;
            }
        };
        assert!(matches!(lost, AgentError::PeerLost { .. }), "{lost}");
    }
}
