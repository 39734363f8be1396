//! Memory that a dispatch reads and writes.

use crate::{EpConfig, EpError, Layout, Ways};
use warpverbs_gpu::{Buffer, Element, Gpu, KernelPtr, Place};

/// The tokens of this rank. All buffers begin at a multiple of 16.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Tokens<'a> {
    /// How many; with `counted`, at most.
    pub count: u32,
    /// bf16, or e4m3 with [`Payload::Fp8`](crate::Payload::Fp8): `count` × `hidden`.
    pub rows: &'a Buffer,
    /// i32, `count` × `top_k`: numbers of experts, -1 for none, none twice in a token.
    pub experts: &'a Buffer,
    /// f32, `count` × `top_k`.
    pub weights: &'a Buffer,
    /// With e4m3: u32, `count` × [`EpConfig::scale_words`].
    pub scales: Option<&'a Buffer>,
    /// u32: how many there are, read by the kernel, so that the same launch can be made again for another
    /// number.
    pub counted: Option<&'a Buffer>,
}

impl<'a> Tokens<'a> {
    /// `count` tokens.
    pub fn new(count: u32, rows: &'a Buffer, experts: &'a Buffer, weights: &'a Buffer) -> Self {
        Self { count, rows, experts, weights, scales: None, counted: None }
    }

    /// With the scales of e4m3 rows.
    pub fn scales(self, scales: &'a Buffer) -> Self {
        Self { scales: Some(scales), ..self }
    }

    /// The kernel reads how many there are.
    pub fn counted(self, counted: &'a Buffer) -> Self {
        Self { counted: Some(counted), ..self }
    }
}

/// Where a dispatch puts rows by expert, and what says where each lies. Of no use in rank-major layout.
#[derive(Clone, Debug)]
pub struct Packed {
    /// [`EpConfig::packed_rows`] × `hidden`, bf16 or e4m3.
    pub rows: Buffer,
    /// u32, [`EpConfig::packed_scales`]: the scales of those rows.
    pub scales: Buffer,
    /// u32 for each row: the number of its token at its rank.
    pub tokens: Buffer,
    /// u32 for each local expert: its rows.
    pub counts: Buffer,
    /// u32 for each local expert: the number of its first row.
    pub bases: Buffer,
    /// u64 for each local expert and rank: of that rank's rows the first, counted from the base, in the
    /// upper 32 bits, and how many in the lower.
    pub ranges: Buffer,
}

impl Packed {
    /// Room for whatever a dispatch may bring; next to none in rank-major layout.
    ///
    /// # Errors
    /// The device refuses.
    pub fn new(gpu: &dyn Gpu, config: &EpConfig, ways: Ways, rank: u32) -> Result<Self, EpError> {
        let packed = config.layout != Layout::RankMajor;
        let rows = if packed { config.packed_rows(ways, rank) } else { 0 };
        let local = config.experts_of(ways.ranks, rank).len() as u64;
        let buffer = |bytes: u64| gpu.alloc(bytes.max(16) as usize, Place::Device);
        Ok(Self {
            rows: buffer(rows * config.payload_bytes())?,
            scales: buffer(4 * config.packed_scales(ways, rank))?,
            tokens: buffer(4 * rows)?,
            counts: buffer(4 * local)?,
            bases: buffer(4 * local)?,
            ranges: buffer(8 * local * u64::from(ways.ranks))?,
        })
    }
}

/// All of a buffer that is large enough.
pub(crate) fn pointer<T: Element>(
    what: &'static str,
    buffer: &Buffer,
    elements: u64,
) -> Result<KernelPtr<T>, EpError> {
    let (expected, found) = (elements * size_of::<T>() as u64, buffer.len() as u64);
    match buffer.kernel_addr().is_multiple_of(16) && found >= expected {
        true => Ok(KernelPtr::new(buffer)),
        false => Err(EpError::Small { what, expected, found }),
    }
}
