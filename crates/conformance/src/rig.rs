//! The tools of cases: connected endpoints with memory on either side, and checks of them.

use crate::Setup;
use crate::outcome::{Stop, check};
use crate::peer::{PeerEndpoint, PeerRegion, Shape, Trouble};
use std::sync::Arc;
use std::time::Duration;
use warpverbs::gpu::{Dim, Gpu, GpuError, SafeKernel};
use warpverbs::kernels::loopback;
use warpverbs::transport::{
    Access, Endpoint, MemoryRegion, Posted, Poster, QueueKind, SendFlags, Syndrome, TransportError,
    WorkError,
};
use warpverbs_test_kernels::conform;

/// How a case ends.
pub(crate) type End = Result<(), Stop>;

pub(crate) const SIGNALED: SendFlags = SendFlags::SIGNALED;
pub(crate) const UNSIGNALED: SendFlags = SendFlags::UNSIGNALED;
/// Bytes of the memory on either side.
pub(crate) const ROOM: usize = (1 << 20) + 8192;
/// Bounds a kernel that goes wrong.
pub(crate) const KERNEL: Duration = Duration::from_secs(60);

/// Every right that peers can have, and the local one that these need.
pub(crate) fn all_access() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

/// Two connected endpoints, and a region for each.
pub(crate) struct Pair {
    pub(crate) a: Endpoint,
    pub(crate) b: PeerEndpoint,
    /// At a, which posts.
    pub(crate) src: MemoryRegion,
    /// At b.
    pub(crate) dst: PeerRegion,
}

/// Compiles and loads every kernel of the cases, so that none has to wait behind a running one.
pub(crate) fn load(gpu: &dyn Gpu) -> Result<(), GpuError> {
    gpu.load(&loopback::IMAGE)?;
    gpu.load(&conform::IMAGE)
}

impl Setup {
    pub(crate) fn host_pair(&self) -> Result<Pair, Stop> {
        self.pair(Shape::host())
    }

    /// A pair of two endpoints that are alike.
    pub(crate) fn pair(&self, both: Shape) -> Result<Pair, Stop> {
        self.unequal_pair(&both, &both)
    }

    pub(crate) fn unequal_pair(&self, a: &Shape, b: &Shape) -> Result<Pair, Stop> {
        let (src, dst) = (self.memory(ROOM, all_access())?, self.b.region(ROOM, all_access())?);
        let pair = Pair { a: self.endpoint(a)?, b: self.b.endpoint(b)?, src, dst };
        pair.connect()?;
        pair.src.write(0, &pattern(ROOM, 1))?;
        Ok(pair)
    }

    /// How often something is repeated that would be repeated `here` times in one process: each
    /// time costs round trips to another one.
    pub(crate) fn times(&self, here: u64) -> u64 {
        if self.b.is_far() { here.div_ceil(7) } else { here }
    }

    pub(crate) fn endpoint(&self, shape: &Shape) -> Result<Endpoint, Trouble> {
        let none = |_| Err(Trouble::Other("shared receive queues are the peer's".into()));
        self.a.endpoint(shape, none)
    }

    /// Zeroed memory of the side that posts.
    pub(crate) fn memory(&self, len: usize, access: Access) -> Result<MemoryRegion, Trouble> {
        self.a.region(&self.a.device, len, access)
    }

    pub(crate) fn kernels(&self) -> Result<&Arc<dyn Gpu>, Trouble> {
        let gpu = self.a.gpu.as_ref().ok_or_else(Trouble::no_kernels)?;
        load(&**gpu)?;
        Ok(gpu)
    }

    /// A pair that kernels post to at a, and the host at b.
    pub(crate) fn kernel_pair(&self) -> Result<Pair, Stop> {
        self.unequal_pair(&Shape::kernels().inline_bytes(220), &Shape::host())
    }

    /// A pair that kernels post to at both sides.
    pub(crate) fn kernel_pair_both(&self) -> Result<Pair, Stop> {
        self.pair(Shape::kernels())
    }

    pub(crate) fn launch(&self, kernel: &dyn SafeKernel, dim: Dim) -> End {
        Ok(self.kernels()?.launch(kernel, dim, KERNEL)?.wait()?)
    }
}

impl Pair {
    pub(crate) fn connect(&self) -> End {
        self.a.connect(&self.b.handle())?;
        Ok(self.b.connect(&self.a.handle())?)
    }

    pub(crate) fn posters(&self) -> Result<(Poster<'_>, &PeerEndpoint), Stop> {
        Ok((self.a.host()?, &self.b))
    }

    pub(crate) fn mtu(&self) -> usize {
        self.a.handle().mtu().min(self.b.handle().mtu()).bytes()
    }

    /// Lengths at which something may go wrong: about the path MTU, and some packets long.
    pub(crate) fn lengths(&self) -> [usize; 10] {
        let mtu = self.mtu();
        [1, 2, 7, 64, mtu - 1, mtu, mtu + 1, 2 * mtu, 5 * mtu + 3, 65_537]
    }

    /// Nothing went wrong on either side.
    pub(crate) fn is_well(&self) -> End {
        let health = self.a.health()?;
        check!(health.is_ok(), "{}", one_line(&health.to_string()));
        let wrong = self.b.health()?.unwrap_or_default();
        check!(wrong.is_empty(), "at the peer: {}", one_line(&wrong));
        Ok(())
    }

    /// Data still goes both ways.
    pub(crate) fn works(&self) -> End {
        let (a, b) = self.posters()?;
        a.wait(a.post_write_inline(b"there", self.dst.remote(), SIGNALED)?)?;
        same(&bytes(&self.dst, 0, 5)?, b"there", "a WRITE that is to show that all is well")?;
        b.post_write_inline(b"again", self.src.remote())?;
        b.quiet()?;
        same(&bytes(&self.src, 0, 5)?, b"again", "one the other way")
    }
}

/// Bytes no two aligned words of which are equal.
pub(crate) fn pattern(len: usize, salt: u64) -> Vec<u8> {
    let word = |i: u64| (i ^ salt << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..len.div_ceil(8) as u64).flat_map(word).take(len).collect()
}

/// Memory of either side, to be looked at.
pub(crate) trait Memory {
    fn contents(&self, at: usize, len: usize) -> Result<Vec<u8>, Stop>;
}

impl Memory for MemoryRegion {
    fn contents(&self, at: usize, len: usize) -> Result<Vec<u8>, Stop> {
        let mut out = vec![0; len];
        self.read(at as u64, &mut out)?;
        Ok(out)
    }
}

impl Memory for PeerRegion {
    fn contents(&self, at: usize, len: usize) -> Result<Vec<u8>, Stop> {
        let out = self.read(at as u64, len as u64)?;
        check!(out.len() == len, "the peer gave {} bytes for {len}", out.len());
        Ok(out)
    }
}

pub(crate) fn bytes(region: &impl Memory, at: usize, len: usize) -> Result<Vec<u8>, Stop> {
    region.contents(at, len)
}

pub(crate) fn word(region: &impl Memory, at: usize) -> Result<u64, Stop> {
    let bytes = region.contents(at, 8)?;
    Ok(bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)))
}

/// The bytes are equal; otherwise where the first difference is.
pub(crate) fn same(found: &[u8], expected: &[u8], what: &str) -> End {
    check!(
        found.len() == expected.len(),
        "{what}: {} bytes, expected {}",
        found.len(),
        expected.len()
    );
    let wrong = found.iter().zip(expected).position(|(found, expected)| found != expected);
    if let Some(at) = wrong {
        let (found, expected, len) = (found[at], expected[at], expected.len());
        check!(false, "{what}: byte {at} of {len} is {found:#04x}, expected {expected:#04x}");
    }
    Ok(())
}

/// It failed, with `syndrome`.
pub(crate) fn refused<T>(
    result: Result<T, impl Into<Trouble>>,
    syndrome: Syndrome,
    what: &str,
) -> Result<WorkError, Stop> {
    match result.map_err(Into::into) {
        Err(Trouble::Work(failure)) if WorkError::from(failure).syndrome == syndrome => {
            Ok(failure.into())
        }
        Err(error) => Err(Stop::Failed(format!("{what}: {error}; expected {syndrome}"))),
        Ok(_) => Err(Stop::Failed(format!("{what}: succeeded; expected {syndrome}"))),
    }
}

/// The work at `poster` fails with `syndrome`, at the send queue.
pub(crate) fn fails(
    poster: Poster<'_>,
    posted: Result<Posted, TransportError>,
    syndrome: Syndrome,
    what: &str,
) -> End {
    let work = refused(posted.and_then(|posted| poster.wait(posted)), syndrome, what)?;
    check!(work.queue == QueueKind::Send, "{what}: the {} queue has the error", work.queue);
    Ok(())
}

pub(crate) fn one_line(text: &str) -> String {
    text.lines().map(str::trim).collect::<Vec<_>>().join("; ")
}
