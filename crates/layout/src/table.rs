//! The table's form.

/// A type of the table, as the generated header declares it.
#[derive(Clone, Copy, Debug)]
pub enum Item {
    /// A structure.
    Structure(&'static Structure),
    /// An enumeration.
    Enumeration(&'static Enumeration),
    /// Values that share a word.
    Word(&'static Word),
    /// Numbers.
    Constants(&'static [Constant]),
}

/// A number.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    /// Its name; in C++ the same in small letters.
    pub name: &'static str,
    /// Its type in C++.
    pub ty: &'static str,
    /// Its comment.
    pub doc: &'static [&'static str],
    /// Its value.
    pub value: u64,
}

impl Constant {
    /// A number of this type and name, with this comment.
    pub const fn new(
        ty: &'static str,
        name: &'static str,
        doc: &'static [&'static str],
        value: u64,
    ) -> Self {
        Self { name, ty, doc, value }
    }
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
    /// Its name in Rust, `LikeThis`; in C++ it is `like_this`.
    pub name: &'static str,
    /// Its comment.
    pub doc: &'static [&'static str],
    /// Its number, as the table writes it.
    pub number: &'static str,
}

/// Values that share a word, so that one atomic operation is of all of them.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    /// Its name.
    pub name: &'static str,
    /// Its comment.
    pub doc: &'static [&'static str],
    /// The name of the integer in C++.
    pub raw: &'static str,
    /// The integer's type.
    pub repr: &'static str,
    /// A declaration that only C++ has.
    pub extra: Option<&'static str>,
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
    /// Its type in C++: `bool`, or one that has as many bits or is cut off above.
    pub ty: &'static str,
    /// Its comment.
    pub doc: &'static [&'static str],
    /// Its lowest bit.
    pub first: u32,
    /// Where it lies, counted from that bit on.
    pub mask: u64,
}

/// Declares plain structures, enumerations and packed words, and an [`Item`] for each: `TYPE::LAYOUT`;
/// and numbers, with one [`Item`] for all of them.
///
/// `struct Name[SIZE]` is followed, where that applies, by `as "name in C++"`, `align(BYTES)`, and
/// `with "declaration"` of what only C++ has; traits behind a colon are derived beside those that every
/// structure has. A field whose type in C++ is not that in Rust is `field: u8 as "reach"`, and one whose
/// own fields stand in its place there is `field: Tail as fields`. There is no padding: what is not used
/// is a field.
///
/// `enum Name: u8 as "name"` has a number for each value; `open enum` has `Unknown` for all other numbers
/// as well, and its values may have texts, `Nop = 0 "NOP"`.
///
/// `word Name[raw: u64]` has parts with their bits, `part: u16 = 32..48`, or `part: bool = 0..1`; `raw` is
/// the integer in C++. `word Name[raw: u64] | BITS` sets these bits, too, and `with` adds a declaration as
/// above. `new` packs the parts (`of` in C++, where parts left out at the end are 0), and a method for each
/// takes it out.
///
/// `consts NAME { pub SLOTS: usize as "u32" = 64 }` declares each number, and the item `NAME`.
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
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr($repr)]
        $vis enum $name {
            $($(#[doc = $about])* $value = $number,)+
        }

        impl $name {
            $crate::layout! { @enumeration $repr $cpp [$($doc)*] $([$value $number $($about)*])+ }

            /// The value of a number; `None` for one without a name here.
            #[inline]
            pub const fn from_value(value: $repr) -> Option<Self> {
                match value {
                    $($number => Some(Self::$value),)+
                    _ => None,
                }
            }
        }

        $crate::layout! { $($rest)* }
    };
    (
        $(#[doc = $doc:literal])*
        $vis:vis open enum $name:ident: $repr:ident as $cpp:literal {
            $($(#[doc = $about:literal])* $value:ident = $number:literal $($text:literal)?),+ $(,)?
        }
        $($rest:tt)*
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $vis enum $name {
            $($(#[doc = $about])* $value,)+
            /// A number without a name here.
            Unknown($repr),
        }

        impl $name {
            $crate::layout! { @enumeration $repr $cpp [$($doc)*] $([$value $number $($about)*])+ }

            /// Every named value, in order of its number.
            pub const ALL: &'static [Self] = &[$(Self::$value,)+];

            /// Its name as text.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => [$($text,)? stringify!($value)][0],)+
                    Self::Unknown(_) => "unknown",
                }
            }

            /// The number.
            #[inline]
            pub const fn value(self) -> $repr {
                match self {
                    $(Self::$value => $number,)+
                    Self::Unknown(value) => value,
                }
            }

            /// The value of a number.
            #[inline]
            pub const fn from_value(value: $repr) -> Self {
                match value {
                    $($number => Self::$value,)+
                    value => Self::Unknown(value),
                }
            }
        }

        $crate::layout! { $($rest)* }
    };
    (
        @enumeration $repr:ident $cpp:literal [$($doc:literal)*]
        $([$value:ident $number:literal $($about:literal)*])+
    ) => {
        /// The enumeration in the table.
        pub const LAYOUT: $crate::Item = $crate::Item::Enumeration(&$crate::Enumeration {
            name: $cpp,
            doc: &[$($doc),*],
            repr: stringify!($repr),
            values: &[$($crate::Value {
                name: stringify!($value),
                doc: &[$($about),*],
                number: stringify!($number),
            }),+],
        });
    };
    (@take $raw:expr, bool) => { $raw != 0 };
    (@take $raw:expr, $ty:ident) => { $raw as $ty };
    (
        $(#[doc = $doc:literal])*
        $vis:vis word $name:ident [$raw:ident: $repr:ident] $(| $set:literal)? $(with $extra:literal)? {
            $(
                $(#[doc = $about:literal])*
                $part:ident: $ty:ident $(as $other:literal)? = $first:literal..$end:literal
            ),+
            $(,)?
        }
        $($rest:tt)*
    ) => {
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(transparent)]
        $vis struct $name(pub $repr);

        impl $name {
            /// The word in the table.
            pub const LAYOUT: $crate::Item = $crate::Item::Word(&$crate::Word {
                name: stringify!($name),
                doc: &[$($doc),*],
                raw: stringify!($raw),
                repr: stringify!($repr),
                extra: [$(Some($extra),)? None][0],
                set: 0 $(| $set)?,
                parts: &[$($crate::Part {
                    name: stringify!($part),
                    ty: $crate::layout!(@type $ty $(, $other)?),
                    doc: &[$($about),*],
                    first: $first,
                    mask: u64::MAX >> (64 - ($end - $first)),
                }),+],
            });

            /// Packs its values.
            #[inline]
            pub const fn new($($part: $ty),+) -> Self {
                Self(0 $(| $set)? $(| ($part as $repr) << $first)+)
            }

            $(
                $(#[doc = $about])*
                #[inline]
                pub const fn $part(self) -> $ty {
                    $crate::layout!(
                        @take self.0 >> $first & ($repr::MAX >> ($repr::BITS - ($end - $first))), $ty
                    )
                }
            )+
        }

        $crate::layout! { $($rest)* }
    };
    (
        consts $name:ident {
            $(
                $(#[doc = $about:literal])*
                $vis:vis $constant:ident: $ty:ident $(as $other:literal)? = $value:expr
            ),+
            $(,)?
        }
        $($rest:tt)*
    ) => {
        $($(#[doc = $about])* $vis const $constant: $ty = $value;)+

        pub(crate) const $name: $crate::Item = $crate::Item::Constants(&[$($crate::Constant {
            name: stringify!($constant),
            ty: $crate::layout!(@type $ty $(, $other)?),
            doc: &[$($about),*],
            value: $constant as u64,
        }),+]);

        $crate::layout! { $($rest)* }
    };
}
