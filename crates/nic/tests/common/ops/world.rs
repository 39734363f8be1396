//! The objects that scripts act on: a NIC, ports, an SRQ, keys, and memory that nobody may touch.

use super::script::{Announce, Attrs, Fault, Op, Place, PortSetup, Receives, Setup};
use super::wqe;
use std::sync::Arc;
use std::time::Duration;
use warpverbs_dev::{Port, PortConfig, Receives as From, bytes, rest};
use warpverbs_mem::testing::{LazyCopier, LazyMemory};
use warpverbs_mem::{Access, HostBuf, Region, SmallBuf};
use warpverbs_mlx5::cqe::Cqe;
use warpverbs_mlx5::doorbell::{Doorbell, record_word};
use warpverbs_mlx5::export::CqMode;
use warpverbs_mlx5::num::MAX_WQE;
use warpverbs_mlx5::recv;
use warpverbs_mlx5::syndrome::Syndrome;
use warpverbs_nic::DoorbellOnly::Detect;
use warpverbs_nic::{
    Announcement, Clock, Config, CqeSize, Delay, DoorbellPolicy, Mr, Mtu, OnSendError, Path, Pd,
    QpAttrs, QpState, ScatterToCqe, Service, SoftNic, Srq, SrqConfig, UarPage, VirtualClock,
};

const GUARD: u8 = 0xc3;
const EDGE: usize = 64;
/// Bytes of the keys' memory: below and above a slice.
const SIZES: [usize; 8] = [256, 256, 256, 16_384, 256, 16_384, 256, 256];
const SRQ_LOG: u8 = 3;

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
    ports: Vec<Option<Port>>,
    setups: [PortSetup; 3],
    keys: Keys,
    srq: Option<Srq>,
    srq_buf: Region,
    srq_dbr: Region,
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
        let (srq_buf, srq_dbr) = (SmallBuf::region(64 << SRQ_LOG), SmallBuf::region(16));
        let registers = HostBuf::region(4096).unwrap();
        let uar = nic.add_uar(&registers).unwrap();
        let mut world = Self {
            nic,
            clock,
            pds,
            ports: Vec::new(),
            setups: setup.ports,
            keys,
            srq: None,
            srq_buf,
            srq_dbr,
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

    fn port(&mut self, i: usize) -> Port {
        let setup = self.setups[i];
        let receives = match setup.receives {
            Receives::Own(log) => From::Own { log: log % 6 },
            Receives::Shared => From::Shared(self.shared()),
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
        Port::new(&self.nic, &self.pds[0], &config).unwrap()
    }

    /// The SRQ, made if there is none.
    fn shared(&mut self) -> Srq {
        if let Some(srq) = &self.srq {
            return srq.clone();
        }
        let (order, buf, dbr) = (Default::default(), self.srq_buf.clone(), self.srq_dbr.clone());
        let config = SrqConfig {
            dialect: warpverbs_nic::Dialect::Mlx5,
            order,
            buf,
            log_size: SRQ_LOG,
            log_stride: 6,
            dbr,
        };
        let srq = self.nic.create_srq(&self.pds[0], &config).unwrap();
        self.srq.insert(srq).clone()
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
                if let Some(srq) = &self.srq {
                    srq.set_limit(limit);
                }
            }
            Op::DropSrq => self.srq = None,
            Op::SharedReceive { link, entries, posted } => {
                let mut slot = [0; 64];
                let sges = entries.sges(&self.keys);
                if recv::build_srq(&mut slot, link.into(), &sges).is_ok() {
                    self.srq_buf.write(u64::from(link % 8) * 64, &slot).unwrap();
                }
                self.srq_dbr.write(0, &u32::from(posted).to_be_bytes()).unwrap();
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
            Op::Post { request, flags, patch, announce, .. } => {
                let mut buf = [0; MAX_WQE];
                let at = port.position();
                if let Ok(len) = wqe::build(request, *flags, &self.keys, &mut buf, at) {
                    if let Some((at, mask)) = *patch {
                        buf[usize::from(at) % len] ^= mask;
                    }
                    put(port, &buf[..len], *announce);
                }
            }
            Op::Raw { bytes, announce, .. } => {
                let (mut bytes, at) = (*bytes, port.position());
                let place = Doorbell::Next { qpn: at.qpn, next: at.index }.bytes();
                bytes[1..3].copy_from_slice(&place[1..3]);
                bytes[4..7].copy_from_slice(&place[4..7]);
                put(port, &bytes, *announce);
            }
            Op::Receive { entries, .. } => {
                let (mut slot, sges) = ([0; 64], entries.sges(&self.keys));
                if recv::build(&mut slot, &sges).is_ok() {
                    port.post_recv_bytes(&slot);
                }
            }
            Op::RawReceive { bytes, .. } => port.post_recv_bytes(bytes),
            Op::Doorbell { own, value, .. } => {
                let mut value = *value;
                if *own {
                    value[4..7].copy_from_slice(&port.qp.qpn().to_be_bytes()[1..]);
                }
                port.ring_bytes(value);
                let register = u64::from(value[0] & 3);
                self.registers.write(0x800 + register * 0x100, &value).unwrap();
            }
            Op::Ahead { ahead, .. } => {
                let next = port.posted.wrapping_add_signed((*ahead).into());
                port.dbr.write(4, &record_word(next).to_ne_bytes()).unwrap();
                port.ring_at(next);
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
            Op::Poll { receives, times, .. } => poll(port, *receives, *times, &mut self.outcome),
            Op::Fault { fault, .. } => switch_on(&self.nic, port, *fault),
            _ => {}
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
            poll(port, true, u8::MAX, &mut self.outcome);
            poll(port, false, u8::MAX, &mut self.outcome);
        }
        let explained = self.outcome.failed == 0 || self.nic.stats().violations > 0;
        assert!(explained || self.broken, "an error without a violation");
        self.check_counters();
        if farewell & 1 == 0 {
            self.keys.mrs.clear();
        }
        if farewell & 2 == 0 {
            self.srq = None;
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

fn put(port: &mut Port, wqe: &[u8], announce: Announce) {
    port.put_bytes(wqe);
    if matches!(announce, Announce::Both | Announce::Record | Announce::Last) {
        port.record();
    }
    match announce {
        Announce::Both | Announce::Doorbell => port.ring(),
        Announce::Last => port.ring_last(),
        Announce::Record | Announce::Nothing => {}
    }
}

fn poll(port: &mut Port, receives: bool, times: u8, outcome: &mut Outcome) {
    for _ in 0..times {
        let cqe = if receives { port.poll_recv() } else { port.poll_send() };
        match cqe {
            None => return,
            Some(Cqe::Error { syndrome, .. }) => {
                // Retries that ran out are nobody's violation.
                let expected = matches!(
                    syndrome,
                    Syndrome::WrFlush | Syndrome::TransportRetryExc | Syndrome::RnrRetryExc
                );
                outcome.failed += u32::from(!expected);
            }
            Some(_) => outcome.succeeded += 1,
        }
    }
}

fn switch_on(nic: &SoftNic, port: &Port, fault: Fault) {
    let (faults, qpn) = (nic.faults(), port.qp.qpn());
    let result = match fault {
        Fault::DelaySteps(steps) => {
            faults.delay_cqes(port.send_cq(), steps.map(|n| Delay::Steps(n.into())));
            Ok(())
        }
        Fault::DelayMicros(time) => {
            let time = time.map(|n| Delay::Time(Duration::from_micros(n.into())));
            faults.delay_cqes(port.recv_cq(), time);
            Ok(())
        }
        Fault::Lose { count, recovery } => {
            faults.lose_doorbells(qpn, count.into(), recovery.map(u32::from))
        }
        Fault::NotReady(count) => faults.receiver_not_ready(qpn, count.into()),
        Fault::Stick(stuck) => faults.stick(qpn, stuck),
    };
    result.unwrap();
}
