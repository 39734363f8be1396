//! `perf agent`: lists of blocks moved by agents, between two processes.

mod client;
mod exchange;
mod memory;
mod messages;
mod plan;
mod row;
mod server;

use crate::busy::Watch;
use crate::output::{Chosen, Measured, Setting};
use crate::rig::ends::{Family, Place, Role, beside};
use crate::rig::plot::print_and_plot;
use anyhow::Result;
use clap::Args;
use client::Client;
use memory::{Side, SideArgs};
use plan::MeasureArgs;

/// Agents of two processes.
pub(super) struct Agents;

impl Family for Agents {
    const PORT: &'static str = "18519";
    type Server = SideArgs;
    type Client = ClientArgs;
    type Local = LocalArgs;
}

/// Options of a client.
#[derive(Args)]
pub(super) struct ClientArgs {
    #[command(flatten)]
    side: SideArgs,
    #[command(flatten)]
    measure: MeasureArgs,
}

/// Options of both ends on one machine.
#[derive(Args)]
pub(super) struct LocalArgs {
    #[command(flatten)]
    ends: ClientArgs,
    /// The GPU of the second process [default: as --gpu]
    #[arg(long)]
    peer_gpu: Option<String>,
}

pub(super) fn run(role: &Role<Agents>) -> Result<()> {
    match role {
        Role::Server(args) => {
            // The devices first, so that their errors are reported before a client is waited for.
            let side = Side::open(&args.own, true)?;
            args.serve(|talk| server::follow(side, talk))
        }
        Role::Client(args) => measure(&args.own, &args.place()),
        Role::Local(args) => {
            args.ends.measure.plan()?;
            let SideArgs { gpu, nic, link, token } = &args.ends.side;
            let gpu = args.peer_gpu.as_ref().unwrap_or(gpu);
            let mut flags = vec!["--gpu", gpu, "--nic", nic, "--token", token];
            flags.extend(link.iter().flat_map(|link| ["--link", link]));
            beside(&["perf", "agent"], &flags, |place| measure(&args.ends, place))
        }
    }
}

fn measure(client: &ClientArgs, place: &Place) -> Result<()> {
    let args = &client.measure;
    let plan = args.plan()?;
    let side = Side::open(&client.side, false)?;
    let mut client = Client::connect(&side, args, place.connect()?)?;
    let (watch, mut rows, mut notes) = (Watch::start(), Vec::new(), Vec::new());
    let end = client.measure(&plan, &mut rows, &mut notes);
    let end = client.finish(end);
    let setting = Setting {
        gpu: Some(Chosen::new(side.gpu.info().name.clone(), &side.why)),
        nic: match side.nics() {
            [nic, others @ ..] => {
                let others = others.iter().map(|nic| format!(", {}", nic.info().name));
                Chosen::new(others.fold(nic.info().name.clone(), |all, one| all + &one), nic.why())
            }
            [] => Chosen::new("none".to_owned(), "without --nic there is no path by the network"),
        },
    };
    let measured = Measured::new("perf agent", setting, rows).noting(notes).watched(&watch);
    print_and_plot(&measured, end, &args.output)
}
