//! The types that kernels take, as the device library's C++ headers declare them.

use crate::Buffer;
use crate::buffer::Keep;

/// Needs of the memory behind addresses.
#[derive(Clone)]
pub(crate) struct Holds {
    pub(crate) keep: Vec<Keep>,
    /// Whether all of it is host memory at the addresses of this process.
    pub(crate) on_host: bool,
    /// A bit for each [`NicFormat`] that queue pairs in it have.
    pub(crate) formats: u8,
}

impl Holds {
    pub(crate) const NONE: Self = Self { keep: Vec::new(), on_host: true, formats: 0 };

    /// Those of plain data in `buffer`.
    pub(crate) fn of(buffer: &Buffer) -> Self {
        Self { keep: vec![buffer.keep()], on_host: buffer.is_host_address(), formats: 0 }
    }

    pub(crate) fn add(&mut self, more: &Self) {
        self.keep.extend_from_slice(&more.keep);
        self.on_host &= more.on_host;
        self.formats |= more.formats;
    }
}

/// A parameter of a kernel, or a member of a structure that a kernel reads.
///
/// # Safety
/// [`KernelArg::write`] must write all members of the C++ type at their offsets, `SIZE` and `ALIGN`
/// must be those of the C++ type, and an address that it writes must be that of a [`KernelPtr`](crate::KernelPtr).
pub unsafe trait KernelArg {
    /// Size of the C++ type in bytes.
    const SIZE: usize;
    /// Alignment of the C++ type in bytes, at most 16.
    const ALIGN: usize;

    /// Writes the value at `offset` of `out`.
    fn write(&self, out: &mut ArgBytes<'_>, offset: usize);

    /// Checks every pointer among its members: a kernel touches one element behind each.
    fn check(&self) -> Result<(), &'static str> {
        Ok(())
    }
}

/// Plain data: every pattern of bits is a value, so a kernel may be given any memory for it.
///
/// # Safety
/// The type has no padding, no pointers and no invalid values, and is laid out as in C++.
pub unsafe trait Element: Copy + Send + Sync + 'static {}

/// Where a [`KernelArg`] writes itself.
pub struct ArgBytes<'a> {
    bytes: &'a mut [u8],
    holds: &'a mut Holds,
}

impl<'a> ArgBytes<'a> {
    pub(crate) fn new(bytes: &'a mut [u8], holds: &'a mut Holds) -> Self {
        Self { bytes, holds }
    }

    /// Writes `bytes` at `offset`.
    pub fn bytes(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) fn pointer(&mut self, offset: usize, addr: u64, holds: &Holds) {
        self.bytes(offset, &addr.to_ne_bytes());
        self.holds.add(holds);
    }

    /// Keeps `more` alive as long as the bytes are in use.
    pub fn keep(&mut self, more: Keep) {
        self.holds.keep.push(more);
    }
}

macro_rules! scalars {
    ($($ty:ty)*) => {$(
        // SAFETY: a number: all of its bytes are written.
        unsafe impl KernelArg for $ty {
            const SIZE: usize = size_of::<$ty>();
            const ALIGN: usize = align_of::<$ty>();

            fn write(&self, out: &mut ArgBytes<'_>, offset: usize) {
                out.bytes(offset, &self.to_ne_bytes());
            }
        }
        // SAFETY: a number of fixed width.
        unsafe impl Element for $ty {}
    )*};
}
scalars!(u8 u16 u32 u64 i32 i64 f32 f64);

/// `wv::vec16`: two words that device code moves at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct Vec16 {
    /// The word at the lower address.
    pub lo: u64,
    /// The word at the higher address.
    pub hi: u64,
}
// SAFETY: two words without padding.
unsafe impl Element for Vec16 {}
// SAFETY: two words without padding, aligned as in C++.
unsafe impl Element for warpverbs_layout::Signal {}
// SAFETY: two words without padding, laid out as in C++.
unsafe impl Element for warpverbs_layout::StopRecord {}

/// `wv::Status`, how a call in a kernel ended: 0 for success, else an outcome in bits 7..0 and what
/// the NIC said above.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(transparent)]
pub struct DeviceStatus(pub u32);
// SAFETY: one u32.
unsafe impl Element for DeviceStatus {}

/// `wv::Qp`, a queue pair as kernels post to it. There is no value of this type on the host: only
/// an endpoint gives out a pointer to one.
#[derive(Clone, Copy, Debug)]
pub enum Qp {}

/// `wv::Heap`, a symmetric heap as kernels see it. There is no value of this type on the host: only
/// an exported heap gives out a pointer to one.
#[derive(Clone, Copy, Debug)]
pub enum DeviceHeap {}

/// `wv::Ep`, a channel for expert parallelism as kernels see it. There is no value of this type on the
/// host: only an exported channel gives out a pointer to one.
#[derive(Clone, Copy, Debug)]
pub enum DeviceEp {}

/// `wv::LocalView`, a table of an agent's own memory. There is no value of this type on the host: only
/// [`local_view`](crate::views::local_view) gives out a pointer to one.
#[derive(Clone, Copy, Debug)]
pub enum LocalView {}

/// `wv::RemoteView`, a table of peers' memory. There is no value of this type on the host: only
/// [`remote_view`](crate::views::remote_view) gives out a pointer to one.
#[derive(Clone, Copy, Debug)]
pub enum RemoteView {}

/// `wv::Local`: where a work request's data lies on the own side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Local {
    /// Address of the first byte, as the NIC knows it.
    pub addr: u64,
    /// Key of the registered region.
    pub lkey: u32,
}

/// `wv::Remote`: where a work request's data lies at the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Remote {
    /// Address of the first byte, as the peer's NIC knows it.
    pub addr: u64,
    /// Key of the registered region.
    pub rkey: u32,
}

macro_rules! keyed {
    ($($ty:ident $key:ident)*) => {$(
        impl $ty {
            /// The place `offset` bytes further on.
            pub const fn offset(self, offset: u64) -> Self {
                Self { addr: self.addr.wrapping_add(offset), ..self }
            }
        }

        // SAFETY: an address for the NIC, which checks it against the key, and the key.
        unsafe impl KernelArg for $ty {
            const SIZE: usize = size_of::<$ty>();
            const ALIGN: usize = align_of::<$ty>();

            fn write(&self, out: &mut ArgBytes<'_>, offset: usize) {
                self.addr.write(out, offset);
                self.$key.write(out, offset + core::mem::offset_of!($ty, $key));
            }
        }
    )*};
}
keyed!(Local lkey Remote rkey);

// SAFETY: arrays have no padding between elements, in C++ as in Rust.
unsafe impl<T: KernelArg, const N: usize> KernelArg for [T; N] {
    const SIZE: usize = T::SIZE * N;
    const ALIGN: usize = T::ALIGN;

    fn write(&self, out: &mut ArgBytes<'_>, offset: usize) {
        for (i, element) in self.iter().enumerate() {
            element.write(out, offset + i * T::SIZE);
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        self.iter().try_for_each(T::check)
    }
}
