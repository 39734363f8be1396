//! The kernel's structures, in its byte order: `include/uapi/linux/uio.h`,
//! `Documentation/networking/devmem.rst`.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `struct cmsghdr`: of a 64-bit kernel, whatever a C library declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct CmsgHeader {
    /// Bytes of this header and the payload, without padding.
    pub len: u64,
    /// `SOL_SOCKET`.
    pub level: i32,
    /// `SCM_DEVMEM_DMABUF` or `SCM_DEVMEM_LINEAR`.
    pub kind: i32,
}

/// `struct dmabuf_cmsg`: a run of received bytes.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DmabufCmsg {
    /// Of the first byte in the dmabuf. Means nothing for linear bytes.
    pub frag_offset: u64,
    /// Bytes.
    pub frag_size: u32,
    /// To be returned. Means nothing for linear bytes.
    pub frag_token: u32,
    /// The binding. Means nothing for linear bytes.
    pub dmabuf_id: u32,
    /// None are defined.
    pub flags: u32,
}

/// A control message that announces a fragment, as the kernel always writes it.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Announcement {
    /// 40 bytes, `SOL_SOCKET`, and the kind.
    pub header: CmsgHeader,
    /// The fragment.
    pub fragment: DmabufCmsg,
}

impl Announcement {
    /// `CMSG_SPACE(sizeof(struct dmabuf_cmsg))`.
    pub const BYTES: usize = size_of::<Self>();

    /// Whether it is of a fragment in a dmabuf.
    #[inline]
    pub(crate) fn is_dmabuf(&self) -> bool {
        // Two words, not three fields: this is asked for every fragment.
        let [len, rest]: [u64; 2] = zerocopy::transmute!(self.header);
        let [_, usual]: [u64; 2] = zerocopy::transmute!(Self::DMABUF);
        len == Self::DMABUF.len && rest == usual
    }

    const DMABUF: CmsgHeader = CmsgHeader {
        len: Self::BYTES as u64,
        level: libc::SOL_SOCKET,
        kind: libc::SCM_DEVMEM_DMABUF,
    };

    /// Of a fragment in a dmabuf.
    pub fn dmabuf(fragment: DmabufCmsg) -> Self {
        Self { header: Self::DMABUF, fragment }
    }
}

/// `struct dmabuf_token`: a range of tokens that are returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DmabufToken {
    /// The first.
    pub token_start: u32,
    /// How many.
    pub token_count: u32,
}

/// Ranges that one `SO_DEVMEM_DONTNEED` takes.
pub const MAX_RANGES: usize = 128;

/// Fragments that one `SO_DEVMEM_DONTNEED` frees.
pub const MAX_FRAGMENTS: u32 = 1024;

/// Bytes that one `recvmsg` returns at most.
pub const MAX_RECEIVE: u64 = i32::MAX as u64;

/// Flag of `recvmsg`: packets may be in device memory.
pub const MSG_SOCK_DEVMEM: i32 = 0x0200_0000;
