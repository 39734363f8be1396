//! The two sides in two processes: their messages, the server, and the connection to it.

use super::args::{Kernels, LocalArgs, ServerArgs};
use crate::rig::ends::{AtPort, Place};
use crate::rig::talk::{Talk, Words, only};
use crate::rig::{Common, NicOnly};
use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use warpverbs::gpu::{self, GpuChoice};
use warpverbs::transport::{Context, LinkKind, NicChoice, VerbsProvider, Way};
use warpverbs_conformance::{
    Actor, LONGEST_REPLY, Link, Peer, Reply, Request, Setup, Side, VERSION,
};

/// How long a client may be busy with its own side of a case: with a kernel, say.
const BETWEEN: Duration = Duration::from_secs(180);

/// The messages. The client asks, and the server answers.
#[derive(Serialize, Deserialize)]
pub(super) enum Message {
    Ask(Request),
    Reply(Reply),
    End,
}

impl Words for Message {
    const NAME: [u8; 6] = *b"wvconf";
    // One more than that of requests and replies, which it frames otherwise than it did.
    const VERSION: u16 = VERSION + 1;
    const PROGRAM: &'static str = "warpverbs conform";

    fn kind(&self) -> &'static str {
        match self {
            Self::Ask(_) => "request",
            Self::Reply(_) => "reply",
            Self::End => "end",
        }
    }
}

/// A NIC as `--nic` and `--gpu` name it; one in software is at `at`. `process` keeps the two
/// sides' captures and faults apart.
fn open(
    (nic, way, gpu): (&str, Way, &str),
    Kernels { host_only, mem }: &Kernels,
    (ip, udp_port): (IpAddr, u16),
    process: u32,
) -> Result<Side> {
    let bind = SocketAddr::new(ip.to_canonical(), udp_port);
    let nics = Context::builder().soft_link(LinkKind::Udp, bind).soft_env(Some(process))?;
    let context = nics.verbs(VerbsProvider::default().with_way(way)).build()?;
    let side = Side::open(&context, &NicChoice::from(nic))?;
    let side = match host_only {
        false => side.with_gpu(gpu::open(gpu.parse::<GpuChoice>()?)?),
        true => side,
    };
    Ok(side.placed(mem.place()))
}

/// Answers a client's requests until it ends.
pub(super) fn follow(args: &AtPort<ServerArgs>, talk: &mut Talk<Message>) -> Result<()> {
    let AtPort { udp_port, own: ServerArgs { gpu, nic, way, kernels } } = args;
    let side = open((nic, *way, gpu), kernels, (talk.local_ip()?, *udp_port), 1)?;
    let mut actor = Actor::new(side);
    talk.during("in the middle of the cases");
    loop {
        match talk.recv("request", BETWEEN)? {
            Message::Ask(request) => talk.send(Message::Reply(actor.act(request)))?,
            Message::End => return Ok(()),
            other => return Err(talk.out_of_turn(other, "request or end").into()),
        }
    }
}

struct ServerLink(Talk<Message>);

impl Link for ServerLink {
    fn ask(&mut self, request: Request) -> Result<Reply, String> {
        let ask = || -> Result<Reply> {
            self.0.send(Message::Ask(request))?;
            let found = self.0.recv("reply", LONGEST_REPLY)?;
            Ok(only!(self.0, found, "reply", Message::Reply(reply) => reply))
        };
        ask().map_err(|error| error.to_string())
    }
}

impl Drop for ServerLink {
    fn drop(&mut self) {
        // The server may be gone.
        let _ = self.0.send(Message::End);
    }
}

/// The side that posts, and a server as its peer.
pub(super) fn connect(args: &LocalArgs, udp_port: u16, place: &Place) -> Result<Setup> {
    let Common { gpu, nic: NicOnly { nic, way, .. } } = &args.common;
    let mut talk: Talk<Message> = place.connect()?;
    talk.during("in the middle of a case");
    let side = talk.failing(|talk| {
        open((nic, *way, gpu), &args.choice.kernels, (talk.local_ip()?, udp_port), 0)
    })?;
    Ok(Setup::new(side, Peer::far(Box::new(ServerLink(talk)))?))
}
