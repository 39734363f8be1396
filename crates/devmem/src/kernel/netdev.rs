//! Family `netdev`: binding dmabufs to an interface (`Documentation/netlink/specs/netdev.yaml`).

use super::netlink::{Netlink, NetlinkError, find_number, nested, number};
use super::{Interface, Refusal};
use std::os::fd::{AsRawFd as _, BorrowedFd};

/// Use that a dmabuf is bound for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Receiving.
    Receive,
    /// Sending.
    Send,
}

impl Operation {
    fn command(self) -> u8 {
        match self {
            Self::Receive => 13,
            Self::Send => 15,
        }
    }
}

const IFINDEX: u16 = 1;
const QUEUES: u16 = 2;
const FD: u16 = 3;
const ID: u16 = 4;
const QUEUE_ID: u16 = 1;
const QUEUE_TYPE: u16 = 3;
const TYPE_RX: u32 = 0;

/// A connection to the kernel for one binding.
pub struct Netdev {
    netlink: Netlink,
}

/// A dmabuf that is bound. Dropping this unbinds it; sockets that use it fail.
pub struct Binding {
    id: u32,
    _netlink: Netlink,
}

impl Binding {
    /// The kernel's number of the dmabuf.
    pub fn id(&self) -> u32 {
        self.id
    }
}

impl Netdev {
    /// # Errors
    /// The kernel lacks the family: it is older than 6.3.
    pub fn open() -> Result<Self, NetlinkError> {
        Ok(Self { netlink: Netlink::open("netdev")? })
    }

    /// Whether the kernel has the command; the driver may still refuse it.
    pub fn has(&self, operation: Operation) -> bool {
        self.netlink.has(operation.command())
    }

    /// Has packets of these receive queues put into the dmabuf. Needs `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// The kernel's refusal, with advice.
    pub fn bind_receive(
        mut self,
        interface: &Interface,
        queues: &[u32],
        dmabuf: BorrowedFd<'_>,
    ) -> Result<Binding, Refusal> {
        let queue =
            |id: &u32| nested(QUEUES, &[number(QUEUE_ID, *id), number(QUEUE_TYPE, TYPE_RX)]);
        let operation = Operation::Receive;
        let refusal = |cause| Refusal { operation, interface: interface.name.clone(), cause };
        let mut attributes: Vec<_> = queues.iter().map(queue).collect();
        let fd = u32::try_from(dmabuf.as_raw_fd()).unwrap_or(u32::MAX);
        attributes.extend([number(IFINDEX, interface.index), number(FD, fd)]);
        let answers = self.netlink.request(operation.command(), attributes).map_err(refusal)?;
        let id = answers.iter().find_map(|answer| find_number(&answer.attributes, ID));
        let what = "no id of the binding".to_owned();
        let id = id.ok_or_else(|| refusal(NetlinkError::Malformed { what }))?;
        Ok(Binding { id, _netlink: self.netlink })
    }
}
