//! The two sides in two processes: their messages, the server, and the connection to it.

use super::args::{ClientArgs, ServerArgs};
use crate::Common;
use crate::local::LISTENING;
use crate::print;
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use warpverbs::gpu::{self, GpuChoice};
use warpverbs::raw::nic::{Config, LinkConfig, UdpConfig};
use warpverbs::transport::{Context, NicChoice, VerbsProvider, Way};
use warpverbs_conformance::{
    Actor, LONGEST_REPLY, Link, Peer, Reply, Request, Setup, Side, VERSION,
};
use warpverbs_control::{Connection, Listener};

/// How long a client may be busy with its own side of a case: with a kernel, say.
const BETWEEN: Duration = Duration::from_secs(180);

/// The messages. The client asks, and the server answers.
#[derive(Serialize, Deserialize)]
enum Message {
    /// Client: a request.
    Ask(Request),
    /// Server: the result.
    Reply(Reply),
    /// Client: no more requests.
    End,
    /// Either: why it ends.
    Failed(String),
}

impl warpverbs_control::Message for Message {
    const NAME: [u8; 6] = *b"wvconf";
    const VERSION: u16 = VERSION;
    const PROGRAM: &'static str = "warpverbs conform";

    fn kind(&self) -> &'static str {
        match self {
            Self::Ask(_) => "request",
            Self::Reply(_) => "reply",
            Self::End => "end",
            Self::Failed(_) => "failed",
        }
    }

    fn failure(&self) -> Option<&str> {
        match self {
            Self::Failed(why) => Some(why),
            _ => None,
        }
    }
}

/// A NIC as `--nic` and `--gpu` name it; one in software is at `at`. `process` keeps the two
/// sides' captures and faults apart.
fn open(
    (nic, way, gpu): (&str, Way, Option<&str>),
    (ip, udp_port): (IpAddr, u16),
    process: u32,
) -> Result<Side> {
    let bind = SocketAddr::new(ip.to_canonical(), udp_port);
    let link = LinkConfig::Udp(UdpConfig::at(bind));
    let config = Config { link, ..Config::default() }.with_env()?.for_process(process);
    let verbs = VerbsProvider::default().with_way(way);
    let context = Context::builder().soft_config(config).verbs(verbs).build()?;
    let side = Side::open(&context, &NicChoice::from(nic))?;
    Ok(match gpu {
        Some(choice) => side.with_gpu(gpu::open(choice.parse::<GpuChoice>()?)?),
        None => side,
    })
}

/// Answers a client's requests until it ends.
pub(super) fn serve(args: &ServerArgs) -> Result<()> {
    let listener = Listener::bind(SocketAddr::new(args.bind, args.port))?;
    // `conform local` reads the address from here.
    print::line(format_args!("{LISTENING}{}", listener.addr()))?;
    let mut control = listener.accept(Duration::from_secs(args.wait))?;
    let outcome = follow(args, &mut control);
    if let Err(error) = &outcome {
        control.farewell(&Message::Failed(format!("{error:#}")));
    }
    outcome
}

fn follow(args: &ServerArgs, control: &mut Connection<Message>) -> Result<()> {
    let gpu = (!args.host_only).then_some(args.gpu.as_str());
    let side = open((&args.nic, args.way, gpu), (control.local_addr()?.ip(), args.udp_port), 1)?;
    let side = side.placed(args.mem.place());
    let mut actor = Actor::new(side);
    control.during("in the middle of the cases");
    loop {
        match control.recv("request", BETWEEN)? {
            Message::Ask(request) => control.send(&Message::Reply(actor.act(request)))?,
            Message::End => return Ok(()),
            other => return Err(control.out_of_turn(&other, "request or end").into()),
        }
    }
}

/// The connection to a server.
struct ServerLink {
    control: Connection<Message>,
}

impl Link for ServerLink {
    fn ask(&mut self, request: Request) -> Result<Reply, String> {
        let ask = || {
            self.control.send(&Message::Ask(request))?;
            match self.control.recv("reply", LONGEST_REPLY)? {
                Message::Reply(reply) => Ok(reply),
                other => Err(self.control.out_of_turn(&other, "reply")),
            }
        };
        ask().map_err(|error| error.to_string())
    }
}

impl Drop for ServerLink {
    fn drop(&mut self) {
        // The server may be gone.
        let _ = self.control.send(&Message::End);
    }
}

/// The side that posts, and a server as its peer.
pub(super) fn connect(args: &ClientArgs) -> Result<Setup> {
    let Common { gpu, nic, way, .. } = &args.common;
    let gpu = (!args.choice.host_only).then_some(gpu.as_str());
    let mut control =
        Connection::<Message>::connect(&args.host, args.port, Duration::from_secs(args.wait))?;
    control.during("in the middle of a case");
    let side = open((nic, *way, gpu), (control.local_addr()?.ip(), args.udp_port), 0);
    let side = side.inspect_err(|error| {
        control.farewell(&Message::Failed(format!("{error:#}")));
    })?;
    let side = side.placed(args.choice.mem.place());
    Ok(Setup::new(side, Peer::far(Box::new(ServerLink { control }))?))
}
