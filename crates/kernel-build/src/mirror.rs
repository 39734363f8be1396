//! Checks in tests that Rust and C++ declare the same structures.

use std::fmt::{Display, Write as _};
use std::path::Path;
use std::process::Command;

/// A translation unit that compiles only if structures and numbers are the same in both languages.
///
/// ```
/// use warpverbs_kernel_build::{Mirror, mirrored};
///
/// #[repr(C)]
/// struct Key {
///     address: u64,
///     key: u32,
///     reserved: u32,
/// }
///
/// let mut mirror = Mirror::new("struct Remote { unsigned long long addr; unsigned rkey, reserved; };");
/// mirrored!(mirror, "Remote" = Key { address as "addr", key as "rkey", reserved });
/// mirror.equal("sizeof(Remote)", 16);
/// mirror.compile(std::path::Path::new(".")).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Mirror(String);

impl Mirror {
    /// Of what `prologue` declares or includes.
    pub fn new(prologue: &str) -> Self {
        Self(format!("{prologue}\n"))
    }

    /// A constant expression of C++ has this value.
    pub fn equal(&mut self, expression: &str, value: impl Display) {
        self.0.push_str("static_assert(");
        // Text that can be written to never refuses it.
        let _ = writeln!(self.0, "{expression} == {value}, R\"({expression} == {value})\");");
    }

    /// Size of a structure, and its alignment if it has one: types of bytes in a byte order of their own
    /// have none in Rust.
    pub fn structure<T>(&mut self, cpp: &str) {
        self.equal(&format!("sizeof({cpp})"), size_of::<T>());
        if align_of::<T>() > 1 {
            self.equal(&format!("alignof({cpp})"), align_of::<T>());
        }
    }

    /// Compiles with `$CXX` or `c++`, in C++20 and without warnings, headers from `include`.
    ///
    /// # Errors
    ///
    /// What the compiler said, or why it could not be run.
    pub fn compile(&self, include: &Path) -> Result<(), String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let unit = folder.path().join("mirror.cpp");
        std::fs::write(&unit, &self.0).map_err(|error| format!("{}: {error}", unit.display()))?;
        let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
        let mut command = Command::new(&compiler);
        command.args(["-std=c++20", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I"]);
        let output = command.arg(include).arg(&unit).output();
        let output = output.map_err(|error| format!("{}: {error}", compiler.display()))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
}

/// A structure of C++ and one of Rust have the same size and alignment, and the named fields the same
/// offsets. A field that has another name in C++ is written `field as "name"`.
#[macro_export]
macro_rules! mirrored {
    ($mirror:expr, $cpp:literal = $rust:ty { $($field:ident $(as $name:literal)?),* $(,)? }) => {
        $mirror.structure::<$rust>($cpp);
        $(
            let name = [$($name,)? stringify!($field)][0];
            let place = format!("__builtin_offsetof({}, {name})", $cpp);
            $mirror.equal(&place, ::std::mem::offset_of!($rust, $field));
        )*
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    struct Two {
        first: u32,
        second: u64,
    }

    fn checked(declaration: &str) -> Result<(), String> {
        let mut mirror = Mirror::new(declaration);
        mirrored!(mirror, "Two" = Two { first, second as "other" });
        mirror.compile(Path::new("."))
    }

    #[test]
    fn what_differs_does_not_compile() {
        checked("struct Two { unsigned first; unsigned long long other; };").unwrap();
        for (declaration, wrong) in [
            ("struct Two { unsigned first; unsigned other; };", "sizeof(Two) == 16"),
            ("struct Two { unsigned long long other; unsigned first; };", "first) == 0"),
            ("struct alignas(16) Two { unsigned first; unsigned long long other; };", "alignof"),
        ] {
            let said = checked(declaration).unwrap_err();
            assert!(said.contains(wrong), "{said}");
        }
    }
}
