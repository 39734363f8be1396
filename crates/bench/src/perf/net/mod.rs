//! `perf write|read|send|atomic`: two processes, on one machine or two, and RoCEv2 between them.

mod client;
mod feed;
mod messages;
mod pair;
mod posted;
mod request;
mod server;
mod side;
mod timed;
mod watch;

use crate::output::Measured;
use crate::rig::ends::{AtPort, Family, Place, Role, beside};
use crate::rig::plan::{Op, word};
use crate::rig::plot::print_and_plot;
use anyhow::Result;
use client::Client;
use request::{MeasureArgs, Request};
use side::NicArgs;

/// Processes that reach each other by RoCEv2.
pub(super) struct Net;

impl Family for Net {
    // That of perftest.
    const PORT: &'static str = "18515";
    type Server = AtPort<NicArgs>;
    type Client = AtPort<MeasureArgs>;
    type Local = MeasureArgs;
}

pub(super) fn run(op: Op, role: &Role<Net>) -> Result<()> {
    match role {
        Role::Server(args) => args.serve(|talk| server::follow(op, &args.own, talk)),
        Role::Client(args) => {
            let AtPort { udp_port, own } = &args.own;
            measure(own, &own.request(op, *udp_port)?, &args.place())
        }
        Role::Local(args) => {
            let request = args.request(op, 0)?;
            let way = args.nic.way.to_string();
            let flags = ["--nic", &args.nic.nic, "--way", &way];
            beside(&["perf", &word(op)], &flags, |place| measure(args, &request, place))
        }
    }
}

fn measure(args: &MeasureArgs, request: &Request, place: &Place) -> Result<()> {
    let mut client = Client::connect(request, place)?;
    let mut rows = Vec::new();
    let end = client.measure(request, &mut rows);
    let command = format!("perf {}", word(request.setup.op));
    let measured = Measured::new(command, client.setting(), rows);
    print_and_plot(&measured, end, &args.output)
}
