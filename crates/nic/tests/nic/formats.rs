//! One body of tests over queues of every format, on one NIC and between two.

use crate::rig::{LEN, Rig};
use crate::rng;
use rand::rngs::StdRng;
use rand::{Rng, RngExt};
use std::time::Duration;
use warpverbs_dev::{PortConfig, Poster, QueueFormat, Receives, Reported, bytes, rest};
use warpverbs_mem::{Access, HostBuf};
use warpverbs_nic::{
    Announcement, Config, CqMode, Dialect, NicError, QpAttrs, QpState, SoftNic, SrqConfig,
    SrqOrder, Status,
};
use warpverbs_rdma::{Data, Op, ReceivedKind, Remote, Rkey, SendFlags, Sge, WorkRequest};

impl Rig {
    pub(crate) fn new(a: QueueFormat, b: QueueFormat, apart: bool, config: Config) -> Self {
        let receives = Receives::Own { log: 5 };
        let port = PortConfig { log_cq: 7, receives, ..PortConfig::default() };
        Self::with(a, b, apart, config, &port)
    }

    /// Bytes of the own side, and of the peer's.
    pub(crate) fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge::new(self.mr_a.addr() + offset, len, self.mr_a.lkey())
    }

    pub(crate) fn there(&self, offset: u64) -> Remote {
        Remote::new(self.mr_b.addr() + offset, self.mr_b.rkey())
    }

    fn fill(&self, rng: &mut StdRng) {
        for mr in [&self.mr_a, &self.mr_b] {
            let mut random = vec![0; LEN];
            rng.fill_bytes(&mut random);
            mr.region().write(0, &random).unwrap();
        }
    }

    fn here(&self, offset: u64, len: usize) -> Vec<u8> {
        bytes(self.mr_a.region(), offset, len)
    }

    fn at_peer(&self, offset: u64, len: usize) -> Vec<u8> {
        bytes(self.mr_b.region(), offset, len)
    }

    /// Posts, and waits for its only completion. That of the peer's receive, if there is one.
    #[track_caller]
    fn finish(&mut self, op: Op, data: Data<'_>) -> Option<Reported> {
        self.a.post(&request(op, data, SendFlags::SIGNALED));
        self.run_for(Duration::from_secs(60));
        let done = self.a.poll_send();
        let found = || self.nics[0].take_violations();
        let ok = matches!(done, Some(Reported::Sent { status: Status::Success, .. }));
        assert!(ok, "{done:?} for {op:?} {:?}, {:?}", self.a.format, found());
        assert_eq!(self.a.poll_send(), None);
        self.b.poll_recv()
    }
}

pub(crate) fn request<'a>(op: Op, data: Data<'a>, flags: SendFlags) -> WorkRequest<'a> {
    WorkRequest { id: 0, op, data, flags }
}

/// Every format on the posting side: with itself, with mlx5's, to mlx5's, and with one of another vendor.
pub(crate) fn pairs() -> impl Iterator<Item = (QueueFormat, QueueFormat)> {
    let (mlx5, all) = (QueueFormat::Mlx5, QueueFormat::ALL);
    all.into_iter().enumerate().flat_map(move |(at, format)| {
        let other = all[(at + 3) % all.len()];
        [(format, format), (format, mlx5), (mlx5, format), (format, other)]
    })
}

/// Each operation once or more, so often that rings and CQs begin anew several times.
pub(crate) fn every_operation(rig: &mut Rig, rng: &mut StdRng) {
    for round in 0..40u32 {
        rig.fill(rng);
        let (from, to) = (rng.random_range(0..4096u64), rng.random_range(0..4096u64));
        let len = [1, 8, 0, 1023, 1024, 1025, 4000][rng.random_range(0..7)];
        let two = [rig.sge(from, len / 2), rig.sge(from + 5000, len - len / 2)];
        let both =
            [rig.here(from, len as usize / 2), rig.here(from + 5000, (len - len / 2) as usize)]
                .concat();
        assert_eq!(rig.finish(Op::Write(rig.there(to)), Data::Sges(&two)), None);
        assert_eq!(rig.at_peer(to, len as usize), both, "WRITE of {len}");
        // Eight bytes, by the short way.
        let one = [rig.sge(from, 8)];
        rig.finish(Op::Write(rig.there(to + 4096)), Data::Sges(&one));
        assert_eq!(rig.at_peer(to + 4096, 8), rig.here(from, 8));
        let mut inline = [0; 32];
        rng.fill_bytes(&mut inline);
        let inline = &inline[..rng.random_range(0..=32)];
        rig.finish(Op::Write(rig.there(to)), Data::Inline(inline));
        assert_eq!(rig.at_peer(to, inline.len()), inline);

        let imm = rng.next_u32();
        let room = Sge::new(rig.mr_b.addr() + 8192, 4096, rig.mr_b.lkey());
        for (op, data, kind) in [
            (Op::Send, Data::Sges(&two), ReceivedKind::Send),
            (Op::SendImm(imm), Data::Sges(&two), ReceivedKind::SendImm(imm)),
            (Op::WriteImm(rig.there(to), imm), Data::Sges(&two), ReceivedKind::WriteImm(imm)),
            (Op::SendImm(!imm), Data::Inline(inline), ReceivedKind::SendImm(!imm)),
        ] {
            let (sent, at) = match data {
                Data::Inline(bytes) => (bytes.to_vec(), 8192),
                Data::Sges(_) => (both.clone(), if kind.fills_receive() { 8192 } else { to }),
            };
            rig.b.post_recv(&[room]);
            let len = sent.len() as u32;
            let received = Reported::Received { kind, len, status: Status::Success };
            assert_eq!(rig.finish(op, data), Some(received));
            assert_eq!(rig.at_peer(at, sent.len()), sent, "{op:?}");
        }

        let there = rig.at_peer(to, len as usize);
        rig.finish(Op::Read(rig.there(to)), Data::Sges(&two));
        let half = len as usize / 2;
        assert_eq!(rig.here(from, half), there[..half]);
        assert_eq!(rig.here(from + 5000, len as usize - half), there[half..]);
        let (word, result) = (8 * u64::from(round), [rig.sge(64, 8)]);
        let value = |rig: &Rig| u64::from_ne_bytes(rig.at_peer(word, 8).try_into().unwrap());
        let before = value(rig);
        let add = rng.next_u64();
        rig.finish(Op::FetchAdd { remote: rig.there(word), add }, Data::Sges(&result));
        assert_eq!(rig.here(64, 8), before.to_ne_bytes());
        let (compare, swap) = (before.wrapping_add(add), rng.next_u64());
        assert_eq!(value(rig), compare);
        let op = Op::CompareSwap { remote: rig.there(word), compare, swap };
        rig.finish(op, Data::Sges(&result));
        assert_eq!((value(rig), rig.here(64, 8)), (swap, compare.to_ne_bytes().to_vec()));
    }
    for nic in &rig.nics {
        assert_eq!(nic.take_violations(), []);
    }
}

#[test]
fn every_operation_works_in_every_format() {
    let (seed, mut rng) = rng();
    println!("WARPVERBS_SEED={seed}");
    for (a, b) in pairs() {
        println!("{a:?} to {b:?}");
        every_operation(&mut Rig::new(a, b, false, Config::default()), &mut rng);
    }
}

#[test]
fn every_operation_works_between_nics() {
    let (seed, mut rng) = rng();
    println!("WARPVERBS_SEED={seed}");
    for (a, b) in pairs() {
        println!("{a:?} to {b:?}");
        every_operation(&mut Rig::new(a, b, true, Config::default()), &mut rng);
    }
}

#[test]
fn a_completion_reports_what_was_not_signalled() {
    for (format, apart) in QueueFormat::ALL.into_iter().flat_map(|f| [(f, false), (f, true)]) {
        let mut rig = Rig::new(format, format, apart, Config::default());
        let (from, to) = ([rig.sge(0, 8)], rig.there(0));
        let mut posted = 0;
        for batch in 1..60u64 {
            let of = 1 + batch % 9;
            for i in 1..=of {
                let flags = if i == of { SendFlags::SIGNALED } else { SendFlags::UNSIGNALED };
                rig.a.put(&request(Op::Write(to), Data::Sges(&from), flags));
                posted += 1;
            }
            rig.a.ring();
            rig.run();
            let last = if format == QueueFormat::Mlx5 { posted - 1 } else { posted };
            let done = Reported::Sent { count: last, status: Status::Success };
            assert_eq!((rig.a.poll_send(), rig.a.poll_send()), (Some(done), None), "{format:?}");
        }
        assert_eq!(rig.nics[0].take_violations(), []);
    }
}

/// The failure is reported, and the library learns of the rest.
#[test]
fn a_failure_ends_the_queue_in_every_format() {
    for (format, apart) in QueueFormat::ALL.into_iter().flat_map(|f| [(f, false), (f, true)]) {
        let mut rig = Rig::new(format, format, apart, Config::default());
        let (from, bad) = ([rig.sge(0, 8)], Remote { rkey: Rkey(0xdead), ..rig.there(0) });
        rig.b.post_recv(&from);
        let write = |to, flags| request(Op::Write(to), Data::Sges(&from), flags);
        for _ in 0..3 {
            rig.a.put(&write(rig.there(0), SendFlags::UNSIGNALED));
        }
        rig.a.put(&write(bad, SendFlags::UNSIGNALED));
        for _ in 0..2 {
            rig.a.put(&write(rig.there(0), SendFlags::SIGNALED));
        }
        rig.a.ring();
        rig.run_for(Duration::from_secs(2));
        let found: Vec<Reported> = std::iter::from_fn(|| rig.a.poll_send()).collect();
        let sent = |count, status| Reported::Sent { count, status };
        let flushed = |count| sent(count, Status::Flushed);
        let expected = match format {
            QueueFormat::Mlx5 => vec![sent(3, Status::RemoteAccess), flushed(4), flushed(5)],
            QueueFormat::IonicV1 | QueueFormat::IonicV2 => {
                vec![sent(4, Status::RemoteAccess), Reported::Ended]
            }
            // Its failures are about the oldest that was not reported.
            _ => vec![sent(3, Status::Success), sent(4, Status::RemoteAccess), Reported::Ended],
        };
        assert_eq!(found, expected, "{format:?} {apart}");
        assert_eq!((rig.a.qp.state(), rig.b.qp.state()), (QpState::Err, QpState::Err));
        // The peer's receive was not used.
        let peer: Vec<Reported> = std::iter::from_fn(|| rig.b.poll_recv()).collect();
        let expected = match format {
            QueueFormat::Mlx5 => {
                let (kind, len, status) = (ReceivedKind::Send, 0, Status::Flushed);
                vec![Reported::Received { kind, len, status }]
            }
            QueueFormat::IonicV1 | QueueFormat::IonicV2 => vec![Reported::Ended],
            // Told in the CQ of sends, for both.
            _ => vec![],
        };
        assert_eq!(peer, expected, "{format:?} {apart}");
        rig.restart();
        rig.finish(Op::Write(rig.there(0)), Data::Sges(&from));
    }
}

#[test]
fn what_a_format_does_not_have_is_refused() {
    use QueueFormat::{BnxtStatic, IonicV2, Mlx5};
    let nic = SoftNic::new(Config::default()).unwrap();
    let pd = nic.alloc_pd();
    let page = nic.add_uar(&HostBuf::region(4096).unwrap()).unwrap();
    let doorbell_only = Default::default();
    let shared = Announcement::Uar { page, doorbell_only };
    let poster = |format, cqs, announcement: &Announcement| {
        let port = PortConfig { announcement: announcement.clone(), ..PortConfig::default() };
        Poster::with(&nic, &pd, [format, cqs], &port).map(drop)
    };
    let own = Announcement::Doorbell;
    for (format, other) in [(BnxtStatic, Mlx5), (Mlx5, IonicV2), (IonicV2, BnxtStatic)] {
        assert!(poster(format, format, &own).is_ok());
        let foreign = NicError::Foreign { what: "send CQ", owner: "format of queues" };
        assert_eq!(poster(format, other, &own), Err(foreign));
        // In plain memory, rings of a register that queues share are lost.
        let what = "a register that QPs share";
        let refused = Err(NicError::NotOfFormat { what });
        let expected = if format == Mlx5 { Ok(()) } else { refused };
        assert_eq!(poster(format, format, &shared), expected);
    }
}

/// Receives of an SRQ are taken in the order of its ring, and their CQEs have the tags that they carry.
#[test]
fn receives_of_a_shared_queue_carry_tags() {
    use warpverbs_bnxt::{doorbell::Kind, recv, ring::Ring};
    let format = QueueFormat::BnxtStatic;
    let nic = SoftNic::new(Config::default()).unwrap();
    let pd = nic.alloc_pd();
    let (buf, dbr) = (HostBuf::region(128 << 3).unwrap(), HostBuf::region(8).unwrap());
    let config = |dialect| SrqConfig {
        dialect,
        order: SrqOrder::Linked,
        buf: buf.clone(),
        log_size: 3,
        log_stride: 7,
        dbr: dbr.clone(),
    };
    let refused = NicError::NotOfFormat { what: "an SRQ" };
    assert_eq!(nic.create_srq(&pd, &config(Dialect::Ionic)).map(drop), Err(refused));
    let srq = nic.create_srq(&pd, &config(format.dialect())).unwrap();
    let region = HostBuf::region(4096).unwrap();
    let mr = nic.reg_mr(&pd, &region, Access::all()).unwrap();
    let port = PortConfig { receives: Receives::Shared(srq.clone()), ..PortConfig::default() };
    let mut a = Poster::new(&nic, &pd, QueueFormat::Mlx5, (CqMode::Ring, 5)).unwrap();
    let mut b = Poster::with(&nic, &pd, [format; 2], &port).unwrap();
    let (init, rts) = (QpAttrs::init(Access::all()), QpAttrs::rts());
    let (to_a, to_b) = (QpAttrs::rtr(a.qp.qpn()), QpAttrs::rtr(b.qp.qpn()));
    a.connect(&init, &to_b, &rts);
    b.connect(&init, &to_a, &rts);
    let ring = Ring::new(8, warpverbs_nic::BnxtLibrary::Current).unwrap();
    for round in 0..40u64 {
        let tag = (round * 7919 % (1 << 20)) as u32;
        let mut wqe = [0; 128];
        recv::build(&mut wqe, tag, &[Sge::new(mr.addr() + 64 * (round % 8), 64, mr.lkey())])
            .unwrap();
        buf.write(round % 8 * 128, &wqe).unwrap();
        let bell = ring.doorbell(Kind::Shared, srq.srqn(), round + 1).word();
        dbr.write(0, &bell.to_le_bytes()).unwrap();
        let inline = round.to_le_bytes();
        a.post(&request(Op::Send, Data::Inline(&inline), SendFlags::SIGNALED));
        rest([&nic]);
        let received =
            Reported::Received { kind: ReceivedKind::Send, len: 8, status: Status::Success };
        assert_eq!((b.poll_recv(), b.received_id()), (Some(received), tag));
        assert_eq!(bytes(&region, 64 * (round % 8), 8), inline);
        assert!(a.poll_send().is_some());
    }
    assert_eq!(nic.take_violations(), []);
}
