//! The parameters of a code object's kernels, as its metadata has them.

use crate::driver::check_parameters;
use crate::{GpuError, Image};

/// Refuses an image with a kernel that is not in the code, or has other parameters there.
pub(crate) fn check(image: &Image, code: &[u8]) -> Result<(), GpuError> {
    let kernels = warpverbs_code_object::kernels(code).map_err(|error| GpuError::Library {
        library: "code object",
        reason: format!("of {}: {error}", image.name),
    })?;
    image.entries.iter().try_for_each(|entry| {
        let kernel = kernels.iter().find(|kernel| kernel.name == entry.name);
        let kernel = kernel.ok_or(GpuError::BadEntry {
            kernel: entry.name,
            what: "kernels of this name",
            declared: 1,
            compiled: 0,
        })?;
        let sizes = kernel.explicit().map(|argument| argument.size as usize);
        check_parameters(entry, &sizes.collect::<Vec<_>>())
    })
}
