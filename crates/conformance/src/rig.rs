//! What cases are written with: connected endpoints with memory on either side, and what is
//! expected of them.

use crate::outcome::{Stop, check};
use crate::{Setup, Side};
use std::sync::Arc;
use std::time::Duration;
use warpverbs::gpu::{Dim, Gpu, Kernel, Place};
use warpverbs::transport::{
    Access, Device, Endpoint, EndpointConfig, Error, MemoryRegion, Posted, Poster, QueueKind,
    SendFlags, Syndrome, WorkError,
};

/// How a case ends.
pub(crate) type End = Result<(), Stop>;

pub(crate) const SIGNALED: SendFlags = SendFlags::SIGNALED;
pub(crate) const UNSIGNALED: SendFlags = SendFlags::UNSIGNALED;
/// Bytes of the memory on either side.
pub(crate) const ROOM: usize = (1 << 20) + 8192;
/// Bounds a kernel that goes wrong.
const KERNEL: Duration = Duration::from_secs(60);

/// Every right that peers can have, and the local one that these need.
pub(crate) fn all_access() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

/// Two connected endpoints, and a region for each.
pub(crate) struct Pair {
    pub(crate) a: Endpoint,
    pub(crate) b: Endpoint,
    /// At a, which posts.
    pub(crate) src: MemoryRegion,
    /// At b.
    pub(crate) dst: MemoryRegion,
}

impl Setup {
    /// A pair that the host posts to.
    pub(crate) fn host_pair(&self) -> Result<Pair, Stop> {
        self.pair(EndpointConfig::host(), EndpointConfig::host())
    }

    pub(crate) fn pair(&self, a: EndpointConfig, b: EndpointConfig) -> Result<Pair, Stop> {
        let (src, dst) = (self.memory(&self.a, ROOM)?, self.memory(&self.b, ROOM)?);
        let pair = Pair { a: self.endpoint(&self.a, a)?, b: self.endpoint(&self.b, b)?, src, dst };
        pair.connect()?;
        src_pattern(&pair.src)?;
        Ok(pair)
    }

    pub(crate) fn endpoint(&self, side: &Side, config: EndpointConfig) -> Result<Endpoint, Stop> {
        Ok(side.device.endpoint(&(self.configure)(config))?)
    }

    /// Zeroed memory with every right, which kernels reach if there are any.
    pub(crate) fn memory(&self, side: &Side, len: usize) -> Result<MemoryRegion, Stop> {
        self.region(&side.device, len, all_access())
    }

    pub(crate) fn region(
        &self,
        device: &Device,
        len: usize,
        access: Access,
    ) -> Result<MemoryRegion, Stop> {
        Ok(match &self.gpu {
            Some(gpu) => device.register(gpu.alloc(len, Place::Shared)?, access)?,
            None => device.alloc_host(len, access)?,
        })
    }

    /// The device whose kernels post.
    pub(crate) fn kernels(&self) -> Result<&Arc<dyn Gpu>, Stop> {
        self.gpu.as_ref().ok_or_else(|| Stop::NotSupported("no device that runs kernels".into()))
    }

    /// A pair that kernels post to.
    pub(crate) fn kernel_pair(&self) -> Result<Pair, Stop> {
        let config = || Ok::<_, Stop>(EndpointConfig::for_gpu(self.kernels()?).inline_bytes(220));
        self.pair(config()?, config()?)
    }

    /// Runs a kernel to its end.
    pub(crate) fn launch(&self, kernel: &dyn Kernel, dim: Dim) -> End {
        Ok(self.kernels()?.launch(kernel, dim, KERNEL)?.wait()?)
    }
}

impl Pair {
    pub(crate) fn connect(&self) -> End {
        self.a.connect(&self.b.handle())?;
        Ok(self.b.connect(&self.a.handle())?)
    }

    pub(crate) fn posters(&self) -> Result<(Poster<'_>, Poster<'_>), Stop> {
        Ok((self.a.host()?, self.b.host()?))
    }

    /// Path MTU in bytes.
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
        for endpoint in [&self.a, &self.b] {
            let health = endpoint.health()?;
            check!(health.is_ok(), "{}", one_line(&health.to_string()));
        }
        Ok(())
    }

    /// Data still goes both ways.
    pub(crate) fn works(&self) -> End {
        let (a, b) = self.posters()?;
        for (poster, to, value) in [(a, &self.dst, b"there"), (b, &self.src, b"again")] {
            poster.wait(poster.post_write_inline(value, to.remote(), SIGNALED)?)?;
            same(&bytes(to, 0, 5)?, value, "a WRITE that is to show that all is well")?;
        }
        Ok(())
    }
}

fn src_pattern(region: &MemoryRegion) -> End {
    Ok(region.write(0, &pattern(region.len(), 1))?)
}

/// Bytes no two aligned words of which are equal.
pub(crate) fn pattern(len: usize, salt: u64) -> Vec<u8> {
    let word = |i: u64| (i ^ salt << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    (0..len.div_ceil(8) as u64).flat_map(word).take(len).collect()
}

pub(crate) fn bytes(region: &MemoryRegion, at: usize, len: usize) -> Result<Vec<u8>, Stop> {
    let mut out = vec![0; len];
    region.read(at as u64, &mut out)?;
    Ok(out)
}

pub(crate) fn word(region: &MemoryRegion, at: usize) -> Result<u64, Stop> {
    let mut out = [0; 8];
    region.read(at as u64, &mut out)?;
    Ok(u64::from_le_bytes(out))
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
    result: Result<T, Error>,
    syndrome: Syndrome,
    what: &str,
) -> Result<WorkError, Stop> {
    match result {
        Err(Error::Work(work)) if work.syndrome == syndrome => Ok(work),
        Err(error) => Err(Stop::Failed(format!("{what}: {error}; expected {syndrome}"))),
        Ok(_) => Err(Stop::Failed(format!("{what}: succeeded; expected {syndrome}"))),
    }
}

/// The work at `poster` fails with `syndrome`, at the send queue.
pub(crate) fn fails(
    poster: Poster<'_>,
    posted: Result<Posted, Error>,
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
