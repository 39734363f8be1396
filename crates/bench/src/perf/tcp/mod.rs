//! `perf tcp`: messages and one-sided writes over TCP sockets, beside UCX and a bare loop.

mod args;
mod bare;
mod case;
mod client;
mod row;
mod server;

use crate::rig::ends::{Family, Place, Role, beside};
use crate::rig::output::{Chosen, Measured, Setting};
use crate::rig::plot::print_and_plot;
use anyhow::Result;
use args::{MeasureArgs, SideArgs};
use client::Client;
use warpverbs::tcp::Config;
use warpverbs_meet::{Deadline, resolve};

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
        Role::Server(args) => server::run(args),
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
    let deadline = Deadline::after(place.wait);
    let address = resolve(&place.host, place.port, deadline)?[0];
    let config = Config::default().sockets(args.sockets).chunk(args.chunk as u32);
    let (opened, domain) = args.side.open(config)?;
    let mut client = Client::connect(&domain, &*opened.gpu, (address, place.wait))?;
    let nic = Chosen::new("TCP".to_owned(), &client.explain());
    let device = Chosen::new(opened.gpu.info().name.clone(), &opened.why);
    let mut rows = Vec::new();
    let end = client.measure(args, local, &mut rows).and_then(|()| client.close());
    let findings = row::findings(&rows);
    let setting = Setting { gpu: Some(device), nic };
    let measured = Measured::new("perf tcp", setting, rows).with(findings);
    print_and_plot(&measured, end, args.json, args.plot.as_deref())
}
