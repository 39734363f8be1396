//! The objects that scripts act on: a NIC, ports, an SRQ, keys, and memory that nobody may touch.

use super::poster;
use super::script::{self, Attrs, Op, Place, PortSetup, Receives, Setup};
use super::shared::Shared;
use std::sync::Arc;
use std::time::Duration;
use warpverbs_dev::{PortConfig, Poster, QueueFormat, Receives as From, bytes, rest};
use warpverbs_mem::testing::{LazyCopier, LazyMemory};
use warpverbs_mem::{Access, HostBuf, Region, SmallBuf};
use warpverbs_mlx5::doorbell::record_word;
use warpverbs_mlx5::export::CqMode;
use warpverbs_nic::DoorbellOnly::Detect;
use warpverbs_nic::{
    Announcement, Clock, Config, CqeSize, DoorbellPolicy, Mr, Mtu, OnSendError, Path, Pd, QpAttrs,
    QpState, ScatterToCqe, Service, SoftNic, UarPage, VirtualClock,
};

const GUARD: u8 = 0xc3;
const EDGE: usize = 64;
/// Bytes of the keys' memory: below and above a slice.
const SIZES: [usize; 8] = [256, 256, 256, 16_384, 256, 16_384, 256, 256];

/// The outcome of a script.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    /// Completions without error.
    pub(crate) succeeded: u32,
    /// Completions with an error, flushes not counted.
    pub(crate) failed: u32,
}

/// Memory of a key, as the host sees it, with an edge on either side that stays as it is.
struct Memory {
    region: Region,
    whole: Region,
    pd: usize,
}

/// The keys, those that were taken back included.
pub(crate) struct Keys {
    memory: Vec<Memory>,
    mrs: Vec<Option<Mr>>,
    numbers: Vec<u32>,
}

impl Keys {
    /// Address and key.
    pub(crate) fn place(&self, place: Place) -> (u64, u32) {
        let of = |key: u8| {
            let i = usize::from(key) % self.memory.len();
            (self.memory[i].region.addr(), SIZES[i] as u64, self.numbers[i])
        };
        match place {
            Place::In { key, slot } => {
                let (addr, _, number) = of(key);
                (addr + u64::from(slot % 16) * 8, number)
            }
            Place::Near { key, offset } => {
                let (addr, len, number) = of(key);
                (addr - 8 + u64::from(offset) % (len + 16), number)
            }
            Place::Wild { addr, key } => (addr, key),
        }
    }
}

pub(crate) struct World {
    nic: SoftNic,
    clock: VirtualClock,
    pds: [Pd; 2],
    ports: Vec<Option<Poster>>,
    formats: [QueueFormat; 3],
    setups: [PortSetup; 3],
    keys: Keys,
    shared: Shared,
    uar: UarPage,
    registers: Region,
    copiers: [Arc<LazyCopier>; 2],
    /// A copy engine failed: errors without violation are possible.
    broken: bool,
    outcome: Outcome,
}

fn memory(i: usize, copiers: &[Arc<LazyCopier>; 2]) -> Memory {
    let len = SIZES[i] + 2 * EDGE;
    let (source, whole) = match i {
        4 | 5 => LazyMemory::regions(len, i as u32 - 4, &copiers[i - 4]).unwrap(),
        // An allocation of its own, so that a sanitizer sees what goes beyond.
        1 | 2 => {
            let whole = SmallBuf::region(SIZES[i]);
            return Memory { region: whole.clone(), whole, pd: 0 };
        }
        _ => {
            let whole = HostBuf::region(len).unwrap();
            (whole.clone(), whole)
        }
    };
    whole.fill(0, len, GUARD).unwrap();
    whole.fill(EDGE as u64, SIZES[i], 0).unwrap();
    Memory { region: source.slice(EDGE as u64, SIZES[i]).unwrap(), whole, pd: usize::from(i == 7) }
}

impl World {
    pub(crate) fn new(setup: &Setup) -> Self {
        let clock = VirtualClock::new();
        let policy = match setup.policy % 4 {
            0 => DoorbellPolicy::DoorbellFirst,
            1 => DoorbellPolicy::RecordFirst,
            2 => DoorbellPolicy::Random,
            _ => DoorbellPolicy::DropThenRecover { polls: 2 },
        };
        let nic = SoftNic::new(Config {
            policy,
            clock: Clock::Virtual(clock.clone()),
            max_qps: 8,
            seed: Some(1),
            record_polls: 3,
            loses_doorbells: true,
            watch_rewrites: setup.watch_rewrites,
            slice_bytes: 4096,
            violations_kept: 16,
            events_kept: 16,
            ..Config::default()
        })
        .unwrap();
        let pds = [nic.alloc_pd(), nic.alloc_pd()];
        let copiers = [Arc::default(), Arc::default()];
        let memory: Vec<_> = (0..SIZES.len()).map(|i| memory(i, &copiers)).collect();
        let count = memory.len();
        let keys = Keys { memory, mrs: vec![None; count], numbers: vec![0; count] };
        let (formats, mut setups) = (setup.formats.map(script::format), setup.ports);
        for (setup, format) in setups.iter_mut().zip(formats) {
            setup.flags &= if format == QueueFormat::Mlx5 { 0xff } else { 1 };
        }
        let registers = HostBuf::region(4096).unwrap();
        let uar = nic.add_uar(&registers).unwrap();
        let mut world = Self {
            nic,
            clock,
            pds,
            ports: Vec::new(),
            formats,
            setups,
            keys,
            shared: Shared::new(),
            uar,
            registers,
            copiers,
            broken: false,
            outcome: Outcome::default(),
        };
        (0..count).for_each(|i| world.register(i, if i == 6 { 0 } else { !0 }));
        world.ports = (0..3).map(|i| Some(world.port(i))).collect();
        (0..3).for_each(|i| world.connect(i, 1 - i.min(1), QpAttrs::default()));
        world
    }

    fn port(&mut self, i: usize) -> Poster {
        let (setup, format) = (self.setups[i], self.formats[i]);
        let receives = match setup.receives {
            Receives::Own(log) => From::Own { log: log % 6 },
            Receives::Shared => {
                let srq = self.shared.of(&self.nic, &self.pds[0], format);
                srq.map_or(From::Own { log: 3 }, From::Shared)
            }
            Receives::None => From::None,
        };
        let carries = setup.flags & 0x80 != 0;
        let config = PortConfig {
            log_sq: setup.log_sq % 6,
            log_cq: setup.log_cq % 6,
            cq_mode: if setup.flags & 1 == 0 { CqMode::Ring } else { CqMode::Collapsed },
            receives,
            on_send_error: match setup.flags & 2 {
                0 => OnSendError::StopAll,
                _ => OnSendError::StopSends,
            },
            announcement: match setup.flags & 0x3c {
                0x24 | 0x28 => Announcement::Uar { page: self.uar.clone(), doorbell_only: Detect },
                _ => Announcement::Doorbell,
            },
            cqe_size: if setup.flags & 0x40 == 0 { CqeSize::B64 } else { CqeSize::B128 },
            scatter_to_cqe: ScatterToCqe { requests: carries, receives: carries },
            user_index: (setup.flags & 0xc0 == 0xc0).then_some(7),
            service: Service::Connected,
            consume_only: setup.flags & 0xfc == 0xfc,
            memory: Default::default(),
        };
        Poster::with(&self.nic, &self.pds[0], [format; 2], &config).unwrap()
    }

    fn register(&mut self, i: usize, access: u8) {
        let memory = &self.keys.memory[i];
        let access = Access::from_bits_truncate(access.into());
        self.keys.mrs[i] = None;
        if let Ok(mr) = self.nic.reg_mr(&self.pds[memory.pd], &memory.region, access) {
            self.keys.numbers[i] = mr.lkey();
            self.keys.mrs[i] = Some(mr);
        }
    }

    fn connect(&mut self, i: usize, to: usize, extra: QpAttrs) {
        let Some(dest) = self.ports[to].as_ref().map(|port| port.qp.qpn()) else { return };
        let Some(port) = &mut self.ports[i] else { return };
        port.reset();
        let (rtr, rts) = (QpAttrs::rtr(dest), QpAttrs::rts());
        let init = QpAttrs::init(extra.access.unwrap_or(Access::all()));
        let rtr = QpAttrs {
            min_rnr_timer: extra.min_rnr_timer.or(rtr.min_rnr_timer),
            max_dest_rd_atomic: extra.max_dest_rd_atomic.or(rtr.max_dest_rd_atomic),
            ..rtr
        };
        let rts = QpAttrs {
            timeout: extra.timeout.or(rts.timeout),
            retry: extra.retry.or(rts.retry),
            rnr_retry: extra.rnr_retry.or(rts.rnr_retry),
            max_rd_atomic: extra.max_rd_atomic.or(rts.max_rd_atomic),
            ..rts
        };
        (port.mtu, port.psn) = (rtr.mtu.unwrap_or(port.mtu), rts.sq_psn.unwrap_or(0));
        for (state, attrs) in [(QpState::Init, init), (QpState::Rtr, rtr), (QpState::Rts, rts)] {
            if port.qp.modify(state, &attrs).is_err() {
                return;
            }
        }
    }

    fn attrs(&self, attrs: &Attrs) -> QpAttrs {
        let [a, b, c, d, e, f] = attrs.values;
        let given = |bit: u32, value: u8| (attrs.given >> bit & 1 == 1).then_some(value);
        let dest = self.ports[usize::from(f) % 3].as_ref().map_or(0xffff, |port| port.qp.qpn());
        QpAttrs {
            qkey: None,
            access: given(0, a).map(|bits| Access::from_bits_truncate(bits.into())),
            dest_qpn: given(1, b)
                .map(|low| if low < 250 { dest } else { u32::MAX - u32::from(low) }),
            path: given(2, 0).map(|_| Path::Loopback),
            mtu: given(3, 0).map(|_| Mtu::B4096),
            rq_psn: given(4, c).map(u32::from),
            min_rnr_timer: given(5, b),
            max_dest_rd_atomic: given(6, c),
            timeout: given(7, d),
            retry: given(8, e),
            rnr_retry: given(9, f),
            sq_psn: given(10, d).map(u32::from),
            max_rd_atomic: given(11, e),
        }
    }

    pub(crate) fn carry_out(&mut self, op: &Op) {
        match *op {
            Op::Step { times } => (0..=times % 16).for_each(|_| {
                self.nic.step();
            }),
            Op::Advance { log_nanos } => {
                self.clock.advance(Duration::from_nanos(1 << (log_nanos % 32)));
            }
            Op::Land { engine, copies } => self.copiers[usize::from(engine)].allow(copies.into()),
            Op::BreakDown { engine } => {
                self.copiers[usize::from(engine)].break_down();
                self.broken = true;
            }
            Op::Deregister { key } => self.keys.mrs[usize::from(key) % SIZES.len()] = None,
            Op::Register { key, access } => self.register(usize::from(key) % SIZES.len(), access),
            Op::Revoke { key, revoked } => {
                let number = self.keys.numbers[usize::from(key) % SIZES.len()];
                let _gone = self.nic.faults().revoke(number, revoked);
            }
            Op::SrqLimit { limit } => {
                if let Some(srq) = &self.shared.srq {
                    srq.set_limit(limit);
                }
            }
            Op::DropSrq => self.shared.srq = None,
            Op::SharedReceive { link, entries, posted } => {
                self.shared.post(link, &entries.sges(&self.keys), posted);
            }
            Op::CreatePort { port } => {
                let i = usize::from(port) % 3;
                self.ports[i] = None;
                self.ports[i] = Some(self.port(i));
            }
            Op::DestroyPort { port } => self.ports[usize::from(port) % 3] = None,
            Op::Connect { port, to, attrs } => {
                let attrs = self.attrs(&attrs);
                self.connect(usize::from(port) % 3, usize::from(to) % 3, attrs);
            }
            Op::Modify { port, to, attrs } => {
                let attrs = self.attrs(&attrs);
                if let Some(port) = &self.ports[usize::from(port) % 3] {
                    let to = QpState::ALL[usize::from(to) % QpState::ALL.len()];
                    let _refused = port.qp.modify(to, &attrs);
                }
            }
            _ => self.post(op),
        }
    }

    /// The operations of a poster.
    fn post(&mut self, op: &Op) {
        let (Op::Post { port: i, .. }
        | Op::Raw { port: i, .. }
        | Op::Receive { port: i, .. }
        | Op::RawReceive { port: i, .. }
        | Op::Doorbell { port: i, .. }
        | Op::Ahead { port: i, .. }
        | Op::Record { port: i, .. }
        | Op::Scribble { port: i, .. }
        | Op::Poll { port: i, .. }
        | Op::Fault { port: i, .. }) = *op
        else {
            return;
        };
        let Some(port) = &mut self.ports[usize::from(i) % 3] else { return };
        match op {
            Op::Doorbell { own, value, .. } => {
                let mut value = *value;
                if *own {
                    let [a, x, b, y, ..] = value;
                    value = port.doorbell(port.posted);
                    value[usize::from(a % 8)] ^= x;
                    value[usize::from(b % 8)] ^= y;
                }
                port.ring_bytes(value);
                let register = u64::from(value[0] & 3);
                self.registers.write(0x800 + register * 0x100, &value).unwrap();
            }
            Op::Ahead { ahead, .. } => {
                let next = port.posted.wrapping_add_signed((*ahead).into());
                if port.format == QueueFormat::Mlx5 {
                    port.dbr.write(4, &record_word(next).to_ne_bytes()).unwrap();
                }
                port.ring_bytes(port.doorbell(next));
            }
            Op::Record { receive, word, .. } => {
                port.dbr.write(u64::from(!receive) * 4, &word.to_be_bytes()).unwrap();
            }
            Op::Scribble { receive, at, byte, .. } => {
                let ring = if *receive { &port.rq } else { &port.sq };
                ring.write(u64::from(*at) % ring.len() as u64, &[*byte]).unwrap();
            }
            Op::Poll { receives: false, times: times @ 0xf0.., .. } => {
                let _refused = port.resize_send_cq(times % 8);
            }
            Op::Poll { receives, times, .. } => {
                poster::poll(port, *receives, *times, &mut self.outcome)
            }
            Op::Fault { fault, .. } => poster::switch_on(&self.nic, port, *fault),
            _ => poster::queue(port, &self.keys, op),
        }
    }

    /// Everything comes to rest, whatever was done, and goes in any order.
    pub(crate) fn finish(mut self, farewell: u8) -> Outcome {
        self.copiers.iter().for_each(|engine| engine.allow(1 << 40));
        for _ in 0..50 {
            self.rest();
            // Peers that are never ready are asked for ever.
            let Some(wait) = self.nic.next_timer() else { break };
            self.clock.expire(wait);
        }
        for port in self.ports.iter_mut().flatten() {
            poster::poll(port, true, u8::MAX, &mut self.outcome);
            poster::poll(port, false, u8::MAX, &mut self.outcome);
        }
        let explained = self.outcome.failed == 0 || self.nic.stats().violations > 0;
        assert!(explained || self.broken, "an error without a violation");
        self.check_counters();
        if farewell & 1 == 0 {
            self.keys.mrs.clear();
        }
        if farewell & 2 == 0 {
            self.shared.srq = None;
        }
        self.ports.rotate_left(usize::from(farewell >> 2 & 3) % 3);
        self.ports.pop();
        self.rest();
        self.ports.clear();
        self.rest();
        self.check_counters();
        for (memory, len) in self.keys.memory.iter().zip(SIZES) {
            if memory.whole.len() > len {
                assert_eq!(bytes(&memory.whole, 0, EDGE), [GUARD; EDGE]);
                assert_eq!(bytes(&memory.whole, (EDGE + len) as u64, EDGE), [GUARD; EDGE]);
            }
        }
        self.outcome
    }

    /// The NIC has the objects that there are, and has looked for no others.
    fn check_counters(&self) {
        let stats = self.nic.stats();
        let keys = self.keys.mrs.iter().flatten().count() as u64;
        let ports = self.ports.iter().flatten().count() as u64;
        assert_eq!((stats.live_keys, stats.live_qps, stats.stale_slots), (keys, ports, 0));
        let (found, counted) =
            (u64::from(self.outcome.succeeded), stats.qps.wqes.total() + stats.qps.receives);
        let counts_only = self.setups.iter().any(|setup| setup.flags & 0xfc == 0xfc);
        assert!(
            found <= counted || counts_only,
            "{found} completions without error of {counted} WQEs"
        );
    }

    fn rest(&self) {
        rest([&self.nic]);
    }
}
