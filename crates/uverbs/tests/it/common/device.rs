//! A device that counts its objects and remembers what it was asked for.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use warpverbs_rdma::{Mtu, QpState};
use warpverbs_uverbs::{
    Attributes, BnxtLibrary, CqRequest, Device, Driver, Errno, EventForm, EventSource, Gid,
    MrRequest, OpenQp, Port, Profile, QpRequest, QpStatus, Refusal, ResizeRequest, SrqRequest, Uar,
    UarKind,
};

/// The last request to the device, of each kind.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) mr: Option<MrRequest>,
    /// Of the last address handle.
    pub(crate) gid: Option<[u8; 16]>,
    pub(crate) cq: Option<CqRequest>,
    pub(crate) srq: Option<SrqRequest>,
    pub(crate) qp: Option<QpRequest>,
    /// The doorbell page of that QP.
    pub(crate) uar: Option<u32>,
    pub(crate) attrs: Vec<(QpState, Attributes)>,
    pub(crate) mailbox: Vec<u8>,
    pub(crate) resize: Option<ResizeRequest>,
    pub(crate) limit: u16,
    /// Whether QPs answer that their send queue is draining.
    pub(crate) draining: bool,
    pub(crate) psns: (Option<u32>, Option<u32>),
    /// The last call of `report`.
    pub(crate) report: Option<(EventSource, EventForm)>,
}

#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) profile: Profile,
    pub(crate) live: Rc<Cell<usize>>,
    pub(crate) seen: Rc<RefCell<Seen>>,
    next: Rc<Cell<u32>>,
    /// Each report holds it.
    pub(crate) reports: Rc<Cell<usize>>,
    pub(crate) uars: Rc<Cell<u32>>,
    /// Number of the next descriptor.
    pub(crate) fd: Rc<Cell<u32>>,
    /// The file that each open descriptor stands for.
    files: Rc<RefCell<BTreeMap<u32, u64>>>,
    /// The next operations fail with this.
    pub(crate) fails: Rc<Cell<Option<Errno>>>,
}

/// An object; the device knows how many there are.
pub(crate) struct Token {
    live: Rc<Cell<usize>>,
    pub(crate) state: Cell<QpState>,
    /// Of a channel: its file, and those that the program has not closed.
    file: Option<u64>,
    files: Rc<RefCell<BTreeMap<u32, u64>>>,
}

impl Token {
    fn is_closed(&self) -> bool {
        self.file.is_some_and(|file| !self.files.borrow().values().any(|open| *open == file))
    }
}

impl Drop for Token {
    /// A channel that was closed does not count any more.
    fn drop(&mut self) {
        self.live.set(self.live.get() - usize::from(!self.is_closed()));
    }
}

impl Default for Model {
    fn default() -> Self {
        let gid =
            std::array::from_fn(|i| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 127, 0, 0, 1][i]);
        let profile = Profile {
            driver: Driver::Mlx5,
            fw_ver: 7 << 32,
            node_guid: 0x0200_00ff_fe00_0001,
            vendor_part_id: 4129,
            max_qp: 1024,
            max_qp_wr: 32768,
            max_sge: 30,
            max_cq: 1 << 20,
            max_cqe: 1 << 22,
            max_mr: 1 << 20,
            max_pd: 1 << 20,
            max_qp_rd_atom: 16,
            max_srq: 1 << 20,
            max_srq_wr: 32768,
            comp_vectors: 1,
            cqe_version: 1,
            port: Port { max_mtu: Mtu::B4096, active_mtu: Mtu::B1024, max_msg_sz: 1 << 30 },
            gids: vec![Gid { gid, ifindex: 1 }],
        };
        let next = Rc::new(Cell::new(0x40));
        let (live, seen, uars) = (Rc::default(), Rc::default(), Rc::default());
        let fd = Rc::new(Cell::new(100));
        let (reports, files) = (Rc::default(), Rc::default());
        Self { profile, live, seen, next, reports, uars, fd, files, fails: Rc::default() }
    }
}

/// Offset of the doorbell page of bnxt_re and ionic.
pub(crate) const DOORBELLS: u64 = 0x12_3456_7000;

impl Model {
    /// A device of bnxt_re.
    pub(crate) fn bnxt() -> Self {
        let model = Self::default();
        let driver = Driver::Bnxt { doorbells: DOORBELLS, library: BnxtLibrary::Early };
        let profile =
            Profile { driver, max_sge: 6, max_qp_wr: 32639, cqe_version: 0, ..model.profile };
        Self { profile, ..model }
    }

    /// A device of ionic.
    pub(crate) fn ionic() -> Self {
        let model = Self::default();
        let driver = Driver::Ionic { doorbells: DOORBELLS };
        Self { profile: Profile { driver, cqe_version: 0, ..model.profile }, ..model }
    }

    /// The number of the newest object.
    pub(crate) fn newest(&self) -> u32 {
        self.next.get()
    }

    fn token(&self) -> Result<(Token, u32), Refusal> {
        if let Some(errno) = self.fails.get() {
            return Err(Refusal::new(errno, "as the test wants"));
        }
        self.live.set(self.live.get() + 1);
        self.next.set(self.next.get() + 1);
        let state = Cell::new(QpState::Reset);
        let (live, files) = (self.live.clone(), self.files.clone());
        Ok((Token { live, state, file: None, files }, self.next.get()))
    }

    /// The program closes a descriptor.
    pub(crate) fn close(&self, fd: u32) {
        let mut files = self.files.borrow_mut();
        let Some(closed) = files.remove(&fd) else { return };
        if !files.values().any(|open| *open == closed) {
            self.live.set(self.live.get() - 1);
        }
    }

    /// The program duplicates a descriptor.
    pub(crate) fn dup(&self, fd: u32) -> u32 {
        let copy = self.fd.replace(self.fd.get() + 1);
        let file = self.files.borrow()[&fd];
        self.files.borrow_mut().insert(copy, file);
        copy
    }

    /// How many descriptors of channels are open.
    pub(crate) fn descriptors(&self) -> usize {
        self.files.borrow().len()
    }
}

/// Where the bytes of the dmabuf lie.
pub(crate) const DMABUF: u64 = 0x7f00_0000_0000;

impl Device for Model {
    type Pd = Token;
    type Mr = Token;
    type Channel = Token;
    type Cq = Token;
    type Srq = Token;
    type Qp = Token;
    type Uar = (Token, u32);
    type Ah = Token;
    type Report = Rc<Cell<usize>>;

    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn alloc_pd(&self) -> Result<(Token, u32), Refusal> {
        self.token()
    }

    fn create_ah(&self, _: &Token, gid: [u8; 16]) -> Result<(Token, u32), Refusal> {
        self.seen.borrow_mut().gid = Some(gid);
        self.token()
    }

    fn reg_mr(&self, _: &Token, request: &MrRequest) -> Result<(Token, u32), Refusal> {
        self.seen.borrow_mut().mr = Some(*request);
        self.token()
    }

    /// Descriptor 33 is a dmabuf of 0x2000 bytes, at [`DMABUF`].
    fn dmabuf(&self, fd: i32, offset: u64, length: u64) -> Result<u64, Refusal> {
        match (fd, offset.checked_add(length)) {
            (33, Some(..=0x2000)) => Ok(DMABUF + offset),
            (33, _) => Err(Refusal::invalid("beyond the dmabuf")),
            _ => Err(Refusal::new(Errno::EBADF, "no dmabuf")),
        }
    }

    fn open_comp_channel(&self) -> Result<(Token, u32), Refusal> {
        let (mut token, _) = self.token()?;
        let fd = self.fd.replace(self.fd.get() + 1);
        token.file = Some(u64::from(fd) << 20);
        self.files.borrow_mut().insert(fd, u64::from(fd) << 20);
        Ok((token, fd))
    }

    fn file(&self, fd: u32) -> Option<u64> {
        self.files.borrow().get(&fd).copied()
    }

    fn is_closed(&self, channel: &Token) -> bool {
        channel.is_closed()
    }

    fn withdraw(&self, fd: u32) {
        // The object that stood for it was removed before.
        self.files.borrow_mut().remove(&fd);
    }

    fn open_async_channel(&self) -> Result<(Token, u32), Refusal> {
        self.open_comp_channel()
    }

    fn open_eventfd(&self, fd: i32) -> Result<Token, Refusal> {
        match fd {
            0.. => Ok(self.token()?.0),
            _ => Err(Refusal::new(Errno::EBADF, "no descriptor")),
        }
    }

    fn create_cq(&self, request: &CqRequest, _: Option<&Token>) -> Result<(Token, u32), Refusal> {
        self.seen.borrow_mut().cq = Some(*request);
        self.token()
    }

    fn close_cq(&self, _: &Token) -> u32 {
        3
    }

    fn resize_cq(&self, _: &Token, request: &ResizeRequest) -> Result<(), Refusal> {
        self.seen.borrow_mut().resize = Some(*request);
        self.fails.get().map_or(Ok(()), |errno| Err(Refusal::new(errno, "as the test wants")))
    }

    fn report(
        &self,
        source: EventSource,
        _: &Token,
        form: EventForm,
    ) -> Result<Rc<Cell<usize>>, Refusal> {
        if let Some(errno) = self.fails.get() {
            return Err(Refusal::new(errno, "as the test wants"));
        }
        self.seen.borrow_mut().report = Some((source, form));
        Ok(self.reports.clone())
    }

    fn close_report(&self, _: &Rc<Cell<usize>>) -> u32 {
        5
    }

    fn set_srq_limit(&self, _: &Token, limit: u16) {
        self.seen.borrow_mut().limit = limit;
    }

    fn srq_limit(&self, _: &Token) -> u16 {
        self.seen.borrow().limit
    }

    fn create_srq(&self, _: &Token, request: &SrqRequest) -> Result<(Token, u32), Refusal> {
        self.seen.borrow_mut().srq = Some(*request);
        self.token()
    }

    fn create_qp(
        &self,
        request: &QpRequest,
        with: OpenQp<'_, Self>,
    ) -> Result<(Token, u32), Refusal> {
        self.seen.borrow_mut().qp = Some(*request);
        self.seen.borrow_mut().uar = with.uar.map(|uar| uar.1);
        self.token()
    }

    fn query_qp(&self, qp: &Token) -> QpStatus {
        let Seen { draining, psns: (sq_psn, rq_psn), .. } = *self.seen.borrow();
        QpStatus { state: qp.state.get(), draining, sq_psn, rq_psn }
    }

    fn modify_qp(&self, qp: &Token, to: QpState, attrs: &Attributes) -> Result<(), Refusal> {
        if let Some(errno) = self.fails.get() {
            return Err(Refusal::new(errno, "as the test wants"));
        }
        self.seen.borrow_mut().attrs.push((to, *attrs));
        qp.state.set(to);
        Ok(())
    }

    fn alloc_uar(&self, _: UarKind) -> Result<((Token, u32), Uar), Refusal> {
        let (token, _) = self.token()?;
        let id = self.uars.replace(self.uars.get() + 1);
        Ok(((token, id), Uar { offset: u64::from(id) << 12, len: 4096, id }))
    }

    fn command(&self, mailbox: &[u8], answer: &mut [u8]) -> Result<(), Refusal> {
        self.seen.borrow_mut().mailbox = mailbox.to_vec();
        answer[0] = 2;
        match self.fails.get() {
            Some(errno) => Err(Refusal::new(errno, "as the test wants")),
            None => Ok(()),
        }
    }
}
