//! `perf tcp`: messages and one-sided writes over TCP sockets, beside UCX and a bare loop.

mod args;
mod bare;
mod case;
mod client;
mod row;
mod server;

use crate::output::Measured;
use crate::rig::ends::{Family, Place, Role, beside};
use crate::rig::plot::print_and_plot;
use anyhow::Result;
use args::{MeasureArgs, SideArgs};
use client::Client;
use server::Server;

/// Connections of device-memory TCP.
pub(super) struct Tcp;

impl Family for Tcp {
    const PORT: &'static str = "18517";
    type Server = SideArgs;
    type Client = MeasureArgs;
    type Local = MeasureArgs;
}

pub(super) fn run(role: &Role<Tcp>) -> Result<()> {
    match role {
        Role::Server(args) => {
            // The devices first, so that their errors are reported before a client is waited for.
            let server = Server::open(&args.own)?;
            args.serve(|talk| server.follow(talk))
        }
        Role::Client(args) => measure(&args.own, &args.place(), false),
        Role::Local(args) => {
            args.check()?;
            let flags = ["--gpu", &args.side.gpu];
            beside(&["perf", "tcp"], &flags, |place| measure(args, place, !args.alone))
        }
    }
}

fn measure(args: &MeasureArgs, place: &Place, local: bool) -> Result<()> {
    args.check()?;
    let mut client = Client::connect(args, place.connect()?)?;
    let (setting, mut rows) = (client.setting(), Vec::new());
    let end = client.measure(args, local, &mut rows);
    let end = client.finish(end);
    let findings = row::findings(&rows);
    let measured = Measured::new("perf tcp", setting, rows).with(findings);
    print_and_plot(&measured, end, &args.output)
}
