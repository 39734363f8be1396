//! The metadata note of a code object: each kernel's name, arguments and needs, in MessagePack.
use crate::error::LoadError;
use serde::Deserialize;

/// The type of the note whose name is `AMDGPU`.
pub(crate) const NOTE: u32 = 32;

#[derive(Deserialize)]
pub(crate) struct Note {
    #[serde(rename = "amdhsa.version")]
    pub(crate) version: (u32, u32),
    #[serde(rename = "amdhsa.kernels")]
    pub(crate) kernels: Vec<KernelNote>,
}

#[derive(Deserialize)]
pub(crate) struct KernelNote {
    #[serde(rename = ".name")]
    pub(crate) name: String,
    #[serde(rename = ".symbol")]
    pub(crate) symbol: String,
    #[serde(rename = ".args", default)]
    pub(crate) arguments: Vec<ArgumentNote>,
    #[serde(rename = ".kernarg_segment_size")]
    pub(crate) kernarg: u32,
    #[serde(rename = ".group_segment_fixed_size")]
    pub(crate) lds: u32,
    #[serde(rename = ".private_segment_fixed_size")]
    pub(crate) scratch: u32,
    #[serde(rename = ".wavefront_size")]
    pub(crate) lanes: u32,
    #[serde(rename = ".max_flat_workgroup_size")]
    pub(crate) block_at_most: u32,
    #[serde(rename = ".sgpr_count", default)]
    pub(crate) sgprs: u32,
    #[serde(rename = ".vgpr_count", default)]
    pub(crate) vgprs: u32,
    #[serde(rename = ".agpr_count", default)]
    pub(crate) agprs: u32,
    #[serde(rename = ".uses_dynamic_stack", default)]
    pub(crate) dynamic_stack: bool,
}

#[derive(Deserialize)]
pub(crate) struct ArgumentNote {
    #[serde(rename = ".name", default)]
    pub(crate) name: String,
    #[serde(rename = ".offset")]
    pub(crate) offset: u32,
    #[serde(rename = ".size")]
    pub(crate) size: u32,
    #[serde(rename = ".value_kind")]
    pub(crate) kind: String,
}

/// One argument of a kernel. Arguments are packed into one buffer, each at its offset, little-endian.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// As the source has it; empty where the compiler left it out.
    pub name: String,
    /// Byte offset in the buffer.
    pub offset: u32,
    /// Bytes.
    pub size: u32,
    /// `by_value`, `global_buffer`, …
    pub kind: String,
}

/// Values that the runtime appends to the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hidden {
    Groups(usize),
    GroupSize(usize),
    Remainder(usize),
    Dimensions,
    DynamicLds,
    PrivateBase,
    SharedBase,
    /// Null pointers and zeros: host calls, heaps, queues, offsets of the grid.
    Zero,
}

/// The meaning of a value kind, if the runtime is to supply it.
pub(crate) fn hidden(kind: &str) -> Option<Hidden> {
    let rest = kind.strip_prefix("hidden_")?;
    let axis = |prefix: &str| match rest.strip_prefix(prefix) {
        Some("x") => Some(0),
        Some("y") => Some(1),
        Some("z") => Some(2),
        _ => None,
    };
    let by_axis = (axis("block_count_").map(Hidden::Groups))
        .or(axis("group_size_").map(Hidden::GroupSize))
        .or(axis("remainder_").map(Hidden::Remainder));
    Some(by_axis.unwrap_or(match rest {
        "grid_dims" => Hidden::Dimensions,
        "dynamic_lds_size" => Hidden::DynamicLds,
        "private_base" => Hidden::PrivateBase,
        "shared_base" => Hidden::SharedBase,
        _ => Hidden::Zero,
    }))
}

/// The note's bytes as a value.
pub(crate) fn parse(bytes: &[u8]) -> Result<Note, LoadError> {
    let note: Note =
        rmp_serde::from_slice(bytes).map_err(|error| LoadError::Metadata(error.to_string()))?;
    if note.version.0 != 1 {
        let (major, minor) = note.version;
        return Err(LoadError::Metadata(format!("version {major}.{minor}, expected 1")));
    }
    Ok(note)
}
