//! Choosing a device: by name, or the best that is there.

#[cfg(not(feature = "cuda"))]
use crate::absent::cuda;
#[cfg(not(feature = "hip"))]
use crate::absent::hip;
#[cfg(feature = "cuda")]
use crate::cuda::find as cuda;
#[cfg(feature = "driver")]
use crate::driver::{DriverGpu, OpenOptions};
#[cfg(feature = "hip")]
use crate::hip::find as hip;
use crate::simt::{SEED_VARIABLE, SimtConfig, SimtDevice};
use crate::{Found, Gpu, GpuChoice, GpuError, GpuKind};
use std::fmt;
use std::sync::Arc;

/// A device and the reason it was taken, in one line.
pub struct Opened {
    /// The device.
    pub gpu: Arc<dyn Gpu>,
    /// Why this one.
    pub why: String,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opened({})", self.why)
    }
}

/// Opens the chosen device.
pub fn open(choice: GpuChoice) -> Result<Arc<dyn Gpu>, GpuError> {
    open_explained(choice).map(|opened| opened.gpu)
}

/// As [`open`], and says why this device.
///
/// `auto` takes the first NVIDIA GPU if it opens and its kernels can be compiled, else the first AMD GPU of
/// which that is true and which is hardware, else the host SIMT device.
pub fn open_explained(choice: GpuChoice) -> Result<Opened, GpuError> {
    let asked = || format!("{choice}: asked for");
    // An emulator's results must not pass for a GPU's.
    let named =
        |gpu: Arc<dyn Gpu>| Opened { why: format!("{}, {}", asked(), gpu.info().name), gpu };
    match choice {
        GpuChoice::Simt => Ok(Opened { gpu: open_simt()?, why: asked() + &seeded() }),
        GpuChoice::Cuda(ordinal) => Ok(named(cuda::open(ordinal)?)),
        GpuChoice::Hip(ordinal) => Ok(named(hip::open(ordinal)?)),
        GpuChoice::Auto => open_best(0),
    }
}

/// Opens the chosen GPU behind its vendor's driver, with options.
#[cfg(feature = "driver")]
pub fn open_with(choice: GpuChoice, options: OpenOptions) -> Result<DriverGpu, GpuError> {
    match choice {
        GpuChoice::Cuda(ordinal) => cuda::open_with(ordinal, options),
        GpuChoice::Hip(ordinal) => hip::open_with(ordinal, options),
        GpuChoice::Simt | GpuChoice::Auto => {
            let what = "options of a GPU's driver: name one GPU, such as cuda:0";
            Err(GpuError::Unsupported { device: choice.to_string(), what })
        }
    }
}

/// The GPU that has the memory at `addr`, whichever program allocated it; `None` for memory of the host.
///
/// # Errors
/// There is no driver, or it does not know the address.
#[cfg(feature = "driver")]
pub fn owner(addr: u64) -> Result<Option<GpuChoice>, GpuError> {
    match cuda::owner(addr) {
        Ok(owner) => Ok(owner.map(GpuChoice::Cuda)),
        // If neither knows it, the first word counts.
        Err(error) => hip::owner(addr).map_err(|_| error).map(|owner| owner.map(GpuChoice::Hip)),
    }
}

/// As [`open_explained`], for one of several processes of this machine: `auto` takes the GPU of the
/// process's number among them, so that each has a GPU of its own while there are enough.
pub fn open_for_rank(choice: GpuChoice, local_rank: u32) -> Result<Opened, GpuError> {
    match choice {
        GpuChoice::Auto => open_best(local_rank),
        _ => open_explained(choice),
    }
}

/// Which of `count` GPUs is that of a local rank: they are dealt out in turn.
fn of_local_rank(count: u32, local_rank: u32) -> Option<u32> {
    local_rank.checked_rem(count)
}

fn open_best(local_rank: u32) -> Result<Opened, GpuError> {
    // A vendor is asked, and its libraries are loaded, only if there is no GPU of those before it.
    let vendors = [
        (GpuChoice::Cuda as fn(u32) -> GpuChoice, cuda::usable as Usable, cuda::open as Open),
        (GpuChoice::Hip, hip::usable, hip::open),
    ];
    let mut reasons = Vec::new();
    for (choice, usable, open) in vendors {
        let ordinal = |count| of_local_rank(count, local_rank).unwrap_or(0);
        match usable().and_then(|count| Ok((open(ordinal(count))?, count))) {
            Ok((gpu, count)) => {
                let info = gpu.info();
                let (choice, name, arch) = (choice(info.ordinal), &info.name, &info.arch);
                let turn = match count {
                    1 => String::new(),
                    _ => format!(", one of {count}, for local rank {local_rank}"),
                };
                let why = format!("{choice}: {name} ({arch}) is there and usable{turn}");
                return Ok(Opened { gpu, why });
            }
            Err(error) => reasons.push(error.to_string()),
        }
    }
    let why = format!("simt: no usable GPU: {}", reasons.join("; "));
    Ok(Opened { gpu: open_simt()?, why: why + &seeded() })
}

type Usable = fn() -> Result<u32, GpuError>;
type Open = fn(u32) -> Result<Arc<dyn Gpu>, GpuError>;

fn open_simt() -> Result<Arc<dyn Gpu>, GpuError> {
    Ok(Arc::new(SimtDevice::new(SimtConfig::from_env()?)?))
}

/// A seed makes the host SIMT device slower, so it is reported.
fn seeded() -> String {
    std::env::var(SEED_VARIABLE)
        .map_or_else(|_| String::new(), |seed| format!(", turns by {SEED_VARIABLE}={seed}"))
}

/// Every device, and every kind of which there is none with the reason. Makes no context on any.
pub fn list() -> Vec<Found> {
    let mut found = vec![find_simt()];
    found.extend(cuda::find());
    found.extend(hip::find());
    found
}

fn find_simt() -> Found {
    let simt = open_simt();
    Found {
        name: GpuChoice::Simt.to_string(),
        kind: GpuKind::Simt,
        info: simt.as_ref().ok().map(|gpu| gpu.info().clone()),
        unusable: simt.err().map(|error| error.to_string()),
        software: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_ranks_are_dealt_the_gpus_in_turn() {
        let of = |count| [0, 1, 2, 3, 8].map(|rank| of_local_rank(count, rank));
        assert_eq!(of(4), [0, 1, 2, 3, 0].map(Some));
        assert_eq!(of(1), [Some(0); 5]);
        assert_eq!(of(0), [None; 5]);
    }

    #[test]
    fn simt_opens_anywhere_and_says_it_was_asked_for() {
        let opened = open_explained(GpuChoice::Simt).unwrap();
        assert_eq!(opened.gpu.info().kind, GpuKind::Simt);
        assert!(opened.why.starts_with("simt: asked for"), "{}", opened.why);
    }

    #[test]
    fn auto_always_opens_and_names_its_reason() {
        let opened = open_explained(GpuChoice::Auto).unwrap();
        let prefix = match opened.gpu.info().kind {
            GpuKind::Cuda => "cuda:0: ",
            GpuKind::Simt => "simt: ",
            GpuKind::Hip => "hip:0: ",
        };
        let reason = opened.why.strip_prefix(prefix);
        assert!(reason.is_some_and(|reason| !reason.is_empty()), "{}", opened.why);
        assert!(!opened.why.contains('\n'), "{}", opened.why);
    }

    #[test]
    fn an_absent_device_is_a_typed_error() {
        for choice in [GpuChoice::Cuda(4096), GpuChoice::Hip(4096)] {
            let refused = open_explained(choice).unwrap_err();
            let typed = matches!(
                refused,
                GpuError::NotFound { .. }
                    | GpuError::Library { .. }
                    | GpuError::NoDevice { .. }
                    | GpuError::Driver { .. }
            );
            assert!(typed, "{refused}");
        }
    }

    #[test]
    fn the_list_has_every_kind_and_a_reason_for_each_that_is_missing() {
        let found = list();
        for kind in [GpuKind::Simt, GpuKind::Cuda, GpuKind::Hip] {
            assert!(found.iter().any(|f| f.kind == kind), "{kind:?}");
        }
        for f in &found {
            assert!(f.info.is_some() || f.unusable.is_some(), "{f:?}");
            assert!(f.name.parse::<GpuChoice>().is_ok(), "{f:?}");
        }
        let simt = found.iter().find(|f| f.kind == GpuKind::Simt).unwrap();
        assert!(simt.unusable.is_none(), "{simt:?}");
    }
}
