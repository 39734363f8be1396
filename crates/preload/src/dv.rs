//! Functions of Broadcom's own libbnxt_re that rdma-core's has not: queues in memory of the program, and
//! doorbell pages. `warpverbs run` makes `libbnxt_re.so` a name of this library, so that programs which load it
//! find them; objects that they know, contexts and protection domains, are rdma-core's libbnxt_re's.
//!
//! They ask the device as that library does, with sizes that it takes as they are. CQs and QPs made here are
//! known to libibverbs and its driver by their first members alone; behind them lies room for the driver's.

use crate::bells;
use crate::dmabuf;
use crate::files;
use crate::hooks::ours;
use crate::process::{self, Own};
use crate::queues::queue;
use crate::say::say;
use crate::settings::Settings;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_int, c_void};
use std::ptr::{from_mut, from_ref, null_mut};
use std::sync::{Mutex, MutexGuard, PoisonError};
use warpverbs_bnxt::dv::{
    CqInfo, CqInitAttr, DbRegionAttr, OBJ_CQ, Obj, QpInitAttr, UMEM_DMABUF, UmemRegAttr,
};
use warpverbs_uverbs::abi::{
    BnxtCreateCqResp, BnxtCreateQpResp, BnxtFixedCq, BnxtFixedQp, BnxtFixedReceives, FIXED, QpCap,
};
use warpverbs_uverbs::schema::{UHW_IN, UHW_OUT};
use warpverbs_uverbs::{HEADER_BYTES, VERBS_IOCTL};

/// Bytes of a doorbell page.
const PAGE: usize = 4096;
/// `IBV_QPT_RC`, and `IB_UVERBS_QPT_RC`.
const QPT_RC: u32 = 2;
/// Objects and methods of the kernel's interface: CQ, QP, and how each is made.
const CQ: u16 = 3;
const QP: u16 = 4;
const CREATE: u16 = 0;

/// `struct ibv_context` up to its descriptor.
#[repr(C)]
pub struct VerbsContext {
    device: *const c_void,
    ops: [*const c_void; 32],
    fd: c_int,
}

/// `struct ibv_pd`.
#[repr(C)]
pub struct VerbsPd {
    context: *const VerbsContext,
    handle: u32,
}

/// `struct ibv_cq` up to its number of entries.
#[repr(C)]
pub struct VerbsCq {
    context: *const VerbsContext,
    channel: *const c_void,
    user: *const c_void,
    handle: u32,
    entries: c_int,
}

/// `struct ibv_qp` up to its type.
#[repr(C)]
pub struct VerbsQp {
    context: *const VerbsContext,
    user: *const c_void,
    pd: *const VerbsPd,
    send_cq: *const VerbsCq,
    recv_cq: *const VerbsCq,
    srq: *const c_void,
    handle: u32,
    number: u32,
    state: u32,
    kind: u32,
}

/// An object, zeroed behind its first members: a lock and a condition of libibverbs, which zeros initialise,
/// and what the driver keeps of a QP that it is asked the state of.
#[repr(C)]
struct Room<T> {
    object: T,
    rest: [u64; 512],
}

impl<T> Room<T> {
    fn leak(object: T) -> *mut T {
        Box::into_raw(Box::new(Self { object, rest: [0; 512] })).cast()
    }

    /// # Safety
    /// From [`Self::leak`], and used no more.
    unsafe fn free(object: *mut T) {
        // SAFETY: as the caller says.
        drop(unsafe { Box::from_raw(object.cast::<Self>()) });
    }
}

/// Registered memory.
struct Umem {
    address: u64,
    bytes: u64,
}

/// Numbers of the CQs that were made here, by their addresses.
static CQS: Own<Mutex<BTreeMap<usize, u32>>> = Own::new();

fn cqs() -> MutexGuard<'static, BTreeMap<usize, u32>> {
    CQS.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// A call of the kernel's interface.
#[repr(C)]
#[derive(Default)]
struct Message {
    length: u16,
    object: u16,
    method: u16,
    count: u16,
    reserved: u64,
    driver: u32,
    reserved2: u32,
    attrs: [Attr; 12],
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Attr {
    id: u16,
    len: u16,
    flags: u16,
    reserved: u16,
    data: u64,
}

impl Message {
    fn new(object: u16, method: u16) -> Self {
        Self { object, method, driver: Settings::get().driver.number(), ..Self::default() }
    }

    fn with(mut self, id: u16, len: usize, data: u64) -> Self {
        /// The device has to know the attribute.
        const MANDATORY: u16 = 1;
        let at = usize::from(self.count);
        self.attrs[at] = Attr { id, len: len as u16, flags: MANDATORY, reserved: 0, data };
        self.count += 1;
        self
    }

    /// A handle: of an object that is named, or room for that of a new one.
    fn handle(self, id: u16, handle: u32) -> Self {
        self.with(id, 0, handle.into())
    }

    /// A structure to be read, or to be filled.
    fn at<T>(self, id: u16, place: *const T) -> Self {
        self.with(id, size_of::<T>(), place as u64)
    }

    /// Asks the device; the handle of the object that was made.
    fn send(mut self, fd: c_int) -> Result<u32, c_int> {
        self.length = (HEADER_BYTES + usize::from(self.count) * size_of::<Attr>()) as u16;
        let answered = files::ioctl(fd, VERBS_IOCTL, from_mut(&mut self) as u64);
        answered.unwrap_or(Err(libc::EBADF))?;
        // The device has written it.
        // SAFETY: a member of a live value.
        Ok(unsafe { (&raw const self.attrs[0].data).read_volatile() } as u32)
    }
}

/// The result of a call, for a program that expects a pointer: null with `errno`.
fn pointer<T>(work: impl FnOnce() -> Result<*mut T, c_int>) -> *mut T {
    match ours(|| Some(work())).unwrap_or(Err(libc::EIO)) {
        Ok(made) => made,
        Err(errno) => {
            nix::errno::Errno::from_raw(errno).set();
            null_mut()
        }
    }
}

/// The same, for one that expects 0 or an error number.
fn code(work: impl FnOnce() -> Result<(), c_int>) -> c_int {
    ours(|| Some(work())).unwrap_or(Err(libc::EIO)).err().unwrap_or(0)
}

/// What lies at `at`.
///
/// # Safety
/// Null, or a live `T` that nobody changes meanwhile.
unsafe fn get<'a, T>(at: *const T) -> Result<&'a T, c_int> {
    // SAFETY: as the caller says.
    unsafe { at.as_ref() }.ok_or(libc::EINVAL)
}

/// A function of libibverbs for drivers, which takes an object and answers with an error number.
///
/// # Safety
/// `F` is its type.
unsafe fn of_libibverbs<F: Copy>(name: &CStr) -> Result<F, c_int> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    let library = c"libibverbs.so.1".as_ptr();
    // SAFETY: a name that ends.
    let library = unsafe { libc::dlopen(library, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return Err(libc::ENOSYS);
    }
    // SAFETY: a library that is loaded, and a name that ends.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    // SAFETY: the handle from above; whoever has a context has the library loaded.
    unsafe { libc::dlclose(library) };
    if found.is_null() {
        return Err(libc::ENOSYS);
    }
    // SAFETY: as the caller says; of the size of a pointer.
    Ok(unsafe { std::mem::transmute_copy(&found) })
}

/// `void *bnxt_re_dv_umem_reg(struct ibv_context *, struct bnxt_re_dv_umem_reg_attr *)`.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bnxt_re_dv_umem_reg(
    context: *const VerbsContext,
    attr: *const UmemRegAttr,
) -> *mut c_void {
    pointer(|| {
        // SAFETY: as the caller says.
        unsafe { get(context) }?;
        // SAFETY: as the caller says.
        let attr = unsafe { get(attr) }?;
        let refused = |refusal: warpverbs_uverbs::Refusal| {
            if Settings::get().verbose {
                say!("bnxt_re_dv_umem_reg: {refusal}");
            }
            refusal.errno.number()
        };
        let address = match attr.comp_mask {
            0 => attr.addr,
            UMEM_DMABUF => dmabuf::find(attr.dmabuf_fd, attr.addr, attr.size)
                .map_err(refused)?
                .ok_or(libc::EOPNOTSUPP)?,
            _ => return Err(libc::EOPNOTSUPP),
        };
        queue("memory for queues", address, attr.size).map_err(refused)?;
        Ok(Box::into_raw(Box::new(Umem { address, bytes: attr.size })).cast())
    })
}

/// `int bnxt_re_dv_umem_dereg(void *)`.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bnxt_re_dv_umem_dereg(umem: *mut c_void) -> c_int {
    code(|| {
        if umem.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: from `bnxt_re_dv_umem_reg`, and given back once, as the caller says.
        drop(unsafe { Box::from_raw(umem.cast::<Umem>()) });
        Ok(())
    })
}

/// The address of `bytes` bytes at `offset` of registered memory.
///
/// # Safety
/// The handle is 0, or of memory that is registered.
unsafe fn within(handle: u64, offset: u64, bytes: u64) -> Result<u64, c_int> {
    // SAFETY: as the caller says.
    let umem = unsafe { get(handle as *const Umem) }?;
    let end = offset.checked_add(bytes).filter(|end| *end <= umem.bytes);
    end.map(|_| umem.address + offset).ok_or(libc::EINVAL)
}

/// `struct ibv_cq *bnxt_re_dv_create_cq(struct ibv_context *, struct bnxt_re_dv_cq_init_attr *)`.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bnxt_re_dv_create_cq(
    context: *const VerbsContext,
    attr: *const CqInitAttr,
) -> *mut VerbsCq {
    pointer(|| {
        // SAFETY: as the caller says.
        let at = unsafe { get(context) }?;
        // SAFETY: as the caller says.
        let attr = unsafe { get(attr) }?;
        let bytes = u64::from(attr.ncqe) * warpverbs_bnxt::cqe::CQE as u64;
        // SAFETY: as the caller says.
        let cq_va = unsafe { within(attr.umem_handle, attr.cq_umem_offset, bytes) }?;
        let driver = BnxtFixedCq { cq_va, cq_handle: attr.cq_handle, comp_mask: FIXED };
        let (mut made, mut entries) = (BnxtCreateCqResp::default(), 0u32);
        let (user, channel) = (std::ptr::null(), std::ptr::null());
        let cq = VerbsCq { context, channel, user, handle: 0, entries: attr.ncqe as c_int };
        let cq = Room::leak(cq);
        let message = Message::new(CQ, CREATE)
            .handle(0, 0)
            .with(1, 4, attr.ncqe.into())
            .with(2, 8, cq as u64)
            .with(4, 4, 0)
            .at(6, from_mut(&mut entries))
            .at(UHW_IN, from_ref(&driver))
            .at(UHW_OUT, from_mut(&mut made));
        match message.send(at.fd) {
            Ok(handle) => {
                // SAFETY: made above, and nobody else knows it.
                unsafe { (*cq).handle = handle };
                // SAFETY: a live value, which the device has written.
                let number = unsafe { (&raw const made.cqid).read_volatile() };
                cqs().insert(cq as usize, number);
                Ok(cq)
            }
            Err(errno) => {
                // SAFETY: made above, and nobody else knows it.
                unsafe { Room::free(cq) };
                Err(errno)
            }
        }
    })
}

/// `int bnxt_re_dv_destroy_cq(struct ibv_cq *)`.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bnxt_re_dv_destroy_cq(cq: *mut VerbsCq) -> c_int {
    if code(|| cqs().contains_key(&(cq as usize)).then_some(()).ok_or(libc::EINVAL)) != 0 {
        return libc::EINVAL;
    }
    type Destroy = unsafe extern "C" fn(*mut VerbsCq) -> c_int;
    // SAFETY: its type. It waits until events that were read are acknowledged.
    let destroyed = match unsafe { of_libibverbs::<Destroy>(c"ibv_cmd_destroy_cq") } {
        // SAFETY: a live CQ, as the caller says.
        Ok(destroy) => unsafe { destroy(cq) },
        Err(errno) => errno,
    };
    if destroyed == 0 {
        code(|| {
            cqs().remove(&(cq as usize));
            Ok(())
        });
        // SAFETY: made here, as the list says, and destroyed once.
        unsafe { Room::free(cq) };
    }
    destroyed
}

/// `int bnxt_re_dv_init_obj(struct bnxt_re_dv_obj *, uint64_t)`: of CQs that were made here.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bnxt_re_dv_init_obj(obj: *const Obj, kinds: u64) -> c_int {
    code(|| {
        // SAFETY: as the caller says.
        let [cq, out] = unsafe { get(obj) }?.cq;
        if kinds != OBJ_CQ {
            return Err(libc::EOPNOTSUPP);
        }
        let cqn = *cqs().get(&(cq as usize)).ok_or(libc::EINVAL)?;
        let cqe_size = warpverbs_bnxt::cqe::CQE as u32;
        let out = out as *mut CqInfo;
        if out.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: room for it, as the caller says.
        unsafe { out.write(CqInfo { cqn, cqe_size, comp_mask: 0 }) };
        Ok(())
    })
}

/// What the device is told of a QP.
#[repr(C)]
struct Queues {
    qp: BnxtFixedQp,
    receives: BnxtFixedReceives,
}

/// # Safety
/// Handles in `attr` are of memory that is registered.
unsafe fn queues(attr: &QpInitAttr) -> Result<Queues, c_int> {
    let slot = warpverbs_bnxt::slot::SLOT as u32;
    let table = attr.sq_npsn.checked_mul(attr.sq_psn_sz).ok_or(libc::EINVAL)?;
    let slots = attr.sq_slots.checked_mul(slot).ok_or(libc::EINVAL)?;
    // The device takes the table to be directly behind the slots, and programs at the end.
    if attr.sq_psn_sz != warpverbs_bnxt::dv::MSN_ENTRY || slots.checked_add(table) != Some(attr.sq_len) {
        return Err(libc::EINVAL);
    }
    // SAFETY: as the caller says.
    let qpsva = unsafe { within(attr.sq_umem_handle, attr.sq_umem_offset, attr.sq_len.into()) }?;
    let (mut qprva, mut receives) = (0, BnxtFixedReceives::default());
    if attr.rq_umem_handle != 0 && attr.rq_slots > 0 {
        let bytes = u64::from(attr.rq_slots) * u64::from(slot);
        // SAFETY: as the caller says.
        qprva = unsafe { within(attr.rq_umem_handle, attr.rq_umem_offset, bytes) }?;
        receives = BnxtFixedReceives { slots: attr.rq_slots, each: attr.rq_wqe_sz / slot };
    }
    let (sq_slots, sq_npsn) = (attr.sq_slots, attr.sq_npsn);
    let qp_handle = attr.qp_handle;
    let qp = BnxtFixedQp { qpsva, qprva, qp_handle, comp_mask: FIXED, sq_slots, sq_npsn };
    Ok(Queues { qp, receives })
}

/// `struct ibv_qp *bnxt_re_dv_create_qp(struct ibv_pd *, struct bnxt_re_dv_qp_init_attr *)`.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bnxt_re_dv_create_qp(
    pd: *const VerbsPd,
    attr: *const QpInitAttr,
) -> *mut VerbsQp {
    pointer(|| {
        // SAFETY: as the caller says.
        let domain = unsafe { get(pd) }?;
        // SAFETY: as the caller says.
        let attr = unsafe { get(attr) }?;
        if attr.qp_type != QPT_RC || attr.srq != 0 || attr.comp_mask != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        let (send_cq, recv_cq) = (attr.send_cq as *const VerbsCq, attr.recv_cq as *const VerbsCq);
        // SAFETY: as the caller says.
        let sends = unsafe { get(send_cq) }?.handle;
        // SAFETY: as the caller says.
        let arrivals = unsafe { get(recv_cq) }?.handle;
        // SAFETY: as the caller says.
        let driver = unsafe { queues(attr) }?;
        let cap = QpCap {
            max_send_wr: attr.max_send_wr,
            max_recv_wr: attr.max_recv_wr,
            max_send_sge: attr.max_send_sge,
            max_recv_sge: attr.max_recv_sge,
            max_inline_data: attr.max_inline_data,
        };
        let (mut made, mut room, mut number) = (BnxtCreateQpResp::default(), cap, 0u32);
        let qp = Room::leak(VerbsQp {
            context: domain.context,
            user: std::ptr::null(),
            pd,
            send_cq,
            recv_cq,
            srq: std::ptr::null(),
            handle: 0,
            number: 0,
            state: 0,
            kind: QPT_RC,
        });
        let message = Message::new(QP, CREATE)
            .handle(0, 0)
            .handle(2, domain.handle)
            .handle(4, sends)
            .handle(5, arrivals)
            .with(7, 8, qp as u64)
            .at(8, from_ref(&cap))
            .with(9, 8, QPT_RC.into())
            .at(13, from_mut(&mut room))
            .at(14, from_mut(&mut number))
            .at(UHW_IN, from_ref(&driver))
            .at(UHW_OUT, from_mut(&mut made));
        // SAFETY: as the caller says.
        match message.send(unsafe { get(domain.context) }?.fd) {
            Ok(handle) => {
                // SAFETY: made above, and nobody else knows it.
                let new = unsafe { &mut *qp };
                // SAFETY: a live value, which the device has written.
                (new.handle, new.number) = (handle, unsafe { (&raw const number).read_volatile() });
                Ok(qp)
            }
            Err(errno) => {
                // SAFETY: made above, and nobody else knows it.
                unsafe { Room::free(qp) };
                Err(errno)
            }
        }
    })
}

/// `int bnxt_re_dv_destroy_qp(struct ibv_qp *)`.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bnxt_re_dv_destroy_qp(qp: *mut VerbsQp) -> c_int {
    type Destroy = unsafe extern "C" fn(*mut VerbsQp) -> c_int;
    // SAFETY: its type. It waits until events that were read are acknowledged.
    let destroyed = match unsafe { of_libibverbs::<Destroy>(c"ibv_cmd_destroy_qp") } {
        // SAFETY: a live QP, as the caller says.
        Ok(destroy) => unsafe { destroy(qp) },
        Err(errno) => errno,
    };
    if destroyed == 0 {
        // SAFETY: made here, as the caller says, and destroyed once.
        unsafe { Room::free(qp) };
    }
    destroyed
}

/// `int bnxt_re_dv_modify_qp(struct ibv_qp *, struct ibv_qp_attr *, int, uint32_t, uint32_t)`. The last two,
/// of which no public source says what they are, have to be 0.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bnxt_re_dv_modify_qp(
    qp: *mut VerbsQp,
    attr: *mut c_void,
    mask: c_int,
    kind: u32,
    value: u32,
) -> c_int {
    /// Words of `struct ibv_modify_qp`, which libibverbs fills.
    const COMMAND: usize = 15;
    type Modify =
        unsafe extern "C" fn(*mut VerbsQp, *mut c_void, c_int, *mut u64, usize) -> c_int;
    if (kind, value) != (0, 0) {
        return libc::EOPNOTSUPP;
    }
    let mut command = [0u64; COMMAND];
    // SAFETY: its type.
    match unsafe { of_libibverbs::<Modify>(c"ibv_cmd_modify_qp") } {
        // SAFETY: a live QP and attributes, as the caller says, and room for the command.
        Ok(modify) => unsafe { modify(qp, attr, mask, command.as_mut_ptr(), 8 * COMMAND) },
        Err(errno) => errno,
    }
}

/// `int bnxt_re_dv_modify_qp_udp_sport(struct ibv_qp *, uint16_t)`: the software NIC chooses the ports itself.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bnxt_re_dv_modify_qp_udp_sport(_: *mut VerbsQp, _: u16) -> c_int {
    libc::EOPNOTSUPP
}

/// `struct bnxt_re_dv_db_region_attr *bnxt_re_dv_alloc_db_region(struct ibv_context *)`.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bnxt_re_dv_alloc_db_region(
    context: *const VerbsContext,
) -> *mut DbRegionAttr {
    pointer(|| {
        // SAFETY: as the caller says.
        let fd = unsafe { get(context) }?.fd;
        let (rights, offset) = (libc::PROT_READ | libc::PROT_WRITE, bells::OFFSET as libc::off_t);
        // SAFETY: a new mapping, where the kernel wants it.
        let page = unsafe { libc::mmap(null_mut(), PAGE, rights, libc::MAP_SHARED, fd, offset) };
        if page == libc::MAP_FAILED {
            return Err(nix::errno::Errno::last_raw());
        }
        let (umdbr, dbr) = (bells::OFFSET, page as u64);
        Ok(Box::into_raw(Box::new(DbRegionAttr { handle: 0, dpi: 0, umdbr, dbr })))
    })
}

/// `int bnxt_re_dv_free_db_region(struct ibv_context *, struct bnxt_re_dv_db_region_attr *)`.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bnxt_re_dv_free_db_region(
    _: *const VerbsContext,
    region: *mut DbRegionAttr,
) -> c_int {
    code(|| {
        if region.is_null() {
            return Err(libc::EINVAL);
        }
        // SAFETY: from `bnxt_re_dv_alloc_db_region`, and given back once, as the caller says.
        let region = unsafe { Box::from_raw(region) };
        bells::forget(region.dbr);
        // SAFETY: mapped by `bnxt_re_dv_alloc_db_region`.
        unsafe { libc::munmap(region.dbr as *mut c_void, PAGE) };
        Ok(())
    })
}

/// `int bnxt_re_dv_get_default_db_region(struct ibv_context *, struct bnxt_re_dv_db_region_attr *)`: the page
/// that libbnxt_re has mapped with the first protection domain.
///
/// # Safety
/// As for the vendor's function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bnxt_re_dv_get_default_db_region(
    context: *const VerbsContext,
    out: *mut DbRegionAttr,
) -> c_int {
    code(|| {
        // SAFETY: as the caller says.
        let fd = unsafe { get(context) }?.fd;
        let inode = process::status(fd).ok_or(libc::EBADF)?.st_ino;
        let page = process::mapping_of(inode, bells::OFFSET).ok_or(libc::EINVAL)?;
        if out.is_null() {
            return Err(libc::EINVAL);
        }
        let (umdbr, dbr) = (bells::OFFSET, page as u64);
        // SAFETY: room for it, as the caller says.
        unsafe { out.write(DbRegionAttr { handle: 0, dpi: 0, umdbr, dbr }) };
        Ok(())
    })
}
