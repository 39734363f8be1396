//! The end whose memory is read and written.

use super::exchange::{COUNTER, COUNTER_BYTES, Running};
use super::memory::Side;
use super::messages::{Filling, LIMIT, Message, Request, check};
use super::plan::MOST;
use crate::rig::talk::{Talk, only};
use crate::units;
use anyhow::{Context as _, Result, ensure};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use warpverbs::agent::{Agent, Registration};

/// Name of its agent.
pub(super) const NAME: &str = "perf server";
/// Between two looks at the connection. A client measures meanwhile.
const LOOK: Duration = Duration::from_millis(1);

pub(super) fn follow(side: Side, talk: &mut Talk<Message>) -> Result<()> {
    let found = talk.recv("meet", LIMIT)?;
    let client = only!(talk, found, "meet", Message::Meet { client } => client);
    let at = talk.local_ip()?;
    let agent = Agent::new(NAME, side.config(at)?.listen(SocketAddr::new(at, 0)))?;
    talk.send(Message::Met { agent: agent.address() })?;
    let mut server = Server { side, agent, client, memory: None, running: None };
    loop {
        let request = server.next(talk)?;
        server.serve(&request)?;
        talk.send(Message::Done)?;
        if matches!(request, Request::Finish) {
            return Ok(());
        }
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
    /// The next request. A row may take as long as it wants to, if the client is there: its agent says
    /// so, and the connection says when its process has ended.
    fn next(&self, talk: &mut Talk<Message>) -> Result<Request> {
        let since = Instant::now();
        loop {
            match talk.poll()? {
                Some(Message::Request(request)) => return Ok(request),
                Some(other) => return Err(talk.out_of_turn(other, "request").into()),
                None => {}
            }
            let here = since.elapsed() < LIMIT || self.agent.knows(&self.client);
            ensure!(here, "the client's agent {:?} does not answer any more", self.client);
            std::thread::sleep(LOOK);
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
            Request::Compile => super::exchange::compile(&self.side),
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
