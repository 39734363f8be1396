//! Types of parameters and members: how C++ lays them out, and what they are in Rust.

use std::fmt::Write as _;

/// A type that a kernel may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    /// A number, by its Rust name.
    Scalar(&'static str),
    /// A type of the device library that has a Rust counterpart of the same name.
    Library(&'static str),
    /// A structure of the kernel's source.
    Structure(String),
    /// A pointer.
    Pointer(Box<Type>),
    /// An array, in a structure.
    Array(Box<Type>, usize),
}

/// A member of a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// The type as written.
    pub(crate) cpp: String,
    pub(crate) ty: Type,
    pub(crate) offset: usize,
}

/// A structure whose members a kernel reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Structure {
    pub(crate) name: String,
    /// The comment right above, a line each.
    pub(crate) doc: Vec<String>,
    pub(crate) members: Vec<Member>,
    pub(crate) layout: Layout,
}

/// Size and alignment in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) size: usize,
    pub(crate) align: usize,
}

/// C++ names, without `wv::` and `std::`, and their Rust counterparts.
pub(crate) const SCALARS: [(&str, &str); 16] = [
    ("u8", "u8"),
    ("u16", "u16"),
    ("u32", "u32"),
    ("u64", "u64"),
    ("i32", "i32"),
    ("i64", "i64"),
    ("f32", "f32"),
    ("f64", "f64"),
    ("uint8_t", "u8"),
    ("uint16_t", "u16"),
    ("uint32_t", "u32"),
    ("uint64_t", "u64"),
    ("int32_t", "i32"),
    ("int64_t", "i64"),
    ("float", "f32"),
    ("double", "f64"),
];

/// Types of the device library that may be given by value, and those behind pointers alone. Handles
/// are read by the library: the host makes them, and kernels take them as `const Qp*`.
const BY_VALUE: [&str; 2] = ["Local", "Remote"];
const BY_POINTER: [&str; 3] = ["DeviceStatus", "Vec16", "StopRecord"];
const HANDLES: [&str; 5] = ["Qp", "DeviceHeap", "LocalView", "RemoteView", "DeviceEp"];

impl Type {
    /// The type written as `cpp`, without the name of what has it.
    pub(crate) fn parse(cpp: &str) -> Result<Self, &'static str> {
        let Some((pointee, own)) = cpp.split_once('*') else {
            let ty = Self::named(cpp)?;
            return match &ty {
                ty if ty.is_handle() => Err("a handle is taken by pointer, as `const Qp*`"),
                Self::Library(name) if BY_POINTER.contains(name) => {
                    Err("this type is taken by pointer")
                }
                _ => Ok(ty),
            };
        };
        if own.contains('*') {
            return Err("a pointer to a pointer is not possible");
        }
        let ty = Self::named(pointee)?;
        let is_const = pointee.split_whitespace().any(|word| word == "const");
        if ty.is_handle() && !is_const {
            return Err("a handle is read-only: `const Qp*`, `const Heap*`");
        }
        Ok(Self::Pointer(Box::new(ty)))
    }

    /// Whether it is a handle: the library reads one behind a pointer, whatever the kernel does.
    pub(crate) fn is_handle(&self) -> bool {
        matches!(self, Self::Library(name) if HANDLES.contains(name))
    }

    fn named(cpp: &str) -> Result<Self, &'static str> {
        let mut words = cpp.split_whitespace().filter(|word| *word != "const");
        let (Some(word), None) = (words.next(), words.next()) else {
            return Err("a type must be one name; numbers have the fixed-width names");
        };
        let word = word.trim_start_matches("::");
        let word = word.strip_prefix("wv::").or_else(|| word.strip_prefix("std::")).unwrap_or(word);
        if let Some((_, rust)) = SCALARS.iter().find(|(name, _)| *name == word) {
            return Ok(Self::Scalar(rust));
        }
        let word = match word {
            "vec16" => "Vec16",
            "Heap" => "DeviceHeap",
            "Ep" => "DeviceEp",
            "Status" => "DeviceStatus",
            _ => word,
        };
        let library =
            BY_VALUE.iter().chain(&BY_POINTER).chain(&HANDLES).find(|name| **name == word);
        let own = || Self::Structure(word.to_owned());
        Ok(library.map_or_else(own, |name| Self::Library(name)))
    }

    /// Its layout, given those of structures.
    pub(crate) fn layout(&self, structures: &[Structure]) -> Option<Layout> {
        let number = |size| Some(Layout { size, align: size });
        match self {
            Self::Pointer(_) | Self::Scalar("u64" | "i64" | "f64") => number(8),
            Self::Scalar("u16") => number(2),
            Self::Scalar("u8") => number(1),
            Self::Scalar(_) => number(4),
            // `Local` and `Remote`: an address and a key.
            Self::Library(_) => Some(Layout { size: 16, align: 8 }),
            Self::Structure(name) => structures.iter().find(|s| s.name == *name).map(|s| s.layout),
            Self::Array(element, count) => {
                let Layout { size, align } = element.layout(structures)?;
                Some(Layout { size: size.checked_mul(*count)?, align })
            }
        }
    }

    /// The Rust type, where `gpu` is the path of the types that generated code uses.
    pub(crate) fn rust(&self, gpu: &str) -> String {
        match self {
            Self::Scalar(name) => (*name).to_owned(),
            Self::Library(name) => format!("{gpu}::{name}"),
            Self::Structure(name) => name.clone(),
            Self::Pointer(to) => format!("{gpu}::KernelPtr<{}>", to.rust(gpu)),
            Self::Array(element, count) => format!("[{}; {count}]", element.rust(gpu)),
        }
    }

    /// The structure that it is, points to, or is an array of.
    pub(crate) fn structure(&self) -> Option<&str> {
        match self {
            Self::Structure(name) => Some(name),
            Self::Pointer(inner) | Self::Array(inner, _) => inner.structure(),
            Self::Scalar(_) | Self::Library(_) => None,
        }
    }
}

/// Gives each of `members` its offset; the layout of the whole.
pub(crate) fn lay_out(members: &mut [Member], structures: &[Structure]) -> Option<Layout> {
    let mut whole = Layout { size: 0, align: 1 };
    for member in members {
        let Layout { size, align } = member.ty.layout(structures)?;
        member.offset = whole.size.next_multiple_of(align);
        whole = Layout { size: member.offset.checked_add(size)?, align: whole.align.max(align) };
    }
    whole.size = whole.size.max(1).next_multiple_of(whole.align);
    Some(whole)
}

impl Structure {
    /// Assertions by which the C++ compiler checks the layout.
    pub(crate) fn assertions(&self) -> String {
        let Self { name, layout: Layout { size, align }, .. } = self;
        let mut out = String::new();
        let _ = writeln!(
            out,
            "static_assert(sizeof({name}) == {size} && alignof({name}) == {align}, \"{name}\");"
        );
        for Member { name: member, offset, .. } in &self.members {
            let _ = writeln!(
                out,
                "static_assert(__builtin_offsetof({name}, {member}) == {offset}, \"{name}.{member}\");"
            );
        }
        out
    }
}
