//! Objects keep alive those they stand on, and nothing is left over.

use crate::pair::{ALL, End, pair};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use warpverbs_mem::{Access, Backing, HostBuf, Kind, Region};
use warpverbs_verbs::testing::fake;
use warpverbs_verbs::{
    CompChannel, Context, Cq, CqOptions, Mr, Op, Pd, Qp, QpOptions, Registration, Srq, SrqOptions,
    VerbsError,
};

/// Memory that tells when it is freed.
struct Watched {
    memory: HostBuf,
    freed: Arc<AtomicBool>,
}

// SAFETY: the memory is `memory`'s, which lives as long.
unsafe impl Backing for Watched {
    fn addr(&self) -> u64 {
        self.memory.addr()
    }

    fn len(&self) -> usize {
        self.memory.len()
    }

    fn kind(&self) -> Kind {
        Kind::Host
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.freed.store(true, Ordering::SeqCst);
    }
}

fn watched() -> (Region, Arc<AtomicBool>) {
    let freed = Arc::new(AtomicBool::new(false));
    let memory = HostBuf::new(4096).unwrap();
    (Region::new(Watched { memory, freed: freed.clone() }), freed)
}

#[test]
fn a_refusal_without_a_reason_is_one_of_the_request() {
    let Some(fake) = fake() else { return };
    let context = fake.verbs().device("fake0").unwrap().open().unwrap();
    let (pd, cq) = (Pd::new(&context).unwrap(), Cq::with(&context, &CqOptions::new(4)).unwrap());
    fake.fail_next("ibv_create_qp", -1);
    // Of an earlier call.
    nix::errno::Errno::EAGAIN.set();
    let error = Qp::new(&pd, &QpOptions::new(&cq)).unwrap_err();
    assert!(error.is_invalid(), "{error}");
}

#[test]
fn objects_may_be_dropped_in_any_order() {
    let Some(fake) = fake() else { return };
    // Every order of six objects that stand on one another.
    let mut order = [0usize, 1, 2, 3, 4, 5];
    let mut seen = 0;
    // Another test leaves memory registered.
    let before = fake.live();
    permutations(&mut order, 0, &mut |order| {
        let context = fake.verbs().device("fake0").unwrap().open().unwrap();
        let channel = CompChannel::new(&context).unwrap();
        let options = CqOptions::new(4).channel(&channel, 0);
        let cq = Cq::with(&context, &options).unwrap();
        drop(options);
        let pd = Pd::new(&context).unwrap();
        let srq = Srq::new(&pd, SrqOptions { max_wr: 1, max_sge: 1 }).unwrap();
        let qp = Qp::new(&pd, &QpOptions { srq: Some(srq.clone()), ..QpOptions::new(&cq) });
        let mut objects: [Option<Box<dyn Send>>; 6] = [
            Some(Box::new(context)),
            Some(Box::new(channel)),
            Some(Box::new(cq)),
            Some(Box::new(pd)),
            Some(Box::new(srq)),
            Some(Box::new(qp.unwrap())),
        ];
        for &index in order {
            objects[index] = None;
        }
        assert_eq!(fake.live(), before, "{order:?}");
        seen += 1;
    });
    assert_eq!(seen, 720);
}

fn permutations(items: &mut [usize; 6], at: usize, visit: &mut impl FnMut(&[usize; 6])) {
    if at == items.len() {
        return visit(items);
    }
    for other in at..items.len() {
        items.swap(at, other);
        permutations(items, at + 1, visit);
        items.swap(at, other);
    }
}

#[test]
fn memory_lives_while_the_device_may_touch_it() {
    let Some(fake) = fake() else { return };
    let (a, b) = pair(&fake);
    let (region, freed) = watched();
    let mr = Mr::register(&b.pd, &region, Registration::new(ALL)).unwrap();
    let remote = warpverbs_verbs::Remote::new(region.addr(), mr.rkey());
    drop(region);
    assert!(!freed.load(Ordering::SeqCst));
    a.send(1, Op::Write(remote), &[a.mr.sge(0, 8).unwrap()]);
    assert!(a.poll()[0].is_success());
    drop(mr);
    assert!(freed.load(Ordering::SeqCst));
    a.send(2, Op::Write(remote), &[a.mr.sge(0, 8).unwrap()]);
    assert!(!a.poll()[0].is_success(), "the key is gone");
}

#[test]
fn memory_that_the_device_keeps_is_never_freed() {
    let Some(fake) = fake() else { return };
    let context = fake.verbs().device("fake0").unwrap().open().unwrap();
    let pd = Pd::new(&context).unwrap();
    let (region, freed) = watched();
    let mr = Mr::register(&pd, &region, Registration::new(ALL)).unwrap();
    drop(region);
    fake.fail_next("ibv_dereg_mr", libc::EBUSY);
    let regions = fake.live().mrs;
    drop(mr);
    assert!(!freed.load(Ordering::SeqCst));
    assert_eq!(fake.live().mrs, regions);
}

#[test]
fn memory_is_registered_as_asked() {
    let Some(fake) = fake() else { return };
    let context = fake.verbs().device("fake0").unwrap().open().unwrap();
    let pd = Pd::new(&context).unwrap();
    let region = HostBuf::region(4096).unwrap();
    let refused = Mr::register(&pd, &region, Registration::new(Access::REMOTE_WRITE)).unwrap_err();
    assert_eq!(refused, VerbsError::NeedsLocalWrite { asked: Access::REMOTE_WRITE });
    let empty = region.slice(8, 0).unwrap();
    assert!(matches!(
        Mr::register(&pd, &empty, Registration::new(ALL)),
        Err(VerbsError::OutOfRange { .. })
    ));
    let relaxed = Registration::new(ALL).relaxed_ordering(true);
    let mr = Mr::register(&pd, &region, relaxed).unwrap();
    assert_eq!(mr.registration(), relaxed);
    assert_eq!(fake.mr_access(mr.lkey()), Some(0b1111 | 1 << 20));
    assert!(mr.sge(4090, 6).is_ok() && mr.sge(4090, 7).is_err() && mr.sge(u64::MAX, 1).is_err());
}

#[test]
fn a_dmabuf_is_registered_at_its_offset_under_the_regions_addresses() {
    let Some(fake) = fake() else { return };
    let context = fake.verbs().device("fake0").unwrap().open().unwrap();
    let pd = Pd::new(&context).unwrap();
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let region = HostBuf::region(4096).unwrap();
    let register =
        |offset| Mr::register_dmabuf(&pd, &region, file.as_fd(), offset, Registration::new(ALL));
    let mr = register(4096).unwrap();
    assert_eq!(mr.sge(16, 1).unwrap().addr, region.addr() + 16);
    assert!(register(1 << 40).is_err(), "beyond the dmabuf");
    let refused = register(4097).unwrap_err();
    assert_eq!(refused, VerbsError::DmabufOffset { offset: 4097, addr: region.addr() });
}

#[test]
fn objects_of_two_contexts_do_not_mix() {
    let Some(fake) = fake() else { return };
    let device = fake.verbs().device("fake0").unwrap();
    let (one, two): (Context, Context) = (device.open().unwrap(), device.open().unwrap());
    let (pd, cq) = (Pd::new(&one).unwrap(), Cq::new(&two, 1).unwrap());
    let refused = Qp::new(&pd, &QpOptions::new(&cq)).unwrap_err();
    assert_eq!(refused, VerbsError::OtherContext { object: "send CQ" });
    let channel = CompChannel::new(&two).unwrap();
    let options = CqOptions::new(1).channel(&channel, 0);
    assert!(matches!(Cq::with(&one, &options), Err(VerbsError::OtherContext { .. })));
    let cq = Cq::new(&one, 1).unwrap();
    let srq = Srq::new(&Pd::new(&two).unwrap(), SrqOptions { max_wr: 1, max_sge: 1 }).unwrap();
    let options = QpOptions { srq: Some(srq), ..QpOptions::new(&cq) };
    let refused = Qp::new(&pd, &options).unwrap_err();
    assert_eq!(refused, VerbsError::OtherContext { object: "SRQ" });
}

#[test]
fn what_a_device_does_not_have_is_named() {
    let Some(fake) = fake() else { return };
    let context = fake.verbs().device("fake0").unwrap().open().unwrap();
    let end = End::new(&context, |_| None);
    let mut options = QpOptions::new(&end.cq);
    options.caps.max_send_wr = 100_000;
    let error = Qp::new(&end.pd, &options).unwrap_err().to_string();
    assert_eq!(error, "max_send_wr is 100000, supported are 0 to 1024");
    assert!(Cq::new(&context, 0).is_err());
    let channel = CompChannel::new(&context).unwrap();
    let options = CqOptions::new(1).channel(&channel, 2);
    let error = Cq::with(&context, &options).unwrap_err().to_string();
    assert_eq!(error, "completion vector is 2, supported are 0 to 1");
}
