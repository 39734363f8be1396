//! A peer that sends anything: no panic, no byte written but where a checked request said, and
//! packets outside what is outstanding have no effect.

use crate::common::host::{BASE, REMOTE, RKEY};
use crate::common::pair::Node;
use crate::common::peer::{Event, config, packets, run};
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use warpverbs_rc::{Completion, Config, Instant, Op, Place, Remote, Request, State, WrId};
use warpverbs_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Extension, Ieth, ImmDt, Msn, Opcode, Psn, Qpn, Reth, Rkey,
    Syndrome,
};

fn header_values() -> impl Strategy<Value = Extension> {
    // Near what is valid, so that many get far.
    let va = prop_oneof![Just(BASE), BASE..BASE + 8192, any::<u64>()];
    let rkey = prop_oneof![9 => Just(RKEY), 1 => any::<u32>().prop_map(Rkey)];
    let dma_len = prop_oneof![0u32..3000, any::<u32>()];
    let msn = (0u32..40).prop_map(Msn::from_low_bits);
    let numbers = (any::<u8>(), any::<u32>(), any::<u64>(), any::<u64>());
    (va, rkey, dma_len, msn, numbers, 0usize..8).prop_map(
        |(va, rkey, dma_len, msn, (byte, data, first, second), kind)| {
            let aeth = Aeth { syndrome: Syndrome::from_byte(byte), msn };
            let reth = Reth { va, rkey, dma_len };
            match kind {
                0 => Extension::Empty,
                1 => Extension::Imm(ImmDt { data }),
                2 => Extension::Ieth(Ieth { rkey: Rkey(data) }),
                3 => Extension::Reth(reth),
                4 => Extension::RethImm(reth, ImmDt { data }),
                5 => Extension::Aeth(aeth),
                6 => Extension::AethAtomicAck(aeth, AtomicAckEth { original: first }),
                _ => {
                    let va = if byte < 200 { va & !7 } else { va };
                    Extension::Atomic(AtomicEth { va, rkey, swap_add: first, compare: second })
                }
            }
        },
    )
}

fn packet() -> impl Strategy<Value = Event> {
    let psn = prop_oneof![8 => 0u32..24, 1 => 0xff_fff0u32..=0xff_ffff, 1 => any::<u32>()];
    let len = prop_oneof![Just(0u32), Just(256), 0u32..300, any::<u16>().prop_map(u32::from)];
    // Mostly the headers of the opcode; sometimes others, which no parser yields.
    let matching = header_values().prop_flat_map(|ext| {
        let opcodes: Vec<Opcode> = (Opcode::ALL.iter().copied())
            .filter(|opcode| opcode.headers() == ext.headers())
            .collect();
        (prop::sample::select(opcodes), Just(ext))
    });
    let any_pair = (prop::sample::select(Opcode::ALL), header_values());
    let pair = prop_oneof![15 => matching, 1 => any_pair];
    (pair, psn, len, any::<bool>()).prop_map(|((opcode, ext), psn, len, ack_request)| {
        let bth = Bth::new(opcode, Qpn::from_low_bits(7), Psn::from_low_bits(psn));
        Event::Packet { bth: Bth { ack_request, ..bth }, ext, len }
    })
}

fn event() -> impl Strategy<Value = Event> {
    let op = prop_oneof![
        Just(Op::Send),
        Just(Op::Write(REMOTE)),
        Just(Op::Read(REMOTE)),
        Just(Op::FetchAdd { remote: REMOTE, add: 1 }),
    ];
    prop_oneof![
        12 => packet(),
        3 => (op, 0u32..1000).prop_map(|(op, len)| {
            let len = if op.is_atomic() { 8 } else { len };
            Event::Post(Request::new(WrId(0), op, len))
        }),
        2 => (0usize..1000).prop_map(Event::Receive),
        3 => Just(Event::Transmit),
        1 => (0u64..100_000_000).prop_map(Event::Wait),
    ]
}

fn opcodes(responses: bool) -> impl Strategy<Value = Opcode> {
    let all = Opcode::ALL.iter().copied();
    prop::sample::select(
        all.filter(|op| !op.is_datagram() && op.is_response() == responses).collect::<Vec<_>>(),
    )
}

/// PSNs that [`busy`] has outstanding, from 0.
const OUTSTANDING: u32 = 6;

/// A connection with a SEND and a READ outstanding, three packets each.
fn busy() -> Node {
    let mut node = Node::new(&Config { rq_psn: Psn::from_low_bits(1000), ..config() }, 4096);
    for (id, op) in [(0, Op::Send), (1, Op::Read(REMOTE))] {
        assert!(node.post(Request::new(WrId(id), op, 600), vec![0; 600]));
    }
    while node.transmit(0).is_some() {}
    node
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_events(events in prop::collection::vec(event(), 0..60)) {
        run(&config(), events);
    }

    /// The body of the fuzz target.
    #[test]
    fn any_script(script in prop::collection::vec(any::<u8>(), 0..1000)) {
        packets(&script);
    }

    /// Responses to nothing that is outstanding.
    //= [comp.ghost]
    #[test]
    fn responses_nobody_asked_for(
        steps in prop_oneof![OUTSTANDING..OUTSTANDING + 4, OUTSTANDING..0xff_fff0],
        ext in header_values(),
        len in 0u32..300,
        opcode in opcodes(true),
    ) {
        let mut node = busy();
        let before = format!("{:?}", without_stats(&node));
        let psn = Psn::default() + steps;
        let bth = Bth::new(opcode, Qpn::from_low_bits(7), psn);
        let now = Instant::from_nanos(1);
        let answer = node.connection.handle_packet(now, &bth, &ext, len, &mut node.memory);
        prop_assert_eq!(answer, Place::Nothing);
        prop_assert_eq!(node.connection.stats().ghosts, 1);
        prop_assert_eq!(format!("{:?}", without_stats(&node)), before);
    }

    /// Requests that are old: at most one packet comes back, and it is no longer than the request
    /// but for a READ that was really asked for.
    //= [resp.duplicate] [resp.no-amplification]
    #[test]
    fn stale_requests_change_nothing(
        back in 1u32..0x80_0000,
        ext in header_values(),
        len in 0u32..300,
        opcode in opcodes(false),
    ) {
        let mut node = busy();
        let before = node.memory.bytes.clone();
        let psn = Psn::from_low_bits(1000) - back;
        let bth = Bth::new(opcode, Qpn::from_low_bits(7), psn);
        let now = Instant::from_nanos(1);
        let answer = node.connection.handle_packet(now, &bth, &ext, len, &mut node.memory);
        prop_assert_eq!(answer, Place::Nothing);
        prop_assert_eq!(&node.memory.bytes, &before);
        prop_assert_eq!(node.memory.atomics, 0);
        prop_assert_eq!(node.connection.state(), State::ReadyToSend);
        let answers = std::iter::from_fn(|| node.transmit(1)).count();
        let owed = matches!(opcode.operation(), warpverbs_wire::Operation::Send | warpverbs_wire::Operation::Write);
        prop_assert_eq!(answers, usize::from(owed));
    }
}

fn without_stats(node: &Node) -> String {
    let text = format!("{:?}", node.connection);
    let (head, rest) = text.split_once("stats: Stats {").expect("statistics");
    let (_, tail) = rest.split_once('}').expect("their end");
    format!("{head}{tail}")
}

/// Any response, from somebody who knows neither PSN nor message sequence number.
fn forged(rng: &mut StdRng) -> (Bth, Extension, u32) {
    let responses = Opcode::ALL.iter().filter(|opcode| opcode.is_response());
    let opcode = *responses.copied().collect::<Vec<_>>().choose(rng).expect("some");
    let numbers = [rng.next_u64(), rng.next_u64()];
    let aeth = Aeth {
        syndrome: Syndrome::from_byte(numbers[0] as u8),
        msn: Msn::from_low_bits((numbers[0] >> 8) as u32),
    };
    let ext = match opcode {
        Opcode::ReadResponseMiddle => Extension::Empty,
        Opcode::AtomicAcknowledge => {
            Extension::AethAtomicAck(aeth, AtomicAckEth { original: numbers[1] })
        }
        _ => Extension::Aeth(aeth),
    };
    let psn = Psn::from_low_bits((numbers[0] >> 32) as u32);
    (Bth::new(opcode, Qpn::from_low_bits(7), psn), ext, *[0, 1, 256].choose(rng).expect("three"))
}

/// Two million forged responses, about two hundred of which hit what is outstanding by chance.
//= [comp.msn] [comp.bad-response]
#[test]
fn forged_responses_do_not_end_a_busy_connection() {
    let seed = warpverbs_dev::number("WARPVERBS_SEED").unwrap_or(0x5eed_0009);
    println!("WARPVERBS_SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let config = Config { window: 2048, send_depth: 2048, max_rd_atomic: 16, ..config() };
    let config = Config { max_dest_rd_atomic: 16, window_bytes: 1 << 24, ..config };
    let mut pair = [Node::new(&config, 1 << 16), Node::new(&config, 1 << 16)];
    for id in 0..1500 {
        let op = match id % 100 {
            99 => Op::FetchAdd { remote: REMOTE, add: 1 },
            _ => Op::Write(Remote { addr: BASE + 8, rkey: RKEY }),
        };
        assert!(pair[0].post(Request::new(WrId(id), op, 8), vec![1; 8]));
    }
    let sent: Vec<_> = std::iter::from_fn(|| pair[0].transmit(0)).collect();
    assert!(sent.len() > 1000, "{} packets outstanding", sent.len());
    for _ in 0..2_000_000 {
        let (bth, ext, len) = forged(&mut rng);
        let Node { connection, memory, .. } = &mut pair[0];
        let place = connection.handle_packet(Instant::from_nanos(1), &bth, &ext, len, memory);
        assert_eq!((place, connection.state()), (Place::Nothing, State::ReadyToSend));
    }
    let stats = *pair[0].connection.stats();
    assert_eq!(stats.ghosts + stats.implausible, 2_000_000);
    assert!(stats.implausible > 50, "{stats:?}");
    // The peer's real responses count as ever.
    sent.iter().for_each(|packet| pair[1].deliver(2, packet));
    while pair[0].completions.len() < 1500 {
        for (from, to) in [(1, 0), (0, 1)] {
            let packets: Vec<_> = std::iter::from_fn(|| pair[from].transmit(3)).collect();
            packets.iter().for_each(|packet| pair[to].deliver(3, packet));
        }
    }
    let ok = |done: &Completion| matches!(done, Completion::Request { result: Ok(()), .. });
    assert!(pair[0].completions.iter().all(ok));
    assert_eq!((pair[0].completions.len(), pair[1].memory.atomics), (1500, 15));
}

#[test]
fn the_fuzzers_corpus_passes() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/corpus/rc_packets");
    let paths = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let ran = paths.map(|path| packets(&std::fs::read(path).unwrap())).count();
    assert!(ran > 0, "no corpus");
}
