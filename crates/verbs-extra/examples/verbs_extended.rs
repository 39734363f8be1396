//! Extended CQs and QPs on a device of this machine: two of its QPs are connected to each other,
//! every operation is posted in batches and polled field by field, and every byte is compared.
//! Features that the device does not offer are printed, and have to be refused by name.
//!
//! ```console
//! $ cargo run -p warpverbs-verbs-extra --example verbs_extended
//! ```

use anyhow::{Context as _, Result, bail, ensure};
use clap::Parser;
use std::time::{Duration, Instant};
use warpverbs_mem::{Access, HostBuf};
use warpverbs_verbs::{
    Context, CqOptions, Data, LinkLayer, Mr, Mtu, Op, Path, Pd, QpAttrs, QpCaps, QpOptions,
    QpState, RecvList, Registration, Remote, SendFlags, Verbs, VerbsError, WcOpcode,
};
use warpverbs_verbs_extra::{
    Alternate, BatchError, CompletionFields, ExtendedCq, ExtendedQp, ExtraAttr, ExtraError,
    Migration, Offer, OnDemandMr, SendOps, alternate,
};

/// Extended CQs and QPs.
#[derive(Parser)]
struct Args {
    /// RDMA device; the first one otherwise
    #[arg(long)]
    device: Option<String>,
    /// Batches of the load at the end
    #[arg(short = 'n', long, default_value_t = 200)]
    batches: u64,
}

const RIGHTS: Access = Access::all().difference(Access::INVALIDATE);
const LIMIT: Duration = Duration::from_secs(60);
const NONE: SendFlags = SendFlags::empty();

fn main() -> Result<()> {
    let args = Args::parse();
    let verbs = Verbs::load()?;
    let device = match &args.device {
        Some(name) => verbs.device(name)?,
        None => match verbs.devices()?.into_iter().next() {
            Some(device) => device,
            None => bail!("no RDMA device: {}", verbs.why_no_device()),
        },
    };
    let context = device.open()?;
    let mut ring = Ring::new(&context)?;
    ring.alternate(&context)?;
    ring.connect(&context)?;
    ring.one_sided()?;
    ring.two_sided()?;
    ring.many_entries()?;
    ring.dropped()?;
    ring.load(args.batches)?;
    registrations(&context)?;
    println!("passed");
    Ok(())
}

/// A QP that is connected to itself, with its CQ and memory.
struct Ring {
    // QPs before the CQ that they complete in.
    qp: ExtendedQp,
    cq: ExtendedCq,
    mr: Mr,
}

/// Of a completion, what is compared.
type Ended = (u64, WcOpcode, Option<u32>, Option<u32>);

impl Ring {
    fn new(context: &Context) -> Result<Self> {
        let pd = Pd::new(context)?;
        let options = CqOptions::new(256);
        let cq = offered(context, CompletionFields::all(), |fields| {
            ExtendedCq::new(context, &options, fields)
        })?;
        ensure!(cq.fields().contains(CompletionFields::CLASSIC), "only {}", cq.fields());
        println!("completions with {}", cq.fields());
        let options = QpOptions::new(cq.cq());
        let caps = QpCaps { max_send_sge: 3, max_inline: 32, ..options.caps };
        let options = QpOptions { caps, ..options };
        let qp = ExtendedQp::new(&pd, &options, SendOps::all())?;
        println!("batches with {}", qp.ops());
        let mr = Mr::register(&pd, &HostBuf::region(1 << 16)?, Registration::new(RIGHTS))?;
        Ok(Self { qp, cq, mr })
    }

    fn path(context: &Context) -> Result<Path> {
        let gid = context.choose_gid(1)?.entry;
        Ok(Path::roce(1, u8::try_from(gid.index)?, gid.gid))
    }

    fn connect(&self, context: &Context) -> Result<()> {
        let (qp, path) = (self.qp.qp(), Self::path(context)?);
        qp.modify(QpState::Reset, &QpAttrs::default())?;
        qp.modify(QpState::Init, &QpAttrs::init(1, RIGHTS))?;
        qp.modify(QpState::Rtr, &QpAttrs::rtr(path, Mtu::B1024, qp.qpn(), 7))?;
        Ok(qp.modify(QpState::Rts, &QpAttrs::rts(7))?)
    }

    /// On Ethernet, Linux takes no alternate path, and the refusal says so.
    fn alternate(&self, context: &Context) -> Result<()> {
        if context.port(1)?.link_layer != LinkLayer::Ethernet {
            return Ok(());
        }
        let (qp, path) = (self.qp.qp(), Self::path(context)?);
        qp.modify(QpState::Init, &QpAttrs::init(1, RIGHTS))?;
        qp.modify(QpState::Rtr, &QpAttrs::rtr(path, Mtu::B1024, qp.qpn(), 7))?;
        let second = Some(Alternate { path, pkey_index: 0, timeout: 14 });
        let (rts, rearm) = (QpAttrs::rts(7), Some(Migration::Rearm));
        match alternate::modify(qp, QpState::Rts, &rts, second, rearm) {
            Err(VerbsError::Modify(error)) => {
                ensure!(error.to_string().contains("InfiniBand only"), "{error}");
                println!("{error}");
                Ok(())
            }
            other => bail!("an alternate path on Ethernet: {other:?}"),
        }
    }

    fn remote(&self, offset: u64) -> Remote {
        Remote::new(self.mr.region().addr() + offset, self.mr.rkey())
    }

    fn bytes(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut out = vec![0; len];
        self.mr.region().read(offset, &mut out)?;
        Ok(out)
    }

    fn word(&self, offset: u64) -> Result<u64> {
        Ok(u64::from_ne_bytes(self.bytes(offset, 8)?.try_into().ok().context("eight bytes")?))
    }

    fn receive(&self, id: u64, offset: u64) -> Result<()> {
        let mut list = RecvList::new(1, 1);
        list.push(id, &[self.mr.sge(offset, 64)?])?;
        Ok(self.qp.qp().post_recv(&mut list)?)
    }

    /// The next `count` completions, all of them successes.
    fn poll(&mut self, count: usize) -> Result<Vec<Ended>> {
        let (start, qpn, mut out) = (Instant::now(), self.qp.qp().qpn(), Vec::new());
        while out.len() < count {
            ensure!(start.elapsed() < LIMIT, "{} of {count} completions: {out:?}", out.len());
            let mut polling = self.cq.poll();
            while let Some(completion) = polling.next()? {
                ensure!(completion.status() == warpverbs_verbs::Status::Success, "{completion:?}");
                ensure!(completion.qpn() == Some(qpn), "{completion:?}");
                let opcode = completion.opcode();
                let came = matches!(opcode, WcOpcode::Recv | WcOpcode::RecvWriteImm);
                let bytes = completion.byte_len().filter(|_| came);
                out.push((completion.id(), opcode, bytes, completion.imm()));
            }
        }
        // A receive and the send that filled it end in either order.
        out.sort_by_key(|ended| ended.0);
        Ok(out)
    }

    fn one_sided(&mut self) -> Result<()> {
        let region = self.mr.region().clone();
        region.write(0, b"original")?;
        region.write(304, &7u64.to_ne_bytes())?;
        let [whole, read] = [(0, 8), (416, 8)].map(|(at, len)| self.mr.sge(at, len));
        let [old, swapped] = [400, 408].map(|at| self.mr.sge(at, 8));
        let (at100, at200, word) = (self.remote(100), self.remote(200), self.remote(304));
        let swap = Op::CompareSwap { remote: word, compare: 12, swap: 99 };
        let fence = SendFlags::FENCE | SendFlags::SIGNALED;
        let mut batch = self.qp.start()?;
        batch.push(1, Op::Write(at100), Data::Sges(&[whole?]), NONE)?;
        batch.push(2, Op::Write(at200), Data::Inline(b"inline"), NONE)?;
        batch.push(3, Op::Read(at100), Data::Sges(&[read?]), NONE)?;
        batch.push(4, Op::FetchAdd { remote: word, add: 5 }, Data::Sges(&[old?]), fence)?;
        batch.push(5, swap, Data::Sges(&[swapped?]), fence)?;
        batch.post()?;
        let done = [(4, WcOpcode::FetchAdd, None, None), (5, WcOpcode::CompareSwap, None, None)];
        let ended = self.poll(2)?;
        ensure!(ended == done, "{ended:?}");
        ensure!(self.bytes(100, 8)? == b"original", "WRITE: {:?}", self.bytes(100, 8)?);
        ensure!(self.bytes(200, 7)? == b"inline\0", "inline WRITE: {:?}", self.bytes(200, 7)?);
        ensure!(self.bytes(416, 8)? == b"original", "READ: {:?}", self.bytes(416, 8)?);
        let words = [self.word(400)?, self.word(408)?, self.word(304)?];
        ensure!(words == [7, 12, 99], "atomics: {words:?}");
        Ok(())
    }

    fn two_sided(&mut self) -> Result<()> {
        for id in 10..14 {
            self.receive(id, 1000 + 100 * (id - 10))?;
        }
        let (half, remote) = (self.mr.sge(0, 4)?, self.remote(500));
        let mut batch = self.qp.start()?;
        batch.push(1, Op::Send, Data::Sges(&[half]), NONE)?;
        batch.push(2, Op::SendImm(0xdead_beef), Data::Inline(b"immediate"), NONE)?;
        batch.push(3, Op::WriteImm(remote, 42), Data::Sges(&[half]), NONE)?;
        batch.push(4, Op::Send, Data::Sges(&[]), SendFlags::SIGNALED)?;
        batch.post()?;
        let expected = [
            (4, WcOpcode::Send, None, None),
            (10, WcOpcode::Recv, Some(4), None),
            (11, WcOpcode::Recv, Some(9), Some(0xdead_beef)),
            (12, WcOpcode::RecvWriteImm, Some(4), Some(42)),
            (13, WcOpcode::Recv, Some(0), None),
        ];
        let ended = self.poll(5)?;
        ensure!(ended == expected, "{ended:?}");
        let (first, second) = (self.bytes(1000, 4)?, self.bytes(1100, 9)?);
        ensure!(first == b"orig" && second == b"immediate", "{first:?}, {second:?}");
        ensure!(self.bytes(500, 4)? == b"orig", "WRITE with immediate data");
        Ok(())
    }

    /// Entries of different lengths, or the driver's refusal.
    fn many_entries(&mut self) -> Result<()> {
        self.mr.region().write(0, b"abcdefghijkl")?;
        let sges = [(8, 4), (4, 4), (0, 4)].map(|(at, len)| self.mr.sge(at, len));
        let [a, b, c] = sges;
        let (equal, unequal) = ([a?, b?, c?], [self.mr.sge(0, 1)?, self.mr.sge(2, 3)?]);
        let (there, beside) = (self.remote(600), self.remote(700));
        let mut batch = self.qp.start()?;
        batch.push(1, Op::Write(there), Data::Sges(&equal), SendFlags::SIGNALED)?;
        let taken = batch.push(2, Op::Write(beside), Data::Sges(&unequal), SendFlags::SIGNALED);
        batch.post()?;
        self.poll(1 + usize::from(taken.is_ok()))?;
        ensure!(self.bytes(600, 12)? == b"ijklefghabcd", "{:?}", self.bytes(600, 12)?);
        match taken {
            Ok(()) => ensure!(self.bytes(700, 4)? == b"acde", "{:?}", self.bytes(700, 4)?),
            Err(error) if error == BatchError::UnequalSges => println!("refused: {error}"),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// A batch that is dropped is not posted, and leaves the queue as it was.
    fn dropped(&mut self) -> Result<()> {
        let to = Op::Write(self.remote(800));
        for text in [b"never", b"after"] {
            let mut batch = self.qp.start()?;
            batch.push(1, to, Data::Inline(text), SendFlags::SIGNALED)?;
            if text == b"after" {
                batch.post()?;
            }
        }
        let ended = self.poll(1)?;
        ensure!(self.bytes(800, 5)? == b"after" && ended.len() == 1, "{ended:?}");
        Ok(())
    }

    /// Batches until the queue is full, polled a few at a time.
    fn load(&mut self, batches: u64) -> Result<()> {
        let (op, sge) = (Op::Write(self.remote(1 << 15)), self.mr.sge(0, 512)?);
        let room = u64::from(self.cq.cq().capacity());
        let (start, mut posted, mut ended, mut full) = (Instant::now(), 0, 0, 0);
        while ended < batches {
            ensure!(
                start.elapsed() < LIMIT,
                "{ended} of {posted} batches ended, {batches} were to be posted"
            );
            // Their completions must fit the CQ, too.
            while posted < batches && posted - ended < room {
                let mut batch = self.qp.start()?;
                for _ in 0..15 {
                    batch.push(0, op, Data::Sges(&[sge]), NONE)?;
                }
                batch.push(posted, op, Data::Sges(&[sge]), SendFlags::SIGNALED)?;
                match batch.post() {
                    Ok(()) => posted += 1,
                    // There is room when some have ended.
                    Err(_) if posted > ended => {
                        full += 1;
                        break;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            let mut polling = self.cq.poll();
            // Not all of them: the guard gives the rest back.
            for _ in 0..3 {
                let Some(completion) = polling.next()? else { break };
                ensure!(completion.id() == ended, "{completion:?}, expected {ended}");
                ended += 1;
            }
        }
        println!("{batches} batches of 16; the queue was full {full} times");
        Ok(())
    }
}

/// An object with `asked`, or with what the device offers of it.
fn offered<T>(
    context: &Context,
    asked: CompletionFields,
    make: impl Fn(CompletionFields) -> Result<T, ExtraError>,
) -> Result<T> {
    match make(asked) {
        Err(ExtraError::NotOffered { what: Offer::CompletionFields(fields), device }) => {
            ensure!(device == context.device().name(), "{device}");
            println!("{device} does not offer {fields}");
            Ok(make(asked - fields)?)
        }
        other => Ok(other?),
    }
}

/// Relaxed ordering, and memory that is paged in on demand if the device can.
fn registrations(context: &Context) -> Result<()> {
    let (pd, region) = (Pd::new(context)?, HostBuf::region(1 << 16)?);
    let relaxed = Registration::new(RIGHTS).relaxed_ordering(true);
    drop(Mr::register(&pd, &region, relaxed)?);
    let asked = OnDemandMr::register(&pd, &region, Registration::new(RIGHTS));
    match (ExtraAttr::of(context)?.on_demand, asked) {
        (Some(paging), Ok(mr)) => {
            println!("on-demand paging: {paging:?}, prefetch: {:?}", mr.prefetch(0, 4096));
        }
        (None, Err(error)) => {
            let lacks =
                matches!(&error, ExtraError::NotOffered { what: Offer::OnDemandPaging, .. });
            ensure!(lacks, "{error}");
            println!("refused: {error}");
        }
        (paging, outcome) => bail!("on-demand paging is {paging:?}, and {outcome:?}"),
    }
    Ok(())
}
