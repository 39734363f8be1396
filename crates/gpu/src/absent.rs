//! Substitutes for vendors that were not built.

macro_rules! absent {
    ($name:ident, $kind:ident, $what:literal) => {
        #[cfg(not(feature = $what))]
        pub(crate) mod $name {
            use crate::{Found, Gpu, GpuChoice, GpuError, GpuKind};
            use std::sync::Arc;

            fn not_built<T>(ordinal: u32) -> Result<T, GpuError> {
                let device = GpuChoice::$kind(ordinal).to_string();
                let what = concat!("running kernels: built without the feature `", $what, "`");
                Err(GpuError::Unsupported { device, what })
            }

            pub(crate) fn usable() -> Result<u32, GpuError> {
                not_built(0)
            }

            pub(crate) fn open(ordinal: u32) -> Result<Arc<dyn Gpu>, GpuError> {
                not_built(ordinal)
            }

            pub(crate) fn find() -> Vec<Found> {
                vec![Found {
                    name: $what.to_owned(),
                    kind: GpuKind::$kind,
                    info: None,
                    unusable: usable().err().map(|error| error.to_string()),
                    software: Vec::new(),
                }]
            }

            #[cfg(feature = "driver")]
            pub(crate) fn open_with(
                ordinal: u32,
                _: crate::driver::OpenOptions,
            ) -> Result<crate::driver::DriverGpu, GpuError> {
                not_built(ordinal)
            }

            #[cfg(feature = "driver")]
            pub(crate) fn owner(_: u64) -> Result<Option<u32>, GpuError> {
                not_built(0)
            }
        }
    };
}

absent!(cuda, Cuda, "cuda");
absent!(hip, Hip, "hip");
