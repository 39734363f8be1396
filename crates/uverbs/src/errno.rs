//! Error numbers of Linux.

use std::fmt;

macro_rules! errnos {
    ($($(#[$doc:meta])* $name:ident = $value:literal,)*) => {
        /// The error numbers of Linux that the interface answers with.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(i32)]
        #[allow(clippy::upper_case_acronyms)]
        pub enum Errno { $($(#[$doc])* $name = $value,)* }

        impl Errno {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Its name, as in `errno.h`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }
        }
    };
}

errnos! {
    /// There is no object with this handle.
    ENOENT = 2,
    /// The device does not work any more.
    EIO = 5,
    /// A descriptor that is not open, or is of something else.
    EBADF = 9,
    /// The device has no more of what is asked for.
    EAGAIN = 11,
    /// No memory, or no number, is left.
    ENOMEM = 12,
    /// A pointer to memory that the program does not have.
    EFAULT = 14,
    /// Another object uses this one.
    EBUSY = 16,
    /// An argument that is wrong in itself.
    EINVAL = 22,
    /// The system has no descriptor left.
    ENFILE = 23,
    /// The process has as many descriptors as it may.
    EMFILE = 24,
    /// The request is none of this interface at all.
    ENOTTY = 25,
    /// A buffer is shorter than the command needs.
    ENOSPC = 28,
    /// The entry of a table is empty.
    ENODATA = 61,
    /// The interface does not have this object, method or attribute. Libibverbs then tries another
    /// way.
    EPROTONOSUPPORT = 93,
    /// The device does not do this.
    EOPNOTSUPP = 95,
    /// A firmware command failed; its status is in the output mailbox.
    EREMOTEIO = 121,
}

impl Errno {
    /// Its number.
    pub fn number(self) -> i32 {
        self as i32
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
