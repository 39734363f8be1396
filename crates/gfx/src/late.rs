//! Accesses of global memory complete some time after they were issued. Where launches are not lazy that is at once.
use crate::cache::Port;
use crate::error::Cause;
use crate::flat::Issued;
use crate::inst::{Caches, Inst, Memory};
use crate::wave::Wave;
use rand::RngExt;
use std::sync::atomic::{Ordering, fence};

/// What a wave has issued and `s_waitcnt vmcnt` counts.
pub(crate) enum Pending {
    Access(Box<Issued>),
    WriteBack,
}

/// An instruction that accesses memory.
pub(crate) fn access(
    wave: &mut Wave,
    inst: &Inst,
    memory: Memory,
    port: &mut Port<'_>,
    lds: &mut [u8],
) -> Result<(), Cause> {
    let access = Issued::of(wave, inst, memory);
    if !port.late() || access.is_local() {
        return access.complete(wave, port, lds);
    }
    wave.pending.push_back(Pending::Access(Box::new(access)));
    Ok(())
}

/// An instruction on caches. An invalidation is in order with the accesses that are issued after it, and a write-back
/// with those issued before; neither is without the scope that SC1 stands for.
pub(crate) fn caches(wave: &mut Wave, inst: &Inst, caches: Caches, port: &mut Port<'_>) {
    match caches {
        Caches::WriteBack if inst.sc1 && port.late() => wave.pending.push_back(Pending::WriteBack),
        Caches::Invalidate if inst.sc1 => port.invalidate(),
        Caches::InvalidateScalar => port.invalidate_scalar(),
        _ => {}
    }
    fence(Ordering::SeqCst);
}

/// Completes accesses, the oldest first, until `left` are under way.
pub(crate) fn wait(
    wave: &mut Wave,
    left: usize,
    port: &mut Port<'_>,
    lds: &mut [u8],
) -> Result<(), Cause> {
    while wave.pending.len() > left {
        complete(wave, 0, port, lds)?;
    }
    // All earlier stores are visible to everybody before any later access.
    if std::mem::take(&mut wave.unsettled) {
        fence(Ordering::SeqCst);
    }
    Ok(())
}

/// Now and then one access completes: any, if none before it is to the same lines; or a write-back, if it is the oldest.
pub(crate) fn some(wave: &mut Wave, port: &mut Port<'_>, lds: &mut [u8]) -> Result<(), Cause> {
    if wave.pending.is_empty() {
        return Ok(());
    }
    let Some(random) = port.chance() else { return Ok(()) };
    let at = random.random_range(0..wave.pending.len());
    let before = wave.pending.iter().take(at);
    let free = match &wave.pending[at] {
        Pending::WriteBack => at == 0,
        Pending::Access(access) => !before.into_iter().any(|earlier| match earlier {
            Pending::Access(earlier) => earlier.meets(access),
            Pending::WriteBack => false,
        }),
    };
    if free { complete(wave, at, port, lds) } else { Ok(()) }
}

fn complete(wave: &mut Wave, at: usize, port: &mut Port<'_>, lds: &mut [u8]) -> Result<(), Cause> {
    match wave.pending.remove(at) {
        Some(Pending::Access(access)) => access.complete(wave, port, lds)?,
        Some(Pending::WriteBack) => {
            port.write_back();
            fence(Ordering::SeqCst);
        }
        None => {}
    }
    Ok(())
}
