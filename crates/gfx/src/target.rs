//! The processors that are emulated, and how they differ for the whole of a launch. Opcodes of one of them alone are in
//! tables of its own.
use std::fmt;
use std::str::FromStr;

/// A processor that is emulated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// MI200: one L2, scratch memory by buffer instructions, a base of it in registers.
    Gfx90a,
    /// MI300: an L2 in each XCD, architected scratch memory.
    #[default]
    Gfx942,
}

impl Target {
    /// All of them.
    pub const ALL: [Target; 2] = [Target::Gfx90a, Target::Gfx942];

    /// As compilers call it.
    pub fn name(self) -> &'static str {
        match self {
            Target::Gfx90a => "gfx90a",
            Target::Gfx942 => "gfx942",
        }
    }

    /// The number in a code object's flags.
    pub(crate) fn machine(self) -> u32 {
        match self {
            Target::Gfx90a => 0x3f,
            Target::Gfx942 => 0x4c,
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Target {
    type Err = UnknownTarget;

    fn from_str(name: &str) -> Result<Target, UnknownTarget> {
        let found = Target::ALL.into_iter().find(|target| target.name() == name);
        found.ok_or_else(|| UnknownTarget(name.into()))
    }
}

/// The name of no processor that is emulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not emulated; expected gfx90a or gfx942")]
pub struct UnknownTarget(String);
