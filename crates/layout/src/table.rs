//! The table's form.

/// A type of the table, as the generated header declares it.
#[derive(Clone, Copy, Debug)]
pub enum Item {
    /// A structure.
    Structure(&'static Structure),
    /// An enumeration.
    Enumeration(&'static Enumeration),
    /// Values that share a 64-bit word.
    Word(&'static Word),
}

/// A structure. Comments are those of the Rust type, line by line.
#[derive(Clone, Copy, Debug)]
pub struct Structure {
    /// Its name in C++.
    pub name: &'static str,
    /// Its comment.
    pub doc: &'static [&'static str],
    /// Size in bytes.
    pub size: usize,
    /// Alignment in bytes.
    pub align: usize,
    /// Whether that is more than its fields ask for.
    pub aligned: bool,
    /// A declaration that only C++ has.
    pub extra: Option<&'static str>,
    /// Its fields.
    pub fields: &'static [Field],
}

/// A field of a structure.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its type: that of C++ if that is another, else that of Rust.
    pub ty: &'static str,
    /// Its comment.
    pub doc: &'static [&'static str],
    /// Bytes from the start of the structure.
    pub offset: usize,
    /// Its size in bytes.
    pub size: usize,
    /// The structure whose fields stand in its place.
    pub inner: Option<Item>,
}

/// An enumeration.
#[derive(Clone, Copy, Debug)]
pub struct Enumeration {
    /// Its name in C++.
    pub name: &'static str,
    /// Its comment.
    pub doc: &'static [&'static str],
    /// Its integer type.
    pub repr: &'static str,
    /// Its values.
    pub values: &'static [Value],
}

/// A value of an enumeration.
#[derive(Clone, Copy, Debug)]
pub struct Value {
    /// Its name in Rust; in C++ the same in small letters.
    pub name: &'static str,
    /// Its comment.
    pub doc: &'static [&'static str],
    /// Its number.
    pub value: u64,
}

/// Values that share a 64-bit word, so that one atomic operation is of all of them.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    /// Its name.
    pub name: &'static str,
    /// Its comment.
    pub doc: &'static [&'static str],
    /// The bits that are set whatever the values are.
    pub set: u64,
    /// Its values.
    pub parts: &'static [Part],
}

/// A value in a word.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Its name.
    pub name: &'static str,
    /// Its type: `bool`, or an integer that has as many bits or is cut off above.
    pub ty: &'static str,
    /// Its comment.
    pub doc: &'static [&'static str],
    /// Its lowest bit.
    pub first: u32,
    /// Where it lies, counted from that bit on.
    pub mask: u64,
}

/// Declares plain structures, enumerations and packed words, and an [`Item`] for each: `TYPE::LAYOUT`.
///
/// `struct Name[SIZE]` is followed, where that applies, by `as "name in C++"`, `align(BYTES)`, and
/// `with "declaration"` of what only C++ has; traits behind a colon are derived beside those that every
/// structure has. A field whose type in C++ is not that in Rust is `field: u8 as "reach"`, and one whose
/// own fields stand in its place there is `field: Tail as fields`. There is no padding: what is not used
/// is a field.
///
/// `word Name` has parts with their bits, `part: u16 = 32..48`, or `part: bool = 0..1`; `word Name | BITS`
/// sets these bits, too. `new` packs the parts (`of` in C++), and a method for each takes it out.
///
/// ```
/// warpverbs_layout::layout! {
///     /// A range of memory.
///     pub struct Range[16]: Default {
///         /// Its address.
///         pub addr: u64,
///         /// Its size in bytes.
///         pub len: u64,
///     }
/// }
/// let warpverbs_layout::Item::Structure(range) = Range::LAYOUT else { unreachable!() };
/// assert_eq!((range.fields[1].name, range.fields[1].offset), ("len", 8));
/// ```
#[macro_export]
macro_rules! layout {
    () => {};
    (@type $ty:ty, fields) => { "" };
    (@type $ty:ty, $other:literal) => { $other };
    (@type $ty:ty) => { stringify!($ty) };
    (@inner $ty:ty, fields) => { Some(<$ty>::LAYOUT) };
    (@inner $ty:ty $(, $other:literal)?) => { None };
    (
        $(#[doc = $doc:literal])*
        $vis:vis struct $name:ident [$size:literal] $(as $cpp:literal)? $(align($align:literal))?
            $(with $extra:literal)? $(: $($derive:ident),+)?
        {
            $($(#[doc = $about:literal])* $visible:vis $field:ident: $ty:ty $(as $other:tt)?),+ $(,)?
        }
        $($rest:tt)*
    ) => {
        $(#[doc = $doc])*
        #[derive(
            Clone, Copy, Debug, $($($derive,)+)?
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout,
        )]
        #[repr(C $(, align($align))?)]
        $vis struct $name {
            $($(#[doc = $about])* $visible $field: $ty,)+
        }

        impl $name {
            /// The structure in the table.
            pub const LAYOUT: $crate::Item = $crate::Item::Structure(&$crate::Structure {
                name: [$($cpp,)? stringify!($name)][0],
                doc: &[$($doc),*],
                size: ::core::mem::size_of::<$name>(),
                align: ::core::mem::align_of::<$name>(),
                aligned: [$($align != 0,)? false][0],
                extra: [$(Some($extra),)? None][0],
                fields: &[$($crate::Field {
                    name: stringify!($field),
                    ty: $crate::layout!(@type $ty $(, $other)?),
                    doc: &[$($about),*],
                    offset: ::core::mem::offset_of!($name, $field),
                    size: ::core::mem::size_of::<$ty>(),
                    inner: $crate::layout!(@inner $ty $(, $other)?),
                }),+],
            });
        }

        const _: () = assert!(::core::mem::size_of::<$name>() == $size);
        $crate::layout! { $($rest)* }
    };
    (
        $(#[doc = $doc:literal])*
        $vis:vis enum $name:ident: $repr:ident as $cpp:literal {
            $($(#[doc = $about:literal])* $value:ident = $number:literal),+ $(,)?
        }
        $($rest:tt)*
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr($repr)]
        $vis enum $name {
            $($(#[doc = $about])* $value = $number,)+
        }

        impl $name {
            /// The enumeration in the table.
            pub const LAYOUT: $crate::Item = $crate::Item::Enumeration(&$crate::Enumeration {
                name: $cpp,
                doc: &[$($doc),*],
                repr: stringify!($repr),
                values: &[$($crate::Value {
                    name: stringify!($value),
                    doc: &[$($about),*],
                    value: $number,
                }),+],
            });
        }

        $crate::layout! { $($rest)* }
    };
    (@take $raw:expr, bool) => { $raw != 0 };
    (@take $raw:expr, $ty:ident) => { $raw as $ty };
    (
        $(#[doc = $doc:literal])*
        $vis:vis word $name:ident $(| $set:literal)? {
            $($(#[doc = $about:literal])* $part:ident: $ty:ident = $first:literal..$end:literal),+
            $(,)?
        }
        $($rest:tt)*
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $vis struct $name(pub u64);

        impl $name {
            /// The word in the table.
            pub const LAYOUT: $crate::Item = $crate::Item::Word(&$crate::Word {
                name: stringify!($name),
                doc: &[$($doc),*],
                set: 0 $(| $set)?,
                parts: &[$($crate::Part {
                    name: stringify!($part),
                    ty: stringify!($ty),
                    doc: &[$($about),*],
                    first: $first,
                    mask: u64::MAX >> (64 - ($end - $first)),
                }),+],
            });

            /// Packs its values.
            #[inline]
            pub const fn new($($part: $ty),+) -> Self {
                Self(0 $(| $set)? $(| ($part as u64) << $first)+)
            }

            $(
                $(#[doc = $about])*
                #[inline]
                pub const fn $part(self) -> $ty {
                    $crate::layout!(@take self.0 >> $first & (u64::MAX >> (64 - ($end - $first))), $ty)
                }
            )+
        }

        $crate::layout! { $($rest)* }
    };
}
