//! Two connected QPs on one device of the fake library.

use warpverbs_mem::{Access, HostBuf};
use warpverbs_verbs::testing::Fake;
use warpverbs_verbs::{
    Completion, Context, Cq, Data, Mr, Mtu, Op, Path, Pd, Qp, QpAttrs, QpCaps, QpOptions, QpState,
    RecvList, Registration, Remote, SendFlags, SendList, Sge, Srq,
};

pub(crate) const ALL: Access = Access::all().difference(Access::INVALIDATE);

/// One end.
pub(crate) struct End {
    pub(crate) qp: Qp,
    pub(crate) cq: Cq,
    pub(crate) mr: Mr,
    pub(crate) pd: Pd,
}

impl End {
    pub(crate) fn new(context: &Context, srq: impl FnOnce(&Pd) -> Option<Srq>) -> Self {
        let pd = Pd::new(context).unwrap();
        let cq = Cq::new(context, 64).unwrap();
        let region = HostBuf::region(4096).unwrap();
        let mr = Mr::register(&pd, &region, Registration::new(ALL)).unwrap();
        let options = QpOptions::new(&cq);
        let caps = QpCaps { max_send_wr: 16, max_recv_wr: 16, max_inline: 64, ..options.caps };
        let qp = Qp::new(&pd, &QpOptions { srq: srq(&pd), caps, ..options }).unwrap();
        Self { qp, cq, mr, pd }
    }

    pub(crate) fn connect(&self, peer: &Self) {
        let gid = self.pd.context().choose_gid(1).unwrap().entry;
        let path = Path::roce(1, gid.index as u8, gid.gid);
        self.qp.modify(QpState::Init, &QpAttrs::init(1, ALL)).unwrap();
        let rtr = QpAttrs::rtr(path, Mtu::B1024, peer.qp.qpn(), 77);
        self.qp.modify(QpState::Rtr, &rtr).unwrap();
        self.qp.modify(QpState::Rts, &QpAttrs::rts(77)).unwrap();
    }

    /// `len` bytes at `offset`, as the peer names them.
    pub(crate) fn remote(&self, offset: u64) -> Remote {
        Remote::new(self.mr.region().addr() + offset, self.mr.rkey())
    }

    pub(crate) fn send(&self, id: u64, op: Op, sges: &[Sge]) {
        let mut list = SendList::new(1, 4, 0);
        list.push(id, op, Data::Sges(sges), SendFlags::SIGNALED).unwrap();
        self.qp.post_send(&mut list).unwrap();
    }

    pub(crate) fn receive(&self, id: u64, offset: u64, len: u32) {
        let mut list = RecvList::new(1, 1);
        list.push(id, &[self.mr.sge(offset, len).unwrap()]).unwrap();
        self.qp.post_recv(&mut list).unwrap();
    }

    pub(crate) fn poll(&self) -> Vec<Completion> {
        let mut out = [Completion::default(); 16];
        let count = self.cq.poll(&mut out).unwrap();
        out[..count].to_vec()
    }

    pub(crate) fn bytes(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.mr.region().read(offset, &mut out).unwrap();
        out
    }
}

/// A connected pair on `fake0`.
pub(crate) fn pair(fake: &Fake) -> (End, End) {
    let context = fake.verbs().device("fake0").unwrap().open().unwrap();
    let (a, b) = (End::new(&context, |_| None), End::new(&context, |_| None));
    a.connect(&b);
    b.connect(&a);
    (a, b)
}
