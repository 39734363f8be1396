//! Tests two NICs against each other with a list of cases: every operation, sizes around the path
//! MTU, and requests that must be refused. One program runs on each side; they talk over TCP.

mod case;
mod play;
mod rate;
mod report;
mod side;
mod talk;

use anyhow::{Context as _, Result, ensure};
use case::Traits;
use clap::{Parser, Subcommand};
use play::Row;
use report::Report;
use side::{Rdma, Side, Soft};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use talk::{Hello, Next, Talk};
use warpverbs::transport::NicChoice;

/// The TCP port of the two programs, unless another is given.
const PORT: u16 = 7471;

/// Two RoCEv2 NICs go through a list of cases together.
#[derive(Parser)]
#[command(name = "warpverbs-interop")]
pub struct Flags {
    /// The NIC of this side: `soft`, or an RDMA device such as `rxe0`.
    #[arg(long)]
    nic: String,
    /// Address of the interface to use.
    #[arg(long)]
    bind: IpAddr,
    /// TCP port of the program that serves.
    #[arg(long, default_value_t = PORT)]
    port: u16,
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Waits for the other program and follows it.
    Serve,
    /// Goes through the cases with the program at `host`, and prints the results.
    Run {
        /// Address of the program that serves.
        host: IpAddr,
        /// Path MTUs, bytes.
        #[arg(long, value_delimiter = ',', default_value = "1024,4096")]
        mtu: Vec<u32>,
        /// The network loses packets: only what must work is tried.
        #[arg(long)]
        lossy: bool,
        /// A file that gets every case as JSON.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
    /// Waits for a program that measures, and is written to.
    RateServe,
    /// Measures WRITEs to the program at `host`.
    Rate {
        /// Address of the program that serves.
        host: IpAddr,
        #[command(flatten)]
        plan: rate::Plan,
    },
}

/// Connections on which something went wrong, after which no more are tried: each may take minutes.
const ENOUGH: u32 = 5;

/// This program's part.
///
/// # Errors
/// The two programs do not meet, or a case did not end as it must.
pub fn run(flags: &Flags) -> Result<()> {
    let meet = |host| SocketAddr::new(host, flags.port);
    let (nic, bind) = (flags.nic.as_str(), flags.bind);
    match &flags.role {
        Role::RateServe => rate::serve(nic, bind, &mut Talk::accept(meet(bind))?),
        Role::Rate { host, plan } => rate::run(nic, bind, &mut Talk::connect(meet(*host))?, plan),
        // The NIC first, so that its errors are reported before we wait for the peer.
        Role::Serve => try_all(flags, open(flags)?, Talk::accept(meet(bind))?),
        Role::Run { host, .. } => try_all(flags, open(flags)?, Talk::connect(meet(*host))?),
    }
}

fn try_all(flags: &Flags, mut side: Box<dyn Side>, mut talk: Talk) -> Result<()> {
    // Keys of ours can be invalidated, and kernels post to us.
    let (soft, rxe) = (is_soft(&flags.nic), side.is_rxe());
    let own = Hello { nic: side.name(), invalidates: soft, rxe, kernels: soft };
    talk.send(own.clone())?;
    let theirs: Hello = talk.recv()?;
    match &flags.role {
        Role::Run { mtu, lossy, json, .. } => {
            let rows = lead(&mut *side, &mut talk, [&own, &theirs], mtu, *lossy)?;
            print(
                &Report { nics: [&own.nic, &theirs.nic], lossy: *lossy, rows: &rows },
                json.as_deref(),
            )
        }
        _ => {
            while let Some((asks, group)) = talk.recv::<Next>()? {
                play::group(&mut *side, &mut talk, &group, asks)?;
            }
            Ok(())
        }
    }
}

fn open(flags: &Flags) -> Result<Box<dyn Side>> {
    match is_soft(&flags.nic) {
        true => Ok(Box::new(Soft::new(flags.bind)?)),
        false => Ok(Box::new(Rdma::new(&flags.nic, flags.bind)?)),
    }
}

/// Whether a NIC is our own.
fn is_soft(nic: &str) -> bool {
    NicChoice::from(nic) == NicChoice::Soft
}

fn lead(
    side: &mut dyn Side,
    talk: &mut Talk,
    [own, theirs]: [&Hello; 2],
    mtus: &[u32],
    lossy: bool,
) -> Result<Vec<Row>> {
    let (mut rows, mut failed) = (Vec::new(), 0);
    for &mtu in mtus {
        for asks in [true, false] {
            let (requester, responder) = if asks { (own, theirs) } else { (theirs, own) };
            let traits = Traits {
                mtu,
                lossy,
                invalidates: responder.invalidates,
                asks_rxe: responder.rxe,
                kernels: requester.kernels,
            };
            for group in case::groups(&traits) {
                if failed == ENOUGH {
                    break;
                }
                talk.send(Some((!asks, group.clone())))?;
                let tried = play::group(side, talk, &group, asks)?;
                failed += u32::from(tried.iter().any(|row| !row.problems.is_empty()));
                let from = &requester.nic;
                rows.extend(tried.into_iter().map(|row| Row { from: from.clone(), ..row }));
            }
        }
    }
    talk.send(Next::None)?;
    Ok(rows)
}

fn print(report: &Report<'_>, json: Option<&Path>) -> Result<()> {
    if let Some(file) = json {
        let text = serde_json::to_string(report)?;
        std::fs::write(file, text + "\n").with_context(|| file.display().to_string())?;
    }
    println!("{}", report.text());
    let wrong = report.rows.iter().filter(|row| !row.problems.is_empty()).count();
    ensure!(wrong == 0, "{wrong} of {} cases went wrong", report.rows.len());
    println!("{} cases, all as they must be", report.rows.len());
    Ok(())
}
