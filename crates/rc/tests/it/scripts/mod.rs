//! Packet scripts: one end of a connection, the script plays its owner and its peer.
//!
//! ```text
//! config mtu=256 retry=1      attributes that are not usual; first line, optional
//! post 1 write len=600 at=0   the owner posts a request (`fence` and `solicited` may follow)
//! receive 5 room=512          the owner posts a receive
//! > RDMA WRITE First psn=0 …  the connection sends exactly this packet next
//! > nothing                   it has nothing to send
//! < Acknowledge psn=2 ack …   the peer sends this packet
//! + 5000                      this many nanoseconds pass
//! complete 1 ok               the next completion
//! received 5 Send len=8       likewise, of a receive
//! timer 4096 | timer none     nanoseconds until the next timer
//! memory at=0 len=8 byte=7    what the region holds; `buffer 1 …` for a request, `taken 5 …`
//! state Error                 the state of the connection
//! ```
//! At the end nothing may be left to send or to complete.

mod line;

use self::line::{Fields, packet, show};
use crate::common::pair::Node;
use std::time::Duration;
use warpverbs_rc::{
    AckTimeout, Completion, Config, Need, Op, Peer, Received, ReceivedKind, Remote, Request, WrId,
};
use warpverbs_wire::{
    Checks, Envelope, Ip, Ipv4, Mtu, Packet, Psn, Qpn, Rkey, RnrTimer, Transport, Udp,
};

struct Script {
    node: Node,
    now: u64,
}

fn config(fields: &Fields<'_>) -> Config {
    let mut config = Config::new(Qpn::from_low_bits(7));
    config.mtu = Mtu::B256;
    config.early_resend = fields.number("early").map(Duration::from_nanos);
    let byte = |name, value: &mut u8| *value = fields.number(name).map_or(*value, |n| n as u8);
    byte("retry", &mut config.retry);
    byte("rnr_retry", &mut config.rnr_retry);
    byte("max_rd_atomic", &mut config.max_rd_atomic);
    byte("max_dest_rd_atomic", &mut config.max_dest_rd_atomic);
    let word = |name, value: &mut u32| *value = fields.number(name).map_or(*value, |n| n as u32);
    word("window", &mut config.window);
    word("read_chunk", &mut config.read_chunk);
    word("write_split", &mut config.write_split);
    word("ack_interval", &mut config.ack_interval);
    let psn = |name| Psn::from_low_bits(fields.number(name).unwrap_or(0) as u32);
    (config.sq_psn, config.rq_psn) = (psn("sq_psn"), psn("rq_psn"));
    if let Some(code) = fields.number("timeout") {
        config.timeout = AckTimeout::from_code(code as u8).expect("a code below 32");
    }
    if let Some(code) = fields.number("rnr_timer") {
        config.min_rnr_timer = RnrTimer::from_code(code as u8);
    }
    config
}

fn op(kind: &str, fields: &Fields<'_>) -> Op {
    let imm = || fields.need("imm") as u32;
    let (va, rkey) = (|| fields.va(), fields.rkey());
    match kind {
        "send" => Op::Send,
        "send_imm" => Op::SendImm(imm()),
        "send_inv" => Op::SendInvalidate(Rkey(fields.need("invalidate") as u32)),
        "write" => Op::Write(Remote { addr: va(), rkey }),
        "write_imm" => Op::WriteImm(Remote { addr: va(), rkey }, imm()),
        "read" => Op::Read(Remote { addr: va(), rkey }),
        "fetch_add" => {
            Op::FetchAdd { remote: Remote { addr: va(), rkey }, add: fields.need("add") }
        }
        "compare_swap" => Op::CompareSwap {
            remote: Remote { addr: va(), rkey },
            swap: fields.need("swap"),
            compare: fields.need("compare"),
        },
        other => panic!("no operation {other}"),
    }
}

fn show_completion(completion: &Completion) -> String {
    match completion {
        Completion::Request { id, result: Ok(()) } => format!("complete {} ok", id.0),
        Completion::Request { id, result: Err(status) } => format!("complete {} {status:?}", id.0),
        Completion::Receive { id, result: Err(status) } => format!("received {id} {status:?}"),
        Completion::Receive { id, result: Ok(Received { kind, len, solicited }) } => {
            let kind = match kind {
                ReceivedKind::Send => "Send".into(),
                ReceivedKind::SendImm(imm) => format!("SendImm imm={imm:#x}"),
                ReceivedKind::SendInvalidate(key) => format!("SendInvalidate key={:#x}", key.0),
                ReceivedKind::WriteImm(imm) => format!("WriteImm imm={imm:#x}"),
            };
            let solicited = if *solicited { " solicited" } else { "" };
            format!("received {id} {kind} len={len}{solicited}")
        }
    }
}

impl Script {
    fn new(first: &str) -> Self {
        let words = first.strip_prefix("config").unwrap_or("").split_whitespace().collect();
        let fields = Fields(words);
        let mut node = Node::new(&config(&fields), 4096);
        node.memory.counts = fields.flag("counts");
        Self { node, now: 0 }
    }

    fn step(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words: Vec<&str> = rest.split_whitespace().collect();
        let number = || words[0].parse::<u64>().expect("a number");
        let fields = Fields(words.clone());
        match word {
            "config" => {}
            "post" => self.post(number(), words[1], &fields),
            "receive" => {
                self.node.memory.post(number(), fields.need("room") as usize);
                self.node.connection.receive_available();
            }
            ">" => assert_eq!(self.sent(), rest, "packet sent"),
            "<" => self.deliver(rest),
            "+" => self.wait(number()),
            "complete" | "received" => assert_eq!(self.completed(), line, "completion"),
            "timer" => assert_eq!(self.timer(), rest, "timer"),
            "state" => assert_eq!(self.node.connection.state().to_string(), rest),
            "memory" => {
                let range = self.node.memory.range(fields.va(), fields.need("len") as u32);
                check_bytes(&self.node.memory.bytes[range], &fields);
            }
            "buffer" => {
                check_part(&self.node.buffers[&WrId(number())], &fields);
            }
            "taken" => check_part(&self.node.memory.taken[&number()], &fields),
            "atomics" => assert_eq!(u64::from(self.node.memory.atomics), number()),
            "slow_atomics" => self.node.memory.slow_atomics = number() as u32,
            "fail_response" => {
                let psn = Psn::from_low_bits(number() as u32);
                self.node.connection.fail_response(psn);
            }
            "revoke" => self.node.memory.revoked = true,
            "break_receives" => self.node.memory.broken_receives = true,
            "refuse" => self.node.memory.refuse = vec![Need::Write, Need::Read, Need::Atomic],
            "invalidatable" => {
                self.node.memory.invalidatable = vec![Rkey(fields.need("key") as u32)]
            }
            "drain" => self.node.connection.drain().expect("may drain"),
            "resume" => self.node.connection.resume().expect("may resume"),
            "fail_request" => {
                let status = warpverbs_rc::Status::LocalProtection;
                self.node.connection.fail_request(WrId(number()), status);
            }
            other => panic!("no command {other}"),
        }
    }

    fn post(&mut self, id: u64, kind: &str, fields: &Fields<'_>) {
        let len = fields.number("len").unwrap_or(8) as u32;
        let mut request = Request::new(WrId(id), op(kind, fields), len);
        request.fence = fields.flag("fence");
        request.solicited = fields.flag("solicited");
        assert!(self.node.post(request, vec![0xdd; len as usize]), "post {id} refused");
    }

    fn sent(&mut self) -> String {
        let Some(bytes) = self.node.transmit(self.now) else { return "nothing".into() };
        let packet = Packet::parse(&bytes, &Checks::STRICT).expect("our own packet");
        let Transport { bth, ext, payload } = packet.transport;
        show(&bth, &ext, payload.len())
    }

    fn deliver(&mut self, line: &str) {
        let (bth, ext, payload) = packet(line);
        let ip = Ip::V4(Ipv4::new([10, 0, 0, 2].into(), [10, 0, 0, 1].into()));
        let transport = Transport { bth, ext, payload: &payload };
        let packet = Packet { envelope: Envelope { ip, udp: Udp { src_port: 0xc000 } }, transport };
        let mut bytes = vec![0; packet.len()];
        packet.emit(&mut bytes).expect("a packet that can be sent");
        self.node.deliver(self.now, &bytes);
    }

    fn wait(&mut self, nanos: u64) {
        self.now += nanos;
        self.node
            .connection
            .handle_timeout(warpverbs_rc::Instant::from_nanos(self.now), Peer::Unknown);
    }

    fn completed(&mut self) -> String {
        self.node.poll_completions();
        match self.node.completions.is_empty() {
            true => "nothing completed".into(),
            false => show_completion(&self.node.completions.remove(0)),
        }
    }

    fn timer(&self) -> String {
        match self.node.connection.poll_timeout() {
            None => "none".into(),
            Some(at) => (at.as_nanos() - self.now).to_string(),
        }
    }
}

fn check_part(bytes: &[u8], fields: &Fields<'_>) {
    let start = fields.number("at").unwrap_or(0) as usize;
    check_bytes(&bytes[start..start + fields.need("len") as usize], fields);
}

fn check_bytes(bytes: &[u8], fields: &Fields<'_>) {
    let byte = fields.need("byte") as u8;
    assert!(bytes.iter().all(|found| *found == byte), "expected all {byte:#x}: {bytes:x?}");
}

fn run(text: &str) {
    let lines = || {
        let numbered = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
        numbered.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
    };
    let mut script = Script::new(lines().next().map_or("", |(_, line)| line));
    for (number, line) in lines() {
        println!("{number}: {line}");
        script.step(line);
    }
    assert_eq!(script.sent(), "nothing", "at the end");
    assert_eq!(script.completed(), "nothing completed", "at the end");
}

#[test]
fn every_script_runs() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/scripts/cases");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() > 20, "only {} scripts found", paths.len());
    let mut failed = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        println!("== {}", path.display());
        if std::panic::catch_unwind(|| run(&text)).is_err() {
            failed.push(path.file_name().unwrap().to_string_lossy().into_owned());
        }
    }
    assert!(
        failed.is_empty(),
        "scripts that failed, see the last line printed of each: {failed:?}"
    );
}
