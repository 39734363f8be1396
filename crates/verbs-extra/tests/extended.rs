//! Extended CQs and QPs.

use nix::errno::Errno;
use warpverbs_mem::{Access, HostBuf};
use warpverbs_verbs::testing::{Fake, Live, fake};
use warpverbs_verbs::{
    AttrMask, Context, CqOptions, Data, Mr, Mtu, Op, Path, Pd, Qp, QpAttrs, QpCaps, QpOptions,
    QpState, RecvList, Registration, Remote, Rkey, SendFlags, Status, VerbsError, WcOpcode,
};
use warpverbs_verbs_extra::{
    Alternate, BatchError, CompletionFields, ExtendedCq, ExtendedQp, ExtraAttr, ExtraError,
    Migration, Offer, OnDemandMr, Polled, SendOps, alternate,
};

const ALL: Access = Access::all().difference(Access::INVALIDATE);

const OPS: SendOps = SendOps::all();
/// `IBV_QP_EX_WITH_TSO`, which no RC QP has.
const SEGMENTS: SendOps = SendOps::from_bits_retain(1 << 10);
const FIELDS: CompletionFields = CompletionFields::CLASSIC.union(CompletionFields::TIMESTAMP);
const SIGNALED: SendFlags = SendFlags::SIGNALED;

/// A QP connected to itself, and its memory.
struct Ring {
    qp: ExtendedQp,
    cq: ExtendedCq,
    mr: Mr,
}

fn open(fake: &Fake, name: &str) -> Context {
    fake.verbs().device(name).unwrap().open().unwrap()
}

fn cq_options(entries: u32) -> CqOptions {
    CqOptions::new(entries)
}

fn qp_options(cq: &ExtendedCq) -> QpOptions {
    let options = QpOptions::new(cq.cq());
    let caps = QpCaps { max_send_wr: 16, max_send_sge: 2, max_inline: 32, ..options.caps };
    QpOptions { caps, ..options }
}

fn connect(qp: &Qp, context: &Context) {
    let gid = context.choose_gid(1).unwrap().entry;
    let path = Path::roce(1, gid.index as u8, gid.gid);
    qp.modify(QpState::Init, &QpAttrs::init(1, ALL)).unwrap();
    qp.modify(QpState::Rtr, &QpAttrs::rtr(path, Mtu::B1024, qp.qpn(), 1)).unwrap();
    qp.modify(QpState::Rts, &QpAttrs::rts(1)).unwrap();
}

impl Ring {
    fn new(fake: &Fake) -> Self {
        let context = open(fake, "fake0");
        let pd = Pd::new(&context).unwrap();
        let cq = ExtendedCq::new(&context, &cq_options(64), FIELDS).unwrap();
        let mr = Mr::register(&pd, &HostBuf::region(4096).unwrap(), Registration::new(ALL));
        let qp = ExtendedQp::new(&pd, &qp_options(&cq), OPS).unwrap();
        connect(qp.qp(), &context);
        Self { qp, cq, mr: mr.unwrap() }
    }

    fn remote(&self, offset: u64) -> Remote {
        Remote::new(self.mr.region().addr() + offset, self.mr.rkey())
    }

    fn bytes<const N: usize>(&self, offset: u64) -> [u8; N] {
        let mut out = [0; N];
        self.mr.region().read(offset, &mut out).unwrap();
        out
    }

    fn receive(&self, id: u64, offset: u64, len: u32) {
        let mut list = RecvList::new(1, 1);
        list.push(id, &[self.mr.sge(offset, len).unwrap()]).unwrap();
        self.qp.qp().post_recv(&mut list).unwrap();
    }

    /// The result of `look` for each completion that is there.
    fn poll<T>(&mut self, mut look: impl FnMut(&Polled<'_>) -> T) -> Vec<T> {
        let mut polling = self.cq.poll();
        let mut out = Vec::new();
        while let Some(completion) = polling.next().unwrap() {
            out.push(look(&completion));
        }
        out
    }

    fn ended(&mut self) -> Vec<(u64, Status)> {
        self.poll(|c| (c.id(), c.status()))
    }
}

/// The other operations are tried on Linux's soft-RoCE, by the example `verbs_extended`.
#[test]
fn a_batch_moves_its_bytes_and_completions_tell_their_fields() {
    let Some(fake) = fake() else { return };
    let mut ring = Ring::new(&fake);
    ring.mr.region().write(0, b"original").unwrap();
    ring.receive(100, 1000, 64);
    ring.receive(101, 1100, 64);
    let [a, b] = [(0, 4), (4, 4)].map(|(at, len)| ring.mr.sge(at, len).unwrap());
    let (gathered, inline) = (Op::Write(ring.remote(100)), Op::Write(ring.remote(200)));
    let (none, read) = (SendFlags::empty(), Op::Read(ring.remote(100)));
    let mut batch = ring.qp.start().unwrap();
    assert!(batch.is_empty());
    batch.push(1, gathered, Data::Sges(&[b, a]), none).unwrap();
    batch.push(2, inline, Data::Inline(b"inline"), SIGNALED).unwrap();
    batch.push(3, Op::Send, Data::Sges(&[a]), none).unwrap();
    batch.push(4, Op::SendInvalidate(Rkey(77)), Data::Sges(&[]), none).unwrap();
    let asked = SendOps::READ;
    // A driver that grants an operation and has no function for it.
    let refused = batch.push(5, read, Data::Sges(&[a]), none).unwrap_err();
    assert_eq!(refused, BatchError::Operation { asked, made_for: OPS });
    assert_eq!((batch.len(), fake.begun()), (4, 1));
    batch.post().unwrap();
    assert_eq!(fake.begun(), 0);
    assert_eq!((ring.bytes(100), ring.bytes(200)), (*b"inalorig", *b"inline"));
    assert_eq!(ring.bytes(1000), *b"orig");
    let qpn = ring.qp.qp().qpn();
    let told = ring.poll(|c| {
        assert_eq!((c.status(), c.qpn()), (Status::Success, Some(qpn)));
        assert!(c.timestamp().is_some() && c.wallclock().is_none() && c.peer_qpn().is_none());
        assert_eq!(c.imm(), None);
        (c.id(), c.opcode(), c.byte_len().filter(|_| c.id() >= 100), c.invalidated_rkey())
    });
    let expected = [
        (2, WcOpcode::Write, None, None),
        (100, WcOpcode::Recv, Some(4), None),
        (101, WcOpcode::Recv, Some(0), Some(77)),
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_batch_that_is_dropped_posts_nothing_and_gives_the_queue_back() {
    let Some(fake) = fake() else { return };
    let mut ring = Ring::new(&fake);
    let to = Op::Write(ring.remote(100));
    {
        let mut batch = ring.qp.start().unwrap();
        batch.push(1, to, Data::Inline(b"never"), SIGNALED).unwrap();
    }
    assert_eq!((fake.begun(), ring.ended(), ring.bytes(100)), (0, vec![], [0; 5]));
    ring.qp.start().unwrap().post().unwrap();
    assert_eq!(fake.begun(), 0);
    let mut batch = ring.qp.start().unwrap();
    batch.push(2, to, Data::Inline(b"after"), SIGNALED).unwrap();
    batch.post().unwrap();
    assert_eq!((ring.ended(), ring.bytes(100)), (vec![(2, Status::Success)], *b"after"));
}

#[test]
fn what_does_not_fit_a_batch_is_refused_before_the_driver_sees_it() {
    let Some(fake) = fake() else { return };
    let mut ring = Ring::new(&fake);
    let (sge, remote) = (ring.mr.sge(0, 8).unwrap(), ring.remote(0));
    let max = ring.qp.qp().caps().max_send_sge;
    let many = vec![sge; max as usize + 1];
    let none = SendFlags::empty();
    let pd = ring.mr.pd().clone();
    let writer = ExtendedQp::new(&pd, &qp_options(&ring.cq), SendOps::WRITE);
    let asked = SendOps::SEND_INV;
    assert_eq!(
        writer.unwrap().start().unwrap().push(
            1,
            Op::SendInvalidate(Rkey(1)),
            Data::Sges(&[]),
            none
        ),
        Err(BatchError::Operation { asked, made_for: SendOps::WRITE })
    );
    let mut batch = ring.qp.start().unwrap();
    let mut refused = |op, data| batch.push(9, op, data, none).unwrap_err();
    let needed = many.len();
    assert_eq!(refused(Op::Send, Data::Sges(&many)), BatchError::Sges { needed, max });
    assert_eq!(
        refused(Op::Send, Data::Inline(&[0; 33])),
        BatchError::Inline { needed: 33, max: 32 }
    );
    let read = refused(Op::Read(remote), Data::Inline(b"x"));
    assert_eq!(read.to_string(), "READ takes no inline data");
    // The batch is as it was.
    batch.push(1, Op::Write(remote), Data::Sges(&[sge]), SIGNALED).unwrap();
    batch.post().unwrap();
    assert_eq!(ring.ended(), [(1, Status::Success)]);
}

#[test]
fn a_batch_that_the_queue_has_no_room_for_is_refused_whole() {
    let Some(fake) = fake() else { return };
    let mut ring = Ring::new(&fake);
    let remote = ring.remote(0);
    let mut post = |count: u64| {
        let mut batch = ring.qp.start()?;
        for id in 0..count {
            batch.push(id, Op::Write(remote), Data::Inline(b"x"), SIGNALED).unwrap();
        }
        batch.post()
    };
    let error = post(17).unwrap_err();
    assert_eq!((error.call, error.errno), ("ibv_wr_complete", Errno::ENOMEM));
    fake.fail_next("ibv_wr_complete", libc::EIO);
    assert_eq!(post(1).unwrap_err().errno, Errno::EIO);
    assert_eq!(fake.begun(), 0);
    post(3).unwrap();
    assert_eq!(ring.ended().len(), 3);
}

#[test]
fn a_poll_that_is_dropped_leaves_the_rest() {
    let Some(fake) = fake() else { return };
    let mut ring = Ring::new(&fake);
    let op = Op::Write(ring.remote(0));
    let mut batch = ring.qp.start().unwrap();
    for id in 0..4 {
        batch.push(id, op, Data::Inline(b"x"), SIGNALED).unwrap();
    }
    batch.post().unwrap();
    {
        let mut polling = ring.cq.poll();
        assert_eq!(fake.begun(), 0, "nothing is locked before the first");
        assert_eq!(polling.next().unwrap().map(|c| c.id()), Some(0));
        assert_eq!(polling.next().unwrap().map(|c| c.id()), Some(1));
        assert_eq!(fake.begun(), 1);
    }
    assert_eq!(fake.begun(), 0);
    let rest: Vec<_> = ring.ended().iter().map(|&(id, _)| id).collect();
    assert_eq!((rest, fake.begun()), (vec![2, 3], 0));
    // One guard may be asked again after it has found nothing.
    let Ring { qp, cq, .. } = &mut ring;
    let mut polling = cq.poll();
    assert!(polling.next().unwrap().is_none() && fake.begun() == 0);
    let mut batch = qp.start().unwrap();
    batch.push(9, op, Data::Inline(b"x"), SIGNALED).unwrap();
    batch.post().unwrap();
    assert_eq!(polling.next().unwrap().map(|c| c.id()), Some(9));
    fake.fail_next("ibv_next_poll", libc::EIO);
    assert_eq!(polling.next().unwrap_err().call, "ibv_next_poll");
    assert_eq!(fake.begun(), 0);
    fake.fail_next("ibv_start_poll", libc::EIO);
    assert_eq!(polling.next().unwrap_err().call, "ibv_start_poll");
    assert_eq!(fake.begun(), 0);
}

#[test]
fn a_failure_is_told_with_the_vendors_code() {
    let Some(fake) = fake() else { return };
    let mut ring = Ring::new(&fake);
    let beyond = Op::Write(ring.remote(4090));
    let mut batch = ring.qp.start().unwrap();
    batch.push(1, beyond, Data::Inline(b"too long"), SendFlags::empty()).unwrap();
    batch.push(2, Op::Send, Data::Sges(&[]), SendFlags::empty()).unwrap();
    batch.post().unwrap();
    let told = ring.poll(|c| (c.id(), c.status(), c.vendor_error(), format!("{c:?}")));
    assert_eq!((told[0].0, told[0].1, told[0].2), (1, Status::RemoteAccess, 0x77));
    assert!(told[0].3.contains("RemoteAccess") && told[0].3.contains("0x77"), "{told:?}");
    assert_eq!((told[1].0, told[1].1), (2, Status::Flushed));
}

#[test]
fn guards_that_are_forgotten_are_told_and_free_nothing() {
    let Some(fake) = fake() else { return };
    let before = fake.live();
    let mut ring = Ring::new(&fake);
    let op = Op::Write(ring.remote(0));
    let mut batch = ring.qp.start().unwrap();
    batch.push(1, op, Data::Inline(b"x"), SIGNALED).unwrap();
    batch.post().unwrap();
    let mut polling = ring.cq.poll();
    assert!(polling.next().unwrap().is_some());
    std::mem::forget(polling);
    assert_eq!(ring.cq.poll().next().unwrap_err().errno, Errno::EDEADLK);
    std::mem::forget(ring.qp.start().unwrap());
    assert_eq!(ring.qp.start().unwrap_err().errno, Errno::EDEADLK);
    // Both keep their locks for good, and destroying a lock that is held is undefined.
    drop(ring);
    let after = fake.live();
    assert_eq!((after.qps, after.cqs, fake.begun()), (before.qps + 1, before.cqs + 1, 2));
    drop(fake);
    // Nor does what stays count against the test that comes next.
    let Some(fake) = self::fake() else { return };
    assert_eq!((fake.live(), fake.begun()), (Live::default(), 0));
}

#[test]
fn what_a_device_does_not_offer_is_named() {
    let Some(fake) = fake() else { return };
    let before = fake.live();
    let (new, old) = (open(&fake, "fake0"), open(&fake, "fake1"));
    let offer = |error: ExtraError| match error {
        ExtraError::NotOffered { what, .. } => what,
        other => panic!("{other}"),
    };
    let fields = CompletionFields::all();
    let refused = ExtendedCq::new(&new, &cq_options(1), fields).unwrap_err();
    assert_eq!(refused.to_string(), "fake0 does not offer completions with WALLCLOCK");
    assert_eq!(offer(refused), Offer::CompletionFields(CompletionFields::WALLCLOCK));
    let refused = ExtendedCq::new(&old, &cq_options(1), FIELDS).unwrap_err();
    assert_eq!(offer(refused), Offer::ExtendedCqs);
    let refused = ExtendedCq::new(&new, &cq_options(0), FIELDS).unwrap_err();
    assert!(matches!(refused, ExtraError::Verbs(VerbsError::OutOfRange { .. })), "{refused}");
    fake.fail_next("ibv_create_cq_ex", libc::ENOMEM);
    let refused = ExtendedCq::new(&new, &cq_options(1), FIELDS).unwrap_err().to_string();
    assert!(refused.starts_with("ibv_create_cq_ex failed: ENOMEM"), "{refused}");

    let cq = ExtendedCq::new(&new, &cq_options(1), FIELDS).unwrap();
    let pd = Pd::new(&new).unwrap();
    let refused = ExtendedQp::new(&pd, &qp_options(&cq), OPS | SEGMENTS).unwrap_err();
    assert_eq!(refused.to_string(), "fake0 does not offer batches with 0x400");
    assert_eq!(offer(refused), Offer::SendOps(SEGMENTS));
    fake.fail_next("ibv_qp_to_qp_ex", libc::EINVAL);
    let refused = ExtendedQp::new(&pd, &qp_options(&cq), OPS).unwrap_err();
    assert_eq!(offer(refused), Offer::ExtendedQps);
    let old_cq = warpverbs_verbs::Cq::new(&old, 1).unwrap();
    let old_pd = Pd::new(&old).unwrap();
    let refused = ExtendedQp::new(&old_pd, &QpOptions::new(&old_cq), OPS).unwrap_err();
    assert_eq!(offer(refused), Offer::ExtendedQps);
    let mut options = qp_options(&cq);
    options.caps.max_send_wr = 100_000;
    let refused = ExtendedQp::new(&pd, &options, OPS).unwrap_err().to_string();
    assert_eq!(refused, "max_send_wr is 100000, supported are 0 to 1024");
    let [told, nothing] = [&new, &old].map(|context| ExtraAttr::of(context).unwrap());
    let clock = told.clock.unwrap();
    assert_eq!((clock.khz, clock.mask, nothing.clock), (1_000_000, u64::MAX, None));
    assert_eq!((told.on_demand.is_some(), nothing.on_demand), (true, None));
    assert_eq!(told.atomics, nothing.atomics);
    drop((cq, pd, old_cq, old_pd, new, old, options));
    assert_eq!(fake.live(), before, "objects that were made to find out are gone");
}

#[test]
fn an_extended_cq_is_polled_in_its_own_way_only() {
    let Some(fake) = fake() else { return };
    let mut ring = Ring::new(&fake);
    let error = ring.cq.cq().poll(&mut [Default::default()]).unwrap_err();
    assert_eq!((error.call, error.errno), ("ibv_poll_cq", Errno::EINVAL));
    assert!(ring.cq.cq().resize(8).is_err());
    ring.cq.resize(8).unwrap();
    assert_eq!((ring.cq.cq().capacity(), ring.cq.fields()), (8, FIELDS));
    // The QP is used as any other.
    let (state, attrs) = ring.qp.qp().query(AttrMask::DEST_QPN).unwrap();
    assert_eq!((state, attrs.dest_qpn), (QpState::Rts, Some(ring.qp.qp().qpn())));
}

#[test]
fn memory_is_paged_on_demand_where_the_device_can() {
    let Some(fake) = fake() else { return };
    let [with, without] = ["fake0", "fake1"].map(|name| Pd::new(&open(&fake, name)).unwrap());
    let region = HostBuf::region(4096).unwrap();
    let registration = Registration::new(ALL);
    let memory = OnDemandMr::register(&with, &region, registration).unwrap();
    assert_eq!(fake.mr_access(memory.mr().lkey()), Some(0b1111 | 1 << 6));
    memory.prefetch(0, 4096).unwrap();
    let refused = memory.prefetch(1, 4096).unwrap_err();
    assert!(matches!(refused, ExtraError::Verbs(VerbsError::OutOfRange { .. })), "{refused}");
    fake.fail_next("ibv_advise_mr", libc::EOPNOTSUPP);
    let error = memory.prefetch(0, 1).unwrap_err().to_string();
    assert!(error.starts_with("ibv_advise_mr failed: EOPNOTSUPP"), "{error}");
    let refused = OnDemandMr::register(&without, &region, registration).unwrap_err();
    let words = "fake1 does not offer on-demand paging (IBV_ODP_SUPPORT)";
    assert_eq!(refused.to_string(), words);
}

#[test]
fn alternate_paths_are_refused_on_ethernet() {
    let Some(fake) = fake() else { return };
    let ring = Ring::new(&fake);
    let (qp, context) = (ring.qp.qp(), ring.mr.pd().context());
    let gid = context.choose_gid(1).unwrap().entry;
    let path = Path::roce(1, gid.index as u8, gid.gid);
    qp.modify(QpState::Reset, &QpAttrs::default()).unwrap();
    qp.modify(QpState::Init, &QpAttrs::init(1, ALL)).unwrap();
    qp.modify(QpState::Rtr, &QpAttrs::rtr(path, Mtu::B1024, qp.qpn(), 0)).unwrap();
    let second = Some(Alternate { path, pkey_index: 0, timeout: 14 });
    let (rts, rearm) = (QpAttrs::rts(0), Some(Migration::Rearm));
    let refused = alternate::modify(qp, QpState::Rts, &rts, second, rearm).unwrap_err();
    let text = refused.to_string();
    assert!(text.contains("ALTERNATE: Linux has alternate paths on InfiniBand only"), "{text}");
    qp.modify(QpState::Rts, &rts).unwrap();
    assert_eq!(alternate::query(qp).unwrap().1, Some(Migration::Migrated));
}
