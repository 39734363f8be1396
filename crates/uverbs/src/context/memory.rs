//! Registering memory: of verbs, and of firmware commands.

use super::write::legacy;
use super::{Context, handle_bytes};
use crate::Refusal;
use crate::abi::{RegMr, RegMrResp, take};
use crate::call::Call;
use crate::device::{Device, MrRequest};
use crate::objects::{Object, Umem};
use crate::schema::DRIVER;
use zerocopy::IntoBytes;

/// Where a command's output goes.
const CORE_OUT: u16 = 1;
const PAGE_MASK: u64 = 0xfff;

/// Rights of registered memory: `IB_ACCESS_*`.
mod access {
    pub(super) const LOCAL_WRITE: u32 = 1;
    pub(super) const REMOTE_WRITE: u32 = 2;
    pub(super) const REMOTE_READ: u32 = 4;
    pub(super) const REMOTE_ATOMIC: u32 = 8;
    pub(super) const RIGHTS: u32 = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;
    /// Memory windows, zero-based addresses, on-demand paging.
    pub(super) const NOT_MODELLED: u32 = 1 << 4 | 1 << 5 | 1 << 6;
    /// Huge pages, a hint; and those that a device may ignore, bits 20 to 29.
    pub(super) const IGNORED: u32 = 1 << 7 | 0x3ff0_0000;
}

impl<D: Device> Context<D> {
    pub(super) fn reg_mr(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let request: RegMr = take(call.bytes(0).unwrap_or(&[]));
        let RegMr { start, length, hca_va, pd_handle, access_flags, .. } = request;
        check_range("address", start, length, hca_va)?;
        let access = check_access(access_flags)?;
        let pd = self.objects.pd(pd_handle).map_err(legacy)?;
        let request = MrRequest { start, length, iova: hca_va, access, dmabuf: None };
        let (mr, key) = self.device.reg_mr(pd, &request)?;
        let mr_handle = self.add(call, Object::Mr(mr), &[pd_handle])?;
        call.answer(CORE_OUT, RegMrResp { mr_handle, lkey: key, rkey: key }.as_bytes());
        Ok(())
    }

    /// Memory of a device, which its driver exports as a dmabuf.
    pub(super) fn reg_dmabuf_mr(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let (start, length, iova) = (call.number(2), call.number(3), call.number(4));
        check_range("offset", start, length, iova)?;
        let access = check_access(call.flags(6, u32::MAX.into())? as u32)?;
        let pd_handle = call.handle(1).unwrap_or(u32::MAX);
        let dmabuf = Some(call.word(5) as i32);
        let request = MrRequest { start, length, iova, access, dmabuf };
        let (mr, key) = self.device.reg_mr(self.objects.pd(pd_handle)?, &request)?;
        let handle = self.add(call, Object::Mr(mr), &[pd_handle])?;
        call.answer(0, handle_bytes(handle));
        call.answer(7, key.to_ne_bytes());
        call.answer(8, key.to_ne_bytes());
        Ok(())
    }

    /// Memory in which queues may lie: of the program, or of a device whose driver exports it as a
    /// dmabuf.
    pub(super) fn reg_umem(&mut self, call: &mut Call) -> Result<(), Refusal> {
        let (start, len) = (call.number(DRIVER + 1), call.number(DRIVER + 2));
        call.flags(DRIVER + 3, access::RIGHTS.into())?;
        if len == 0 || start.checked_add(len).is_none() {
            return Err(Refusal::invalid(format!("{len:#x} bytes at {start:#x}")));
        }
        // Which sizes of pages the program can use.
        let sizes = call.bytes(DRIVER + 5).map(|_| call.number(DRIVER + 5));
        if let Some(sizes) = sizes.filter(|sizes| sizes & !PAGE_MASK == 0) {
            let why = format!("pages of sizes {sizes:#x}, expected one of 4096 bytes or more");
            return Err(Refusal::invalid(why));
        }
        let start = match call.descriptor(DRIVER + 6) {
            None => start,
            Some(fd) => self.device.dmabuf(fd, start, len)?,
        };
        let handle = self.add(call, Object::Umem(Umem { start, len }), &[])?;
        call.answer(DRIVER, handle_bytes(handle));
        // Numbers of umems begin at 1.
        call.answer(DRIVER + 4, (handle + 1).to_ne_bytes());
        Ok(())
    }
}

/// Memory at `start`, which is `what`, lies at the same place in a page for the device.
fn check_range(what: &str, start: u64, length: u64, iova: u64) -> Result<(), Refusal> {
    if start & PAGE_MASK != iova & PAGE_MASK {
        let why = format!("{what} {start:#x} and I/O address {iova:#x} differ in their page");
        return Err(Refusal::invalid(why));
    }
    if start.checked_add(length).and(iova.checked_add(length)).is_none() {
        let why = format!("{length:#x} bytes at {start:#x}, {iova:#x} are beyond 64 bits");
        return Err(Refusal::invalid(why));
    }
    Ok(())
}

fn check_access(flags: u32) -> Result<u32, Refusal> {
    use access::{IGNORED, LOCAL_WRITE, NOT_MODELLED, REMOTE_ATOMIC, REMOTE_WRITE, RIGHTS};
    let unknown = flags & !(RIGHTS | NOT_MODELLED | IGNORED);
    if unknown != 0 {
        return Err(Refusal::invalid(format!("access flags {unknown:#x} are unknown")));
    }
    if flags & NOT_MODELLED != 0 {
        let why = format!("access flags {:#x} are not modelled", flags & NOT_MODELLED);
        return Err(Refusal::unsupported(why));
    }
    if flags & (REMOTE_WRITE | REMOTE_ATOMIC) != 0 && flags & LOCAL_WRITE == 0 {
        return Err(Refusal::invalid("peers may write, the owner may not"));
    }
    Ok(flags & RIGHTS)
}
