//! The SRQ of a script: its ring and its record stay when it is destroyed.

use warpverbs_bnxt::doorbell::Kind;
use warpverbs_bnxt::recv as bnxt_recv;
use warpverbs_bnxt::ring::Ring;
use warpverbs_dev::QueueFormat;
use warpverbs_mem::{Region, SmallBuf};
use warpverbs_mlx5::recv;
use warpverbs_mlx5::wqe::Sge;
use warpverbs_nic::{Dialect, Pd, SoftNic, Srq, SrqConfig};

const LOG: u8 = 3;

pub(crate) struct Shared {
    pub(crate) srq: Option<Srq>,
    dialect: Dialect,
    log_stride: u8,
    buf: Region,
    dbr: Region,
}

impl Shared {
    pub(crate) fn new() -> Self {
        let (buf, dbr) = (SmallBuf::region(128 << LOG), SmallBuf::region(16));
        Self { srq: None, dialect: Dialect::Mlx5, log_stride: 6, buf, dbr }
    }

    /// The SRQ, made if there is none; `None` if it is another format's, or the format has none.
    pub(crate) fn of(&mut self, nic: &SoftNic, pd: &Pd, format: QueueFormat) -> Option<Srq> {
        if self.srq.is_none() {
            let (dialect, log_stride) = (format.dialect(), format.log_stride());
            let config = SrqConfig {
                dialect,
                order: Default::default(),
                buf: self.buf.clone(),
                log_size: LOG,
                log_stride,
                dbr: self.dbr.clone(),
            };
            self.srq = nic.create_srq(pd, &config).ok();
            (self.dialect, self.log_stride) = (dialect, log_stride);
        }
        self.srq.clone().filter(|_| self.dialect == format.dialect())
    }

    /// Writes a receive with a link or a number, and a counter of receives that were posted.
    pub(crate) fn post(&self, link: u8, sges: &[Sge], posted: u16) {
        let (mut slot, srqn) = ([0; 128], self.srq.as_ref().map_or(0, Srq::srqn));
        let (is_built, bell) = match self.dialect {
            Dialect::Bnxt(library) => {
                let ring = Ring::new(1 << LOG, library).expect("a ring");
                let word = ring.doorbell(Kind::Shared, srqn, posted.into()).word();
                (bnxt_recv::build(&mut slot, link.into(), sges).is_ok(), word)
            }
            _ => {
                let wqe = slot.first_chunk_mut::<64>().expect("long enough");
                (recv::build_srq(wqe, link.into(), sges).is_ok(), u32::from(posted).to_be().into())
            }
        };
        if is_built {
            let (at, len) = (u64::from(link % (1 << LOG)), 1 << self.log_stride);
            self.buf.write(at << self.log_stride, &slot[..len]).unwrap();
        }
        self.dbr.write(0, &bell.to_le_bytes()).unwrap();
    }
}
