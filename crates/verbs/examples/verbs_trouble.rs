//! Asks an RDMA device for more than it has, or loses it, and says what came of it. Nothing here
//! may abort, hang, or leave anything behind.
//!
//! ```console
//! $ cargo run -p warpverbs-verbs --example verbs_trouble -- exhaust qps
//! ```

use anyhow::{Result, bail, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use std::time::{Duration, Instant};
use warpverbs_mem::{Access, HostBuf};
use warpverbs_verbs::{
    AsyncEvent, Completion, Context, Cq, Data, Mr, Mtu, Op, Path, Pd, PortState, Qp, QpAttrs,
    QpOptions, QpState, Registration, Remote, SendFlags, SendList, Verbs, VerbsError,
};

/// Trouble with an RDMA device.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    trouble: Trouble,
    /// RDMA device; the first one otherwise
    #[arg(long, global = true)]
    device: Option<String>,
}

#[derive(Subcommand)]
enum Trouble {
    /// Makes objects until there are no more, frees them, and makes one again
    Exhaust {
        /// Which
        what: What,
    },
    /// Registers this many bytes
    Register {
        /// Bytes
        bytes: usize,
    },
    /// Writes from one QP to another of the device, freeing objects in changing orders while work is
    /// in flight
    Load {
        /// Times
        rounds: u32,
    },
    /// Writes until the port has lost its link
    Lose,
    /// Writes for some time, whatever becomes of the device, then frees everything
    Outlive {
        /// Seconds
        seconds: u64,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    Qps,
    Cqs,
    Pds,
    Mrs,
}

const RIGHTS: Access = Access::all().difference(Access::INVALIDATE);
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    let args = Args::parse();
    let context = open(args.device.as_deref())?;
    match args.trouble {
        Trouble::Exhaust { what } => exhaust(&context, what)?,
        Trouble::Register { bytes } => {
            let region = HostBuf::region(bytes)?;
            drop(Mr::register(&Pd::new(&context)?, &region, Registration::new(RIGHTS))?);
            println!("registered {bytes} bytes");
        }
        Trouble::Load { rounds } => load(&context, rounds)?,
        Trouble::Lose => lose(&context)?,
        Trouble::Outlive { seconds } => outlive(&context, Duration::from_secs(seconds))?,
    }
    Ok(())
}

fn open(name: Option<&str>) -> Result<Context> {
    let verbs = Verbs::load()?;
    let device = match name {
        Some(name) => verbs.device(name)?,
        None => match verbs.devices()?.into_iter().next() {
            Some(device) => device,
            None => bail!("no RDMA device: {}", verbs.why_no_device()),
        },
    };
    Ok(device.open()?)
}

fn exhaust(context: &Context, what: What) -> Result<()> {
    let (pd, cq) = (Pd::new(context)?, Cq::new(context, 1)?);
    let region = HostBuf::region(4096)?;
    let make = || -> Result<Box<dyn Send>, VerbsError> {
        Ok(match what {
            What::Qps => {
                let mut options = QpOptions::new(&cq);
                (options.caps.max_send_wr, options.caps.max_recv_wr) = (1, 1);
                Box::new(Qp::new(&pd, &options)?)
            }
            What::Cqs => Box::new(Cq::new(context, 1)?),
            What::Pds => Box::new(Pd::new(context)?),
            What::Mrs => Box::new(Mr::register(&pd, &region, Registration::new(RIGHTS))?),
        })
    };
    let mut all = Vec::new();
    let end = loop {
        match make() {
            Ok(object) => all.push(object),
            Err(error) => break error,
        }
        ensure!(all.len() < 2_000_000, "the device has no end of them");
    };
    println!("after {}: {end}", all.len());
    all.clear();
    drop(make()?);
    println!("freed, and made one again");
    Ok(())
}

/// Two connected QPs of one device, and memory.
struct Pair {
    one: Qp,
    other: Qp,
    cq: Cq,
    mr: Mr,
}

impl Pair {
    fn new(context: &Context) -> Result<Self> {
        let (pd, cq) = (Pd::new(context)?, Cq::new(context, 256)?);
        let mr = Mr::register(&pd, &HostBuf::region(1 << 16)?, Registration::new(RIGHTS))?;
        let make = || Qp::new(&pd, &QpOptions::new(&cq));
        let pair = Self { one: make()?, other: make()?, cq, mr };
        let gid = context.choose_gid(1)?.entry;
        let path = Path::roce(1, u8::try_from(gid.index)?, gid.gid);
        for (own, peer) in [(&pair.one, &pair.other), (&pair.other, &pair.one)] {
            own.modify(QpState::Init, &QpAttrs::init(1, RIGHTS))?;
            own.modify(QpState::Rtr, &QpAttrs::rtr(path, Mtu::B1024, peer.qpn(), 0))?;
            own.modify(QpState::Rts, &QpAttrs::rts(0))?;
        }
        Ok(pair)
    }

    /// Posts `count` WRITEs of half the memory.
    fn write(&self, count: u64) -> Result<(), VerbsError> {
        let half = (self.mr.region().len() / 2) as u32;
        let remote = Remote::new(self.mr.region().addr() + u64::from(half), self.mr.rkey());
        let mut list = SendList::new(count as usize, count as usize, 0);
        for id in 0..count {
            let sges = [self.mr.sge(0, half)?];
            list.push(id, Op::Write(remote), Data::Sges(&sges), SendFlags::SIGNALED)?;
        }
        Ok(self.one.post_send(&mut list)?)
    }
}

fn load(context: &Context, rounds: u32) -> Result<()> {
    for round in 0..rounds {
        let Pair { one, other, cq, mr } = {
            let pair = Pair::new(context)?;
            pair.write(64)?;
            pair
        };
        let mut objects: [Option<Box<dyn Send>>; 4] =
            [Some(Box::new(one)), Some(Box::new(other)), Some(Box::new(cq)), Some(Box::new(mr))];
        // All orders of four, again and again.
        for step in 0..4 {
            let at = (round / [1, 4, 12, 24][step] + step as u32) as usize % 4;
            objects[at] = None;
        }
        objects.fill_with(|| None);
    }
    println!("{rounds} rounds");
    Ok(())
}

fn lose(context: &Context) -> Result<()> {
    let pair = Pair::new(context)?;
    let mut out = [Completion::default(); 64];
    println!("writing");
    let start = Instant::now();
    loop {
        ensure!(start.elapsed() < LIMIT, "the port still has its link after {LIMIT:?}");
        let posted = pair.write(1);
        let polled = pair.cq.poll(&mut out).map(|count| out[..count].to_vec());
        let event = context.next_event(Duration::from_millis(1))?;
        let bad = polled.as_ref().ok().and_then(|all| all.iter().find(|c| !c.is_success()));
        if let Some(event) = event {
            println!("event: {event:?}");
            if matches!(event, AsyncEvent::Port { active: false, .. }) {
                break;
            }
        }
        if let Some(bad) = bad {
            println!("completion: {}", bad.status());
        }
        if let Err(error) = posted {
            println!("post: {error}");
        }
        polled?;
    }
    let state = context.port(1)?.state;
    ensure!(state != PortState::Active, "the port is active all the same");
    println!("then: {state:?}");
    Ok(())
}

/// Soft-RoCE cannot take itself away from a program: its removal waits, and the program does not
/// notice. Hardware drivers can, and then there is an event and calls fail.
fn outlive(context: &Context, time: Duration) -> Result<()> {
    let pair = Pair::new(context)?;
    let mut out = [Completion::default(); 64];
    println!("writing");
    let (start, mut done) = (Instant::now(), 0);
    while start.elapsed() < time {
        if let Some(event) = context.next_event(Duration::ZERO)? {
            println!("event: {event:?}");
            if event == AsyncEvent::DeviceFatal {
                break;
            }
        }
        pair.write(1)?;
        let ended = loop {
            let count = pair.cq.poll(&mut out)?;
            if count > 0 {
                break count;
            }
            ensure!(start.elapsed() < time + LIMIT, "a WRITE does not end");
        };
        ensure!(out[0].is_success(), "{}", out[0].status());
        done += ended;
    }
    ensure!(done > 0, "nothing was written");
    println!("wrote to the end, {}", pair.one.state()?);
    drop(pair);
    println!("freed");
    Ok(())
}
