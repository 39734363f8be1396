//! Two hosts with RDMA devices: one starts this, the other starts it with the first one's name.
//! Messages go to and fro, then every one-sided operation is tried, and every byte is compared.
//!
//! ```console
//! host1$ cargo run --release -p warpverbs-verbs --example verbs_ping_pong
//! host2$ cargo run --release -p warpverbs-verbs --example verbs_ping_pong -- host1
//! ```

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};
use warpverbs_mem::{Access, HostBuf};
use warpverbs_verbs::{
    CompChannel, Completion, Context, Cq, CqOptions, Data, Gid, LinkLayer, Mr, Mtu, Op, Path, Pd,
    Qp, QpAttrs, QpCaps, QpOptions, QpState, RecvList, Registration, Remote, SendFlags, SendList,
    Verbs, WcOpcode,
};

/// Ping-pong over RDMA; without a host, waits for the other side.
#[derive(Parser)]
struct Args {
    /// The other side, if it was started first
    host: Option<String>,
    /// RDMA device; the first one with an active port otherwise
    #[arg(long)]
    device: Option<String>,
    /// TCP port where both sides meet
    #[arg(short = 'p', long, default_value_t = 18515)]
    tcp: u16,
    /// Round trips
    #[arg(short = 'n', long, default_value_t = 1000)]
    iterations: u32,
    /// Bytes of a message
    #[arg(short, long, default_value_t = 1024)]
    size: u32,
    /// Sleep until a completion comes, instead of polling
    #[arg(long)]
    events: bool,
}

const LIMIT: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(1);
const RIGHTS: Access = Access::all().difference(Access::INVALIDATE);

struct Side {
    qp: Qp,
    cq: Cq,
    channel: Option<CompChannel>,
    mr: Mr,
    context: Context,
    size: u32,
}

/// The address of one side, for the other.
#[derive(Debug)]
struct Address {
    qpn: u32,
    psn: u32,
    lid: u16,
    gid: Gid,
    mtu: usize,
    memory: Remote,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let side = Side::new(&args)?;
    let mut line = meet(&args)?;
    let gid = side.context.choose_gid(1)?;
    println!("{}: {}", side.context.device().name(), gid.why);
    let port = side.context.port(1)?;
    let own = Address {
        qpn: side.qp.qpn(),
        psn: std::process::id() & 0xff_ffff,
        lid: port.lid,
        gid: gid.entry.gid,
        mtu: port.active_mtu.map_or(1024, Mtu::bytes),
        memory: Remote::new(side.mr.region().addr(), side.mr.rkey()),
    };
    let peer = Address::exchange(&mut line, &own)?;
    side.qp.modify(QpState::Init, &QpAttrs::init(1, RIGHTS))?;
    let path = match port.link_layer {
        LinkLayer::InfiniBand => Path::infiniband(1, peer.lid),
        _ => Path::roce(1, u8::try_from(gid.entry.index)?, peer.gid),
    };
    let mtu = Mtu::from_bytes(own.mtu.min(peer.mtu)).context("the other side's MTU")?;
    side.qp.modify(QpState::Rtr, &QpAttrs::rtr(path, mtu, peer.qpn, peer.psn))?;
    side.qp.modify(QpState::Rts, &QpAttrs::rts(own.psn))?;
    side.receive()?;
    sync(&mut line)?;
    let (first, count) = (args.host.is_some(), args.iterations);
    let took = side.ping_pong(first, count)?;
    let micros = took.as_secs_f64() * 1e6 / f64::from(count) / 2.0;
    println!(
        "{count} round trips of {} bytes, MTU {}: {micros:.2} µs one way",
        side.size,
        mtu.bytes()
    );
    sync(&mut line)?;
    if first {
        side.one_sided(peer.memory)?;
        println!("WRITE, inline WRITE, READ, FETCH_ADD and COMPARE_SWAP moved the right bytes");
    }
    sync(&mut line)?;
    println!("passed");
    Ok(())
}

impl Side {
    fn new(args: &Args) -> Result<Self> {
        let verbs = Verbs::load()?;
        let device = match &args.device {
            Some(name) => verbs.device(name)?,
            None => match verbs.devices()?.into_iter().next() {
                Some(device) => device,
                None => bail!("no RDMA device: {}", verbs.why_no_device()),
            },
        };
        let context = device.open()?;
        let pd = Pd::new(&context)?;
        let channel = args.events.then(|| CompChannel::new(&context)).transpose()?;
        let options = CqOptions::new(64);
        let options = match &channel {
            Some(channel) => options.channel(channel, 0),
            None => options,
        };
        let cq = Cq::with(&context, &options)?;
        let region = HostBuf::region(3 * args.size.max(64) as usize)?;
        let mr = Mr::register(&pd, &region, Registration::new(RIGHTS))?;
        let options = QpOptions::new(&cq);
        let caps = QpCaps { max_inline: 16, ..options.caps };
        let qp = Qp::new(&pd, &QpOptions { caps, ..options })?;
        Ok(Self { qp, cq, channel, mr, context, size: args.size.max(64) })
    }

    /// Posts a receive into the second third of the memory.
    fn receive(&self) -> Result<()> {
        let mut list = RecvList::new(1, 1);
        list.push(0, &[self.mr.sge(self.size.into(), self.size)?])?;
        Ok(self.qp.post_recv(&mut list)?)
    }

    fn post(&self, op: Op, data: Data<'_>) -> Result<()> {
        let mut list = SendList::new(1, 1, 16);
        list.push(1, op, data, SendFlags::SIGNALED)?;
        Ok(self.qp.post_send(&mut list)?)
    }

    /// The next completion, which must be a success.
    fn completion(&self) -> Result<Completion> {
        let start = Instant::now();
        let mut asked = start;
        loop {
            if let Some(completion) = self.poll()? {
                return Ok(completion);
            }
            ensure!(start.elapsed() < LIMIT, "no completion within {LIMIT:?}");
            // A side that only waits for a message does not learn that the peer has died.
            if asked.elapsed() > PATIENCE {
                self.ask()?;
                asked = Instant::now();
            }
            if let Some(channel) = &self.channel {
                self.cq.arm(false)?;
                // A completion that came before the CQ was armed makes no event.
                if let Some(completion) = self.poll()? {
                    return Ok(completion);
                }
                channel.wait(PATIENCE)?;
            }
        }
    }

    fn poll(&self) -> Result<Option<Completion>> {
        let mut out = [Completion::default()];
        if self.cq.poll(&mut out)? == 0 {
            return Ok(None);
        }
        ensure!(out[0].is_success(), "{}: {:?}", out[0].status(), out[0]);
        Ok(Some(out[0]))
    }

    /// A WRITE of nothing, of which only a failure is told.
    fn ask(&self) -> Result<()> {
        let mut list = SendList::new(1, 0, 0);
        let nowhere = Op::Write(Remote::new(0, 0));
        list.push(2, nowhere, Data::Sges(&[]), SendFlags::empty())?;
        Ok(self.qp.post_send(&mut list)?)
    }

    /// The completion of the own send, or a message of the other side, which may overtake the
    /// acknowledgement of the send that it answers.
    fn either(&self, sending: &mut bool, arrived: &mut Option<Completion>) -> Result<()> {
        let completion = self.completion()?;
        match completion.opcode() {
            WcOpcode::Recv => {
                ensure!(arrived.is_none(), "{completion:?} behind {arrived:?}");
                *arrived = Some(completion);
            }
            _ => {
                ensure!(*sending, "{completion:?}, and nothing was being sent");
                *sending = false;
            }
        }
        Ok(())
    }

    fn ping_pong(&self, first: bool, count: u32) -> Result<Duration> {
        let (size, region) = (self.size, self.mr.region());
        let text = |round: u32| vec![round as u8 ^ 0x5a; size as usize];
        let send = |round| {
            region.write(0, &text(round))?;
            self.post(Op::SendImm(round), Data::Sges(&[self.mr.sge(0, size)?]))
        };
        let mut got = vec![0; size as usize];
        let (mut sending, mut arrived) = (false, None);
        let start = Instant::now();
        for round in 0..count {
            if first {
                send(round)?;
                sending = true;
            }
            let message = loop {
                match arrived.take() {
                    Some(message) => break message,
                    None => self.either(&mut sending, &mut arrived)?,
                }
            };
            ensure!(message.imm() == Some(round), "{message:?} in round {round}");
            region.read(size.into(), &mut got)?;
            ensure!(got == text(round), "wrong bytes in round {round}");
            self.receive()?;
            // Until then the device may send the memory again.
            while sending {
                self.either(&mut sending, &mut arrived)?;
            }
            if !first {
                send(round)?;
                sending = true;
            }
        }
        while sending {
            self.either(&mut sending, &mut arrived)?;
        }
        Ok(start.elapsed())
    }

    fn one_sided(&self, peer: Remote) -> Result<()> {
        let (size, region) = (self.size, self.mr.region());
        let at = |offset: u32| Remote { addr: peer.addr + u64::from(offset), ..peer };
        let run = |op, data: Data<'_>| self.post(op, data).and_then(|()| self.completion());
        let pattern: Vec<u8> = (0..size).map(|i| (i * 7 + 3) as u8).collect();
        region.write(0, &pattern)?;
        let sge = self.mr.sge(0, size)?;
        run(Op::Write(at(2 * size)), Data::Sges(&[sge]))?;
        run(Op::Write(at(2 * size)), Data::Inline(b"sixteen bytes..."))?;
        region.fill(0, size as usize, 0)?;
        run(Op::Read(at(2 * size)), Data::Sges(&[sge]))?;
        let mut got = vec![0; size as usize];
        region.read(0, &mut got)?;
        ensure!(got[..16] == *b"sixteen bytes..." && got[16..] == pattern[16..], "READ: {got:?}");
        let word = self.mr.sge(0, 8)?;
        run(Op::Write(at(0)), Data::Inline(&[0; 8]))?;
        for expected in 0..10u64 {
            run(Op::FetchAdd { remote: at(0), add: 1 }, Data::Sges(&[word]))?;
            let old = region.atomic_u64(0)?.load(std::sync::atomic::Ordering::Acquire);
            ensure!(old == expected, "FETCH_ADD brought {old}, expected {expected}");
        }
        let swap = |compare| Op::CompareSwap { remote: at(0), compare, swap: 77 };
        for (compare, expected) in [(9, 10u64), (10, 10), (10, 77)] {
            run(swap(compare), Data::Sges(&[word]))?;
            let old = region.atomic_u64(0)?.load(std::sync::atomic::Ordering::Acquire);
            ensure!(old == expected, "COMPARE_SWAP brought {old}, expected {expected}");
        }
        Ok(())
    }
}

type Line = BufReader<TcpStream>;

fn meet(args: &Args) -> Result<Line> {
    let stream = match &args.host {
        Some(host) => TcpStream::connect((host.as_str(), args.tcp)).context(host.clone())?,
        None => {
            TcpListener::bind((Ipv6Addr::UNSPECIFIED, args.tcp))
                .or_else(|_| TcpListener::bind(("0.0.0.0", args.tcp)))?
                .accept()?
                .0
        }
    };
    stream.set_read_timeout(Some(LIMIT))?;
    Ok(BufReader::new(stream))
}

/// Waits until the other side is here too.
fn sync(line: &mut Line) -> Result<()> {
    line.get_mut().write_all(b"ready\n")?;
    let mut text = String::new();
    line.read_line(&mut text)?;
    ensure!(text == "ready\n", "the other side ended");
    Ok(())
}

impl Address {
    fn exchange(line: &mut Line, own: &Self) -> Result<Self> {
        let Self { qpn, psn, lid, gid, mtu, memory } = own;
        let (addr, rkey) = (memory.addr, memory.rkey.0);
        writeln!(line.get_mut(), "{qpn} {psn} {lid} {gid} {mtu} {addr} {rkey}")?;
        let mut text = String::new();
        line.read_line(&mut text)?;
        let words: Vec<_> = text.split_whitespace().collect();
        let &[qpn, psn, lid, gid, mtu, addr, rkey] = &words[..] else {
            bail!("not an address: {text:?}")
        };
        Ok(Self {
            qpn: qpn.parse()?,
            psn: psn.parse()?,
            lid: lid.parse()?,
            gid: Gid(gid.parse::<Ipv6Addr>()?.octets()),
            mtu: mtu.parse()?,
            memory: Remote::new(addr.parse()?, rkey.parse()?),
        })
    }
}
