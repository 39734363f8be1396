//! Structures of the interface, as the kernel's headers declare them: native byte order, no
//! padding that is not a member.

mod bnxt;
mod core;
mod ionic;
mod mlx5;

pub use self::bnxt::*;
pub use self::core::*;
pub use self::ionic::*;
pub use self::mlx5::*;

/// A structure's name in the kernel's headers, its size, and each member's name and offset.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Name in the headers, without `struct`.
    pub name: &'static str,
    /// Bytes.
    pub size: usize,
    /// Name and offset of each member.
    pub members: &'static [(&'static str, usize)],
}

/// Declares structures together with their [`Layout`]s, the list of which is `$list`.
macro_rules! structures {
    ($list:ident: $($(#[$doc:meta])* $name:ident = $c:ident {
        $($(#[$member_doc:meta])* $member:ident: $ty:ty,)*
    })*) => {
        $($(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[derive(zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
        #[repr(C)]
        #[allow(missing_docs)]
        pub struct $name { $($(#[$member_doc])* pub $member: $ty,)* })*

        /// Layouts that a test compares with the kernel's headers.
        pub const $list: &[crate::abi::Layout] = &[$(crate::abi::Layout {
            name: stringify!($c),
            size: size_of::<$name>(),
            members: &[$((stringify!($member), core::mem::offset_of!($name, $member)),)*],
        },)*];
    };
}
pub(crate) use structures;

/// The structure at the start of `bytes`; members that `bytes` does not reach are zero.
pub(crate) fn take<T: zerocopy::FromZeros + zerocopy::IntoBytes + zerocopy::FromBytes>(
    bytes: &[u8],
) -> T {
    let mut value = T::new_zeroed();
    let len = bytes.len().min(size_of::<T>());
    value.as_mut_bytes()[..len].copy_from_slice(&bytes[..len]);
    value
}
