//! The cost of the protocol alone: messages per second through both ends of a connection in one
//! thread, without bytes, memory or a link.
//!
//! `cargo run --release -p warpverbs-rc --example rate [-- NAME]`

use std::time::Instant as Clock;

use warpverbs_rc::{
    Atomic, Config, Connection, Denied, Host, Instant, Need, Op, Place, Receive, Remote, Request,
    WrId,
};
use warpverbs_wire::{Qpn, Rkey};

/// Grants everything and owns nothing.
struct Anything {
    receives: u64,
}

impl Host for Anything {
    fn allows(&self, _need: Need) -> bool {
        true
    }

    fn receive(&mut self) -> Result<Option<Receive>, Denied> {
        Ok(Some(Receive { id: self.receives, room: 1 << 31 }))
    }

    fn take_receive(&mut self, _id: u64) {
        self.receives += 1;
    }

    fn check_receive(&mut self, _id: u64, _offset: u32, _len: u32) -> Result<(), Denied> {
        Ok(())
    }

    fn check_rkey(&mut self, _rkey: Rkey, _va: u64, _len: u32, _need: Need) -> Result<(), Denied> {
        Ok(())
    }

    fn check_invalidate(&mut self, _rkey: Rkey) -> Result<(), Denied> {
        Ok(())
    }

    fn atomic(&mut self, _atomic: &Atomic) -> Result<Option<u64>, Denied> {
        Ok(Some(0))
    }
}

/// Packets go straight to the other end, at most so many before it answers.
const BURST: usize = 32;

/// Takes up to [`BURST`] packets across; returns how many.
fn carry(now: Instant, from: &mut Connection, to: &mut Connection, host: &mut Anything) -> u64 {
    let mut packets = 0;
    for _ in 0..BURST {
        let Some(packet) = from.poll_transmit(now, host) else { break };
        let place = to.handle_packet(now, &packet.bth, &packet.ext, packet.payload.len(), host);
        let _: Place = std::hint::black_box(place);
        packets += 1;
    }
    while to.poll_completion().is_some() {}
    packets
}

fn measure(name: &str, op: Op, len: u32, messages: u64) {
    if std::env::args().nth(1).is_some_and(|only| !name.contains(&only)) {
        return;
    }
    let config = Config::new(Qpn::default());
    let end = || {
        let mut end = Connection::new(&config).expect("in range");
        end.start().expect("new");
        end
    };
    let (mut a, mut b, mut host) = (end(), end(), Anything { receives: 0 });
    let (mut posted, mut done, mut packets) = (0, 0, 0);
    let start = Clock::now();
    while done < messages {
        let now = Instant::from_nanos(start.elapsed().as_nanos() as u64);
        while posted < messages && a.post(Request::new(WrId(posted), op, len)).is_ok() {
            posted += 1;
        }
        packets += carry(now, &mut a, &mut b, &mut host);
        for _ in 0..BURST {
            let Some(packet) = b.poll_transmit(now, &mut host) else { break };
            let len = packet.payload.len();
            let place = a.handle_packet(now, &packet.bth, &packet.ext, len, &mut host);
            let _: Place = std::hint::black_box(place);
            packets += 1;
        }
        while a.poll_completion().is_some() {
            done += 1;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{name:>16}: {:6.1} M messages/s, {:6.1} M packets/s, {:5.1} ns a message",
        done as f64 / seconds / 1e6,
        packets as f64 / seconds / 1e6,
        seconds * 1e9 / done as f64
    );
}

fn main() {
    let (va, rkey) = (0x1000, Rkey(1));
    measure("write 8 B", Op::Write(Remote { addr: va, rkey }), 8, 10_000_000);
    measure("send 8 B", Op::Send, 8, 10_000_000);
    measure("read 8 B", Op::Read(Remote { addr: va, rkey }), 8, 5_000_000);
    measure("fetch_add", Op::FetchAdd { remote: Remote { addr: va, rkey }, add: 1 }, 8, 5_000_000);
    measure("write 64 KiB", Op::Write(Remote { addr: va, rkey }), 65536, 200_000);
    measure("read 64 KiB", Op::Read(Remote { addr: va, rkey }), 65536, 200_000);
}
