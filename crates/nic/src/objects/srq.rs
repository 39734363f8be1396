//! Shared receive queues, as the engine has them.

use crate::NicError;
use crate::format::{Dialect, RecvFormat, Sges};
use crate::violation::Rule;
use warpverbs_mem::{KeyHint, QueueRecord, ReceiveRing, Region};
use warpverbs_rdma::QueueKind;

/// The order in which the WQEs of an SRQ are taken, beginning with WQE 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SrqOrder {
    /// Each names the next in its first segment.
    #[default]
    Linked,
    /// By their numbers. Their first segment is not read.
    Ring,
}

/// How an SRQ is made.
#[derive(Clone, Debug)]
pub struct SrqConfig {
    /// The format of its WQEs.
    pub dialect: Dialect,
    /// The order of its WQEs; other formats than mlx5's have the order of the ring alone.
    pub order: SrqOrder,
    /// 2^`log_size` WQEs of 2^`log_stride` bytes, 16-byte aligned, host memory or memory with a copy
    /// engine.
    pub buf: Region,
    /// log2 of the number of WQEs, 0 to 15.
    pub log_size: u8,
    /// log2 of the bytes of a WQE, 5 to 10.
    pub log_stride: u8,
    /// be32 counter of WQEs posted, 4 bytes, likewise; for other formats than mlx5's 8 bytes, the last
    /// doorbell.
    pub dbr: Region,
}

/// The NIC's half of an SRQ.
#[derive(Debug)]
pub(crate) struct SharedReceiveQueue {
    pub(crate) srqn: u32,
    pub(crate) pd: u32,
    format: RecvFormat,
    order: SrqOrder,
    ring: ReceiveRing,
    record: QueueRecord,
    /// Number of the WQE that is taken next.
    head: u16,
    taken: u64,
    posted: u64,
    /// The event is raised when fewer are left.
    pub(crate) limit: u16,
    /// An invalid WQE or link: no more receives are taken.
    pub(crate) dead: bool,
    pub(crate) hint: KeyHint,
}

impl SharedReceiveQueue {
    /// An SRQ that has no number yet. Not to be called under the NIC's lock, as for a CQ.
    pub(crate) fn new(pd: u32, config: &SrqConfig) -> Result<Self, NicError> {
        let range = |what, value: u8, min, max| {
            let (value, min, max) = (u64::from(value), u64::from(min), u64::from(max));
            let fits = (min..=max).contains(&value);
            fits.then_some(()).ok_or(NicError::OutOfRange { what, value, min, max })
        };
        range("log_size of an SRQ", config.log_size, 0u8, 15u8)?;
        range("log_stride of an SRQ", config.log_stride, 5u8, 10u8)?;
        let memory = |what| move |cause| NicError::Memory { what, cause };
        let ring = ReceiveRing::new(&config.buf, config.log_size, 1 << config.log_stride)
            .map_err(memory("SRQ buffer"))?;
        let record = match config.dialect {
            Dialect::Mlx5 => QueueRecord::for_srq(&config.dbr),
            Dialect::Bnxt(_) => QueueRecord::new(&config.dbr),
            Dialect::Ionic => return Err(NicError::NotOfFormat { what: "an SRQ" }),
        };
        let record = record.map_err(memory("SRQ doorbell record"))?;
        Ok(Self {
            srqn: 0,
            pd,
            format: RecvFormat::new(config.dialect, config.log_size),
            order: config.order,
            ring,
            record,
            head: 0,
            taken: 0,
            posted: 0,
            limit: 0,
            dead: false,
            hint: KeyHint::default(),
        })
    }

    /// The WQE that would be taken next: its number, its link and its segments.
    pub(crate) fn peek<'a>(
        &mut self,
        scratch: &'a mut [u64; 128],
    ) -> Result<Option<(u32, u16, Sges<'a>)>, Rule> {
        if self.dead {
            return Ok(None);
        }
        if self.left()? == 0 {
            return Ok(None);
        }
        let head = u64::from(self.head);
        self.ring.fetch(head).map_err(|_| Rule::CopyFailed { kind: self.ring.kind() })?;
        let words = self.ring.load(head, scratch).len() / 8;
        let (number, link, sges) = self.format.shared(&mut scratch[..words], self.head)?;
        let depth = self.ring.depth();
        let next = match (self.order, link) {
            (SrqOrder::Linked, Some(found)) if u64::from(found) >= depth => {
                return Err(Rule::SrqLink { found, depth });
            }
            (SrqOrder::Linked, Some(found)) => found,
            _ => ((u64::from(self.head) + 1) % depth) as u16,
        };
        Ok(Some((number, next, sges)))
    }

    /// Receives posted and not taken.
    pub(crate) fn left(&mut self) -> Result<u64, Rule> {
        self.record.fetch().map_err(|_| Rule::CopyFailed { kind: self.record.kind() })?;
        let which = (QueueKind::Shared, self.srqn);
        let posted = self.format.posted(&self.record, self.posted, which)?;
        let (outstanding, depth) = (posted - self.taken, self.ring.depth());
        if outstanding > depth {
            return Err(Rule::ReceivesBeyondRing { posted, outstanding, depth });
        }
        self.posted = posted;
        Ok(outstanding)
    }

    /// Takes the WQE that was peeked at.
    pub(crate) fn take(&mut self, link: u16) {
        self.head = link;
        self.taken += 1;
    }

    /// Goes back to `head`: undoes taking the last `count`.
    pub(crate) fn untake(&mut self, head: u16, count: u64) {
        self.head = head;
        self.taken -= count;
    }

    /// Whether a limit is set and fewer are left; this disarms the limit.
    pub(crate) fn below_limit(&mut self) -> bool {
        self.below_limit_with(0)
    }

    /// As [`Self::below_limit`], with `more` receives at another device.
    pub(crate) fn below_limit_with(&mut self, more: u32) -> bool {
        let left = (self.posted - self.taken).saturating_add(more.into());
        let below = left < self.limit.into();
        if below {
            self.limit = 0;
        }
        below
    }
}
