//! The end whose memory is read and written.

use super::ServerArgs;
use super::exchange::{COUNTER, COUNTER_BYTES, Running};
use super::memory::Side;
use super::messages::{Answer, Filling, Request, check, send};
use super::plan::MOST;
use crate::local::LISTENING;
use crate::print;
use crate::units;
use anyhow::{Context as _, Result, bail, ensure};
use std::net::SocketAddr;
use std::time::Duration;
use warpverbs::agent::{Agent, Notification, Registration};

/// Name of its agent.
pub(super) const NAME: &str = "perf server";
/// Between two looks at whether the client is still there.
const LOOK: Duration = Duration::from_secs(1);

pub(super) fn run(args: &ServerArgs) -> Result<()> {
    let side = Side::open(&args.side, true, args.bind)?;
    let agent = Agent::new(NAME, side.config().listen(SocketAddr::new(args.bind, args.port)))?;
    print::line(format!("{LISTENING}{}", agent.address()))?;
    let mut next = agent.wait_notification(Duration::from_secs(args.wait))?;
    let client = next.from.name.to_string();
    let mut server = Server { side, agent, client, memory: None, running: None };
    loop {
        let request = serde_json::from_slice(&next.bytes).context("the client's request")?;
        let answer = match server.serve(&request) {
            Ok(()) => Answer::Done,
            Err(error) => Answer::Failed(format!("{error:#}")),
        };
        send(&server.agent, &server.client, &answer)?;
        if matches!(request, Request::Finish) {
            return Ok(());
        }
        next = server.next()?;
    }
}

struct Server {
    side: Side,
    agent: Agent,
    client: String,
    /// With its counter.
    memory: Option<(Registration, Registration)>,
    running: Option<Running>,
}

impl Server {
    /// The next request: a row may take as long as it wants to, if the client is there.
    fn next(&self) -> Result<Notification> {
        let client = self.client.as_str();
        loop {
            match self.agent.wait_notification(LOOK) {
                Ok(next) if &*next.from.name == client => return Ok(next),
                Ok(other) => send(&self.agent, &other.from.name, &Answer::Failed(BUSY.to_owned()))?,
                Err(_) if self.agent.knows(client) => {}
                Err(_) => bail!("the client has ended"),
            }
        }
    }

    fn serve(&mut self, request: &Request) -> Result<()> {
        match *request {
            Request::Register { mem, bytes } => {
                let most = units::bytes(MOST);
                ensure!((1..=MOST).contains(&bytes), "{bytes} bytes, expected up to {most}");
                // Given back first, so that there is room.
                self.memory = None;
                let counter = self.agent.alloc(COUNTER_BYTES, COUNTER)?;
                self.memory = Some((self.side.register(&self.agent, mem, bytes)?, counter));
                Ok(())
            }
            Request::Fill { bytes, with } => {
                let (memory, _) = self.memory(bytes)?;
                Ok(memory.write(0, &with.bytes(bytes as usize))?)
            }
            Request::Exchange(exchange) => {
                let (memory, counter) = self.memory(2 * exchange.bytes)?;
                counter.write(0, &[0; COUNTER_BYTES as usize])?;
                let ends = (memory, counter);
                let running = exchange.start(&self.side, &self.agent, ends, &self.client)?;
                self.running = Some(running);
                Ok(())
            }
            Request::Compare { bytes, tag } => {
                self.running.take().map(Running::finish).transpose()?;
                let (memory, _) = self.memory(bytes)?;
                check(memory, &Filling::Data(tag).bytes(bytes as usize))
            }
            Request::Finish => Ok(()),
        }
    }

    fn memory(&self, bytes: u64) -> Result<(&Registration, &Registration)> {
        let (memory, counter) = self.memory.as_ref().context("no memory has been registered")?;
        ensure!(bytes <= memory.len(), "{bytes} bytes, expected up to {}", memory.len());
        Ok((memory, counter))
    }
}

const BUSY: &str = "this server measures with another client";
