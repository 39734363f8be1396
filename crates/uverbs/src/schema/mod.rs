//! The interface as data: objects, their methods, and each method's attributes.
//!
//! The decoder, the tables of `docs/uverbs.md`, the generator of random calls in the tests, and
//! the comparison with the kernel's headers all read [`OBJECTS`].

mod objects;

pub use objects::OBJECTS;

/// Kind of an attribute's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes from the program: `min` to `max`; more are taken if the rest is zero and
    /// `grows` says that later versions may be longer.
    In {
        /// Bytes at least.
        min: u16,
        /// Bytes that are understood.
        max: u16,
        /// Longer values are taken if the rest is zero.
        grows: bool,
    },
    /// Bytes to the program: its buffer has at least `min`.
    Out {
        /// Bytes at least.
        min: u16,
        /// Bytes that are answered.
        max: u16,
        /// The buffer may be longer.
        grows: bool,
    },
    /// The handle of an object, or a descriptor where the class is one of descriptors.
    Object(Class, Access),
    /// A descriptor of the program that is not an object of the interface.
    Descriptor,
}

/// Kinds of objects with handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Class {
    Pd,
    CompChannel,
    Cq,
    Qp,
    Srq,
    Mr,
    Xrcd,
    IndTable,
    AsyncEvent,
    /// A descriptor from which events of firmware are read.
    DevxEvents,
    Ah,
    Uar,
    Umem,
    /// A CQ, QP or receive memory pool that was made by a mailbox.
    DevxObj,
    /// Any object that has a handle.
    Any,
}

impl Class {
    /// Objects of this class are descriptors of their own.
    pub const fn is_fd(self) -> bool {
        matches!(self, Self::CompChannel | Self::AsyncEvent | Self::DevxEvents)
    }
}

/// Effect of a method on an object that it names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Makes it: the handle is part of the answer.
    New,
    /// Uses it.
    Use,
    /// Destroys it.
    Destroy,
}

/// One attribute of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Its name in the kernel's headers.
    pub name: &'static str,
    /// Its number.
    pub id: u16,
    /// Kind of its value.
    pub kind: Kind,
    /// The method needs it.
    pub mandatory: bool,
}

/// One method of an object.
#[derive(Clone, Copy, Debug)]
pub struct Method {
    /// Its name in the kernel's headers.
    pub name: &'static str,
    /// Its number.
    pub id: u16,
    /// Its attributes; `None` for a method that is known by name only, and refused.
    pub attrs: Option<&'static [Attr]>,
}

/// One object.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// Its name in the kernel's headers.
    pub name: &'static str,
    /// Its number.
    pub id: u16,
    /// Its methods.
    pub methods: &'static [Method],
}

impl Object {
    /// The object of this number.
    pub fn find(id: u16) -> Option<&'static Self> {
        OBJECTS.iter().find(|object| object.id == id)
    }

    /// The method of this number.
    pub fn method(&self, id: u16) -> Option<&'static Method> {
        self.methods.iter().find(|method| method.id == id)
    }

    /// The name of a call, without what the headers put before every name: `QP.CREATE`.
    pub fn call(&self, method: &Method) -> String {
        let short = |name: &'static str, mark| name.split_once(mark).map_or(name, |(_, rest)| rest);
        let (object, method) = (short(self.name, "_OBJECT_"), short(method.name, "_METHOD_"));
        let own = method.strip_prefix(object).and_then(|rest| rest.strip_prefix('_'));
        format!("{object}.{}", own.unwrap_or(method))
    }
}

/// Attributes, methods and objects of drivers are numbered from here.
pub const DRIVER: u16 = 0x1000;
/// Attribute with the driver's input, where a method takes such.
pub const UHW_IN: u16 = DRIVER;
/// Attribute with the driver's output.
pub const UHW_OUT: u16 = DRIVER + 1;
