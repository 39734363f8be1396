//! The differences between drivers: the words of each user library beside the common structures, and the answers
//! to them. The rest of the crate knows no driver.

mod bnxt;
mod ionic;
mod mlx5;

use crate::call::Call;
use crate::device::{CqRequest, Profile, QpRequest, ResizeRequest, SrqRequest};
use crate::{Driver, Refusal};
use warpverbs_rdma::Service;

/// A QP to make, and the number of its doorbell page, if it names one.
pub(crate) type QpOfDriver = (QpRequest, Option<u32>);

impl Driver {
    /// Opens a context: the driver for its library, the version of its CQEs, and the answer.
    pub(crate) fn open(
        self,
        call: &Call,
        profile: &Profile,
    ) -> Result<(Self, u8, Vec<u8>), Refusal> {
        Ok(match self {
            Self::Mlx5 => {
                let (cqe_version, answer) = mlx5::open(call, profile)?;
                (self, cqe_version, answer)
            }
            Self::Bnxt { doorbells, .. } => {
                let (library, answer) = bnxt::open(call, profile);
                (Self::Bnxt { doorbells, library }, 0, answer)
            }
            Self::Ionic { doorbells } => (self, 0, ionic::open(doorbells)),
        })
    }

    /// The answer to a new protection domain.
    pub(crate) fn pd(self, pdn: u32) -> Vec<u8> {
        match self {
            Self::Mlx5 => mlx5::pd(pdn),
            Self::Bnxt { doorbells, .. } => bnxt::pd(pdn, doorbells),
            Self::Ionic { .. } => Vec::new(),
        }
    }

    /// A CQ, of which the common part is known.
    pub(crate) fn cq(self, call: &Call, common: CqRequest) -> Result<CqRequest, Refusal> {
        match self {
            Self::Mlx5 => mlx5::cq(call, common),
            Self::Bnxt { .. } => bnxt::cq(call, common),
            Self::Ionic { .. } => ionic::cq(call, common),
        }
    }

    /// The answer to a new CQ.
    pub(crate) fn cq_made(self, cqn: u32) -> Vec<u8> {
        match self {
            Self::Mlx5 => mlx5::cq_made(cqn),
            Self::Bnxt { .. } => bnxt::cq_made(cqn),
            Self::Ionic { .. } => ionic::cq_made(cqn),
        }
    }

    /// Another ring of `entries` CQEs for a CQ.
    pub(crate) fn resize(self, call: &Call, entries: u32) -> Result<ResizeRequest, Refusal> {
        match self {
            Self::Mlx5 => mlx5::resize(call, entries),
            Self::Bnxt { .. } => bnxt::resize(call, entries),
            Self::Ionic { .. } => Err(self.lacks("resized CQs")),
        }
    }

    /// An SRQ with room for `entries` receives of `sge` scatter entries each, a power of two, one of which
    /// stays free.
    pub(crate) fn srq(self, call: &Call, entries: u32, sge: u32) -> Result<SrqRequest, Refusal> {
        match self {
            Self::Mlx5 => mlx5::srq(call, entries, sge),
            Self::Bnxt { .. } => bnxt::srq(call, self, entries),
            Self::Ionic { .. } => Err(self.lacks("SRQs")),
        }
    }

    /// The answer to a new SRQ.
    pub(crate) fn srq_made(self, srqn: u32) -> Vec<u8> {
        match self {
            Self::Mlx5 => mlx5::srq_made(srqn),
            Self::Bnxt { .. } => bnxt::srq_made(srqn),
            Self::Ionic { .. } => Vec::new(),
        }
    }

    /// The service of a QP of the type that a call names: `IB_UVERBS_QPT_*`.
    pub(crate) fn service(self, kind: u64) -> Result<Service, Refusal> {
        match self {
            Self::Mlx5 => mlx5::service(kind),
            Self::Bnxt { .. } => bnxt::service(kind),
            Self::Ionic { .. } => ionic::service(kind),
        }
    }

    /// A QP. `indexed`: CQEs carry a value of the program.
    pub(crate) fn qp(
        self,
        call: &Call,
        service: Service,
        profile: &Profile,
        indexed: bool,
    ) -> Result<QpOfDriver, Refusal> {
        match self {
            Self::Mlx5 => mlx5::qp(call, service, profile, indexed),
            Self::Bnxt { library, .. } => Ok((bnxt::qp(call, library, service, profile)?, None)),
            Self::Ionic { .. } => Ok((ionic::qp(call, service)?, None)),
        }
    }

    /// The answer to a new QP.
    pub(crate) fn qp_made(self, qpn: u32) -> Vec<u8> {
        match self {
            Self::Mlx5 => mlx5::qp_made(),
            Self::Bnxt { .. } => bnxt::qp_made(qpn),
            Self::Ionic { .. } => ionic::qp_made(qpn),
        }
    }

    /// The answer, of `room` bytes at most, to a change of a QP; `dctn` is the number that a target of dynamic
    /// connections has got by it.
    pub(crate) fn qp_changed(self, room: usize, dctn: u32) -> Option<Vec<u8>> {
        matches!(self, Self::Mlx5).then(|| mlx5::qp_changed(room, dctn))
    }

    /// WQEs name addresses of datagrams by numbers, and do not hold them.
    pub(crate) fn numbers_addresses(self) -> bool {
        !matches!(self, Self::Mlx5)
    }

    /// The answer, of `room` bytes at most, to a new address handle of this number for `gid`.
    pub(crate) fn ah(self, room: usize, gid: [u8; 16], number: u32) -> Vec<u8> {
        match self {
            Self::Mlx5 => mlx5::ah(room, gid),
            Self::Bnxt { .. } => Vec::new(),
            Self::Ionic { .. } => ionic::ah(number),
        }
    }

    fn lacks(self, what: &str) -> Refusal {
        Refusal::unsupported(format!("{} has no {what} here", self.name()))
    }

    /// The driver's own capabilities, of `room` bytes at most.
    pub(crate) fn capabilities(self, room: usize) -> Option<Vec<u8>> {
        matches!(self, Self::Mlx5).then(|| mlx5::capabilities(room))
    }
}

/// The first bytes of an answer that says how long it is.
fn cut(answer: &[u8], room: usize) -> Vec<u8> {
    answer[..room.min(answer.len())].to_vec()
}
