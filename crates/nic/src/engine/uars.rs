//! Pages of doorbell registers that QPs share.
//!
//! In plain memory a register keeps its last value only, so a changed one is only a wake-up: the record
//! of the QP that it names is looked at, then those of all QPs of the page, a few in each slice. Each
//! slice looks at one register of each page, so four slices see all; the records of the QPs that were
//! rung last are looked at in every slice.
//!
//! A record that must be copied costs microseconds. It is looked at when its QP is named, and when a
//! register has changed by which its QP was rung before: programs have a register for each QP, or
//! few. A doorbell through a register that was not known for its QP, and that was overwritten, is found
//! by a periodic scan.

use crate::NicError;
use crate::format::{self, Qpn};
use crate::slots::{QpSlot, Slot, UarSlot};
use arrayvec::ArrayVec;
use std::collections::VecDeque;
use warpverbs_mem::{Region, RegisterPage, SmallBuf};

/// Pages of which one slice looks at a register.
pub(super) const WINDOW: usize = 64;
/// Records that one slice looks at because a register changed.
pub(super) const RECORDS: usize = 16;
/// QPs whose records are looked at in every slice.
pub(super) const HOT: usize = 8;
/// Slices between two periodic scans of records that must be copied.
pub(super) const LATER: u64 = 2048;
/// Every register of a page, as bits.
const ALL: u8 = (1 << RegisterPage::REGISTERS) - 1;
/// Pages of a NIC at most.
const MAX_PAGES: usize = 1 << 16;

/// A QP of a page.
#[derive(Debug)]
struct Member {
    qp: QpSlot,
    /// Registers whose change has its record looked at: those by which it was rung, and all if its
    /// record need not be copied.
    registers: u8,
}

/// The QPs of a page, and how many of their records are still to be looked at.
#[derive(Debug, Default)]
struct Members {
    all: Vec<Member>,
    /// How many have records that must be copied.
    copied: usize,
    next: usize,
    due: usize,
    /// Registers that have changed since all were looked at.
    changed: u8,
    /// The QP that was named last; its record was read then.
    named: Option<QpSlot>,
    /// The same for those that are scanned periodically.
    next_later: usize,
    later: usize,
}

impl Members {
    /// The next QP whose record is to be looked at for a register that has changed.
    fn next_due(&mut self) -> Option<QpSlot> {
        while self.due > 0 {
            self.due -= 1;
            self.next += 1;
            if self.next >= self.all.len() {
                self.next = 0;
            }
            let changed = self.changed;
            if self.due == 0 {
                self.changed = 0;
            }
            match self.all.get(self.next) {
                Some(member) if member.registers == ALL => return Some(member.qp),
                Some(Member { qp, registers })
                    if registers & changed != 0 && Some(*qp) != self.named =>
                {
                    return Some(*qp);
                }
                _ => {}
            }
        }
        None
    }

    /// The next QP whose record is due in the periodic scan.
    fn next_later(&mut self) -> Option<QpSlot> {
        while self.later > 0 {
            self.later -= 1;
            self.next_later += 1;
            if self.next_later >= self.all.len() {
                self.next_later = 0;
            }
            match self.all.get(self.next_later) {
                Some(Member { qp, registers }) if *registers != ALL => return Some(*qp),
                _ => {}
            }
        }
        None
    }
}

/// All pages, by slot.
#[derive(Debug, Default)]
pub(crate) struct Uars {
    /// A page that was removed has an empty one in its place, so that looking needs no check.
    pub(super) pages: Vec<RegisterPage>,
    members: Vec<Option<Members>>,
    /// Values last seen, by register and page.
    seen: [Vec<u64>; RegisterPage::REGISTERS],
    /// The register whose turn it is, and the first page of this slice.
    pub(super) register: usize,
    pub(super) page: usize,
    /// Pages with records to be looked at, and with those that are looked at now and then.
    due: VecDeque<UarSlot>,
    pub(super) later: VecDeque<UarSlot>,
    /// QPs that were rung last, and which of them makes room for the next.
    pub(super) hot: ArrayVec<QpSlot, HOT>,
    oldest: usize,
}

impl Uars {
    /// Values that the registers hold already announce nothing.
    pub(super) fn add(&mut self, page: &Region) -> Result<UarSlot, NicError> {
        let cause = |cause| NicError::Memory { what: "page of doorbell registers", cause };
        let page = RegisterPage::new(page).map_err(cause)?;
        let free = self.members.iter().position(Option::is_none);
        let at = free.unwrap_or(self.pages.len());
        if at >= MAX_PAGES {
            let (what, max) = ("pages of doorbell registers", MAX_PAGES as u64);
            return Err(NicError::Exhausted { what, max });
        }
        for (register, seen) in self.seen.iter_mut().enumerate() {
            seen.resize(seen.len().max(at + 1), 0);
            seen[at] = page.peek(register);
        }
        match free {
            Some(at) => self.pages[at] = page,
            None => {
                self.pages.push(page);
                self.members.push(None);
            }
        }
        self.members[at] = Some(Members::default());
        Ok(UarSlot(at as u32))
    }

    /// The page's memory.
    pub(super) fn remove(&mut self, slot: UarSlot) -> Option<RegisterPage> {
        self.due.retain(|due| *due != slot);
        self.later.retain(|later| *later != slot);
        self.members.get_mut(slot.at())?.take()?;
        let empty = RegisterPage::new(&SmallBuf::region(RegisterPage::BYTES)).ok()?;
        self.seen.iter_mut().for_each(|seen| seen[slot.at()] = 0);
        Some(std::mem::replace(&mut self.pages[slot.at()], empty))
    }

    fn members(&mut self, page: UarSlot) -> Option<&mut Members> {
        self.members.get_mut(page.at())?.as_mut()
    }

    /// `copied`: its record must be copied.
    pub(super) fn join(&mut self, page: UarSlot, qp: QpSlot, copied: bool) {
        if let Some(members) = self.members(page) {
            members.copied += usize::from(copied);
            members.all.push(Member { qp, registers: if copied { 0 } else { ALL } });
        }
    }

    pub(super) fn leave(&mut self, page: UarSlot, qp: QpSlot, copied: bool) {
        if let Some(members) = self.members(page) {
            members.copied -= usize::from(copied);
            members.all.retain(|member| member.qp != qp);
        }
        self.hot.retain(|hot| *hot != qp);
        self.oldest = 0;
    }

    /// The QP is in RESET or gone. Its doorbells count from 0 again, so that the next one may be
    /// what a register holds already: such registers are set to 0.
    pub(super) fn silence(&mut self, page: UarSlot, qpn: Qpn) {
        let mut overwrote = false;
        for (register, seen) in self.seen.iter_mut().enumerate() {
            let (Some(registers), Some(seen)) =
                (self.pages.get(page.at()), seen.get_mut(page.at()))
            else {
                return;
            };
            let value = registers.peek(register);
            if format::announced(value.to_ne_bytes()).qpn == qpn {
                overwrote |= *seen != value;
                registers.clear(register, value);
                *seen = 0;
            }
        }
        if overwrote {
            self.look_at_all(page, ALL);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Records are still to be looked at.
    pub(super) fn has_due(&self) -> bool {
        !self.due.is_empty() || !self.later.is_empty()
    }

    /// The slices since all registers were seen last have seen a part of them.
    pub(super) fn is_midway(&self) -> bool {
        self.register != 0 || self.page != 0
    }

    /// Slices that look at every register at least once.
    pub(super) fn slices_of_a_round(&self) -> usize {
        (self.pages.len().div_ceil(WINDOW) + 1) * RegisterPage::REGISTERS
    }

    /// The next page of this slice whose register has a new value, and the value.
    #[inline]
    pub(super) fn next_change(&mut self, end: usize) -> Option<(UarSlot, [u8; 8])> {
        let (register, from) = (self.register, self.page);
        let (pages, seen) = (&self.pages[from..end], &mut self.seen[register][from..end]);
        let Some(at) = RegisterPage::find_change(pages, register, seen) else {
            self.page = end;
            return None;
        };
        self.page = from + at + 1;
        let bytes = pages[at].load(register);
        seen[at] = u64::from_ne_bytes(bytes);
        Some((UarSlot((from + at) as u32), bytes))
    }

    /// The slice has looked at its pages.
    pub(super) fn end_slice(&mut self) {
        if self.page == self.pages.len() {
            (self.page, self.register) = (0, (self.register + 1) % RegisterPage::REGISTERS);
        }
    }

    /// The QP's record is looked at in every slice.
    pub(super) fn heat(&mut self, qp: QpSlot) {
        if self.hot.contains(&qp) {
            return;
        }
        match self.hot.get_mut(self.oldest) {
            Some(oldest) => *oldest = qp,
            None => self.hot.push(qp),
        }
        self.oldest = (self.oldest + 1) % HOT;
    }

    /// All records of the page are to be looked at, beginning where the last look has ended, because
    /// these registers have changed.
    pub(super) fn look_at_all(&mut self, slot: UarSlot, changed: u8) {
        let Some(members) = self.members(slot) else { return };
        // A QP by itself is the one that is named.
        let all = if members.all.len() > 1 { members.all.len() } else { 0 };
        let (due, later) = (members.due, members.later);
        (members.due, members.changed) = (all, members.changed | changed);
        members.later = if members.copied > 0 { all } else { 0 };
        let (is_due, is_later) = (members.due > 0, members.later > 0);
        if due == 0 && is_due {
            self.due.push_back(slot);
        }
        if later == 0 && is_later {
            self.later.push_back(slot);
        }
    }

    /// The QP, whose record must be copied, is rung by the register of this slice.
    pub(super) fn rung_by(&mut self, page: UarSlot, qp: QpSlot) {
        let register = 1 << self.register;
        let Some(members) = self.members(page) else { return };
        members.named = Some(qp);
        if let Some(member) = members.all.iter_mut().find(|member| member.qp == qp) {
            member.registers |= register;
        }
    }

    /// The next QP whose record is to be looked at.
    pub(super) fn next_due(&mut self) -> Option<QpSlot> {
        let page = *self.due.front()?;
        let members = self.members(page);
        let (qp, more) = members.map_or((None, false), |all| (all.next_due(), all.due > 0));
        if !more {
            self.due.pop_front();
        }
        qp
    }

    /// As [`Self::next_due`], for the periodic scan.
    pub(super) fn next_later(&mut self) -> Option<QpSlot> {
        let page = *self.later.front()?;
        let members = self.members(page);
        let (qp, more) = members.map_or((None, false), |all| (all.next_later(), all.later > 0));
        if !more {
            self.later.pop_front();
        }
        qp
    }
}
