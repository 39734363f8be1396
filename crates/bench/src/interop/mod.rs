//! Tests two NICs against each other with a list of cases: every operation, sizes around the path
//! MTU, and requests that must be refused. One program runs on each side; they talk over TCP.

mod case;
mod play;
mod report;
mod side;
mod talk;

use crate::output::Measured;
use crate::print;
use crate::rig::ends::{AtPort, Family, Place, Role, beside};
use crate::rig::talk::only;
use anyhow::{Context as _, Result, ensure};
use case::Traits;
use clap::{Args, Parser};
use report::{Kind, Nics};
use side::{Rdma, Side, Soft};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use talk::{Hello, Item, LIMIT, Talk};
use warpverbs::transport::NicChoice;

/// Two NICs that go through the cases.
struct Interop;

impl Family for Interop {
    const PORT: &'static str = "7471";
    type Server = AtPort<NicArgs>;
    type Client = AtPort<RunArgs>;
    type Local = RunArgs;
}

/// Two RoCEv2 NICs go through a list of cases together.
#[derive(Parser)]
#[command(name = "warpverbs-interop")]
pub struct Flags {
    #[command(subcommand)]
    role: Role<Interop>,
}

/// The NIC of a side.
#[derive(Args)]
struct NicArgs {
    /// The NIC of this side: soft, or an RDMA device such as rxe0
    #[arg(long, default_value = "soft")]
    nic: String,
}

/// The cases.
#[derive(Args)]
struct RunArgs {
    #[command(flatten)]
    own: NicArgs,
    /// Path MTUs, bytes
    #[arg(long, value_delimiter = ',', default_value = "1024,4096")]
    mtu: Vec<u32>,
    /// The network loses packets: only what must work is tried
    #[arg(long)]
    lossy: bool,
    /// A file that gets every case as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Connections on which something went wrong, after which no more are tried: each may take minutes.
const ENOUGH: u32 = 5;

/// This program's part.
///
/// # Errors
/// The two programs do not meet, or a case did not end as it must.
pub fn run(flags: &Flags) -> Result<()> {
    match &flags.role {
        Role::Server(args) => args.serve(|talk| {
            let AtPort { udp_port, own } = &args.own;
            let (mut side, [..]) = meet(&own.nic, *udp_port, talk)?;
            loop {
                let next = talk.recv("group", LIMIT)?;
                match only!(talk, next, "group", Item::Next(next) => next) {
                    Some((asks, group)) => drop(play::group(&mut *side, talk, &group, asks)?),
                    None => return Ok(()),
                }
            }
        }),
        Role::Client(args) => {
            let AtPort { udp_port, own } = &args.own;
            lead(own, *udp_port, &args.place())
        }
        Role::Local(args) => beside(&[], &["--nic", &args.own.nic], |place| lead(args, 0, place)),
    }
}

/// Opens the NIC; what both programs say of theirs, the own one first.
fn meet(nic: &str, udp_port: u16, talk: &mut Talk) -> Result<(Box<dyn Side>, [Hello; 2])> {
    let ip: IpAddr = talk.local_ip()?.to_canonical();
    let soft = NicChoice::from(nic) == NicChoice::Soft;
    let side: Box<dyn Side> = match soft {
        true => Box::new(Soft::new(SocketAddr::new(ip, udp_port))?),
        false => Box::new(Rdma::new(nic, ip)?),
    };
    // Keys of ours can be invalidated, and kernels post to us.
    let own = Hello { nic: side.name(), invalidates: soft, rxe: side.is_rxe(), kernels: soft };
    talk.send(Item::Hello(own.clone()))?;
    let theirs = talk.recv("hello", LIMIT)?;
    let theirs = only!(talk, theirs, "hello", Item::Hello(hello) => hello);
    Ok((side, [own, theirs]))
}

/// Goes through the cases with a server, and prints how they ended.
fn lead(args: &RunArgs, udp_port: u16, place: &Place) -> Result<()> {
    let mut talk: Talk = place.connect()?;
    let (nics, kinds) = talk.failing(|talk| {
        let (mut side, both) = meet(&args.own.nic, udp_port, talk)?;
        let kinds = all(&mut *side, talk, &both, args)?;
        anyhow::Ok((both.map(|hello| hello.nic), kinds))
    })?;
    let (tried, wrong) = kinds.iter().fold((0, Vec::new()), |(tried, mut wrong), kind| {
        wrong.extend(kind.wrong());
        (tried + kind.tried.len(), wrong)
    });
    let count = kinds.iter().flat_map(|kind| &kind.tried).filter(|one| !one.is_right()).count();
    let measured = Measured::new("interop", Nics { nics, lossy: args.lossy }, kinds).noting(wrong);
    if let Some(file) = &args.json {
        std::fs::write(file, measured.json()? + "\n")
            .with_context(|| file.display().to_string())?;
    }
    let end = || {
        ensure!(count == 0, "{count} of {tried} cases went wrong");
        Ok(())
    };
    measured.print_up_to(end(), false)?;
    print::line(format_args!("{tried} cases, all as they must be"))
}

fn all(
    side: &mut dyn Side,
    talk: &mut Talk,
    [own, theirs]: &[Hello; 2],
    RunArgs { mtu, lossy, .. }: &RunArgs,
) -> Result<Vec<Kind>> {
    let (mut kinds, mut failed) = (Vec::<Kind>::new(), 0);
    for &mtu in mtu {
        for asks in [true, false] {
            let (requester, responder) = if asks { (own, theirs) } else { (theirs, own) };
            let traits = Traits {
                mtu,
                lossy: *lossy,
                invalidates: responder.invalidates,
                asks_rxe: responder.rxe,
                kernels: requester.kernels,
            };
            for group in case::groups(&traits) {
                if failed == ENOUGH {
                    break;
                }
                talk.send(Item::Next(Some((!asks, group.clone()))))?;
                let tried = play::group(side, talk, &group, asks)?;
                failed += u32::from(tried.iter().any(|(_, outcome)| !outcome.is_right()));
                for (case, outcome) in tried {
                    report::add(&mut kinds, &requester.nic, &group, (&case, outcome));
                }
            }
        }
    }
    talk.send(Item::Next(None))?;
    Ok(kinds)
}
