//! Bounds of what a launch touches, checked before it starts.

use crate::args::KernelArg;
use crate::{Dim, GpuError, KernelPtr};

/// How many elements a kernel touches: computed without overflow, in the shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Count(u128);

impl<T: Into<u128>> From<T> for Count {
    fn from(value: T) -> Self {
        Self(value.into())
    }
}

impl std::ops::Add for Count {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl std::ops::Mul for Count {
    type Output = Self;

    fn mul(self, other: Self) -> Self {
        Self(self.0.saturating_mul(other.0))
    }
}

/// The checks of one launch of a [`SafeKernel`](crate::SafeKernel), called by generated code.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    kernel: &'static str,
    dim: Dim,
}

impl Bounds {
    /// For a launch of `kernel` in this shape.
    pub fn new(kernel: &'static str, dim: Dim) -> Self {
        Self { kernel, dim }
    }

    /// Blocks of the launch.
    pub fn grid_blocks(&self) -> Count {
        self.dim.blocks().into()
    }

    /// Threads of a block.
    pub fn block_threads(&self) -> Count {
        self.dim.threads().into()
    }

    /// Threads of the launch.
    pub fn grid_threads(&self) -> Count {
        self.grid_blocks() * self.block_threads()
    }

    /// Whether `count` elements lie behind `pointer`, properly aligned.
    pub fn pointer<T>(
        &self,
        parameter: &'static str,
        pointer: &KernelPtr<T>,
        count: Count,
    ) -> Result<(), GpuError> {
        let kernel = self.kernel;
        if Count::from(pointer.len()) < count {
            let (len, touched) = (pointer.len(), u64::try_from(count.0).unwrap_or(u64::MAX));
            return Err(GpuError::TooShort { kernel, parameter, len, touched });
        }
        if pointer.is_aligned() {
            return Ok(());
        }
        let expected = "an aligned pointer";
        Err(GpuError::BadArgument { kernel, parameter, expected })
    }

    /// Whether the pointers inside a structure are good for one element each.
    pub fn value(&self, parameter: &'static str, value: &impl KernelArg) -> Result<(), GpuError> {
        let kernel = self.kernel;
        value.check().map_err(|expected| GpuError::BadArgument { kernel, parameter, expected })
    }
}
