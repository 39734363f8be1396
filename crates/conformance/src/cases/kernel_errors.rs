//! Work of kernels that must be refused, or is not answered.

use super::kernels::{Carried, DIM, ONE, THREADS, carry, code, status, went_well, write};
use crate::Setup;
use crate::outcome::{Stop, check};
use crate::peer::Shape;
use crate::rig::{End, Pair, bytes, pattern, same};
use warpverbs::transport::{Endpoint, MemoryRegion, Syndrome};

/// `wv::outcome::requester`.
const REQUESTER: u32 = 4;

/// The kernel's status is an error completion, and the endpoint's first error is `syndrome`. A
/// collapsed CQ may show the kernel only the flush that followed.
fn ended_with(a: &Endpoint, status: &MemoryRegion, syndrome: Syndrome) -> End {
    let code = code(status)?;
    let found = Syndrome::from_value((code >> 8) as u8);
    let right = [syndrome, Syndrome::WrFlush].contains(&found) && code & 0xff == REQUESTER;
    check!(right, "the kernel's status is {code:#x} ({found}), expected {syndrome}");
    let first = a.health()?.syndrome();
    check!(first == Some(syndrome), "the first error is {first:?}, expected {syndrome}");
    Ok(())
}

pub(super) fn kernel_bad_rkey(setup: &Setup) -> End {
    let (pair, status) = (setup.kernel_pair()?, status(setup)?);
    let mut kernel = write(&pair, 8, &status);
    kernel.to.rkey ^= 0x5a00_0055;
    setup.launch(&kernel, DIM)?;
    ended_with(&pair.a, &status, Syndrome::RemoteAccess)?;
    same(&bytes(&pair.dst, 0, 64)?, &[0; 64], "memory of the peer")
}

pub(super) fn kernel_bad_lkey(setup: &Setup) -> End {
    let (pair, status) = (setup.kernel_pair()?, status(setup)?);
    let mut kernel = write(&pair, 8, &status);
    kernel.from.lkey ^= 0x5a00_0055;
    setup.launch(&kernel, DIM)?;
    ended_with(&pair.a, &status, Syndrome::LocalProt)?;
    same(&bytes(&pair.dst, 0, 64)?, &[0; 64], "memory of the peer")
}

/// A pair whose retries, of packets or of a peer without a receive, end within half a second.
fn impatient(setup: &Setup) -> Result<Pair, Stop> {
    let at = |shape: Shape| shape.timers(14, 14).retries(5, 2);
    setup.unequal_pair(&at(Shape::kernels()), &at(Shape::host()))
}

pub(super) fn kernel_no_receive(setup: &Setup) -> End {
    let (pair, status) = (impatient(setup)?, status(setup)?);
    setup.launch(&carry(&pair, Carried::Message, (8, 1), &status), ONE)?;
    ended_with(&pair.a, &status, Syndrome::RnrRetryExc)
}

pub(super) fn kernel_peer_gone(setup: &Setup) -> End {
    let (pair, status) = (impatient(setup)?, status(setup)?);
    let kernel = write(&pair, 8, &status);
    drop(pair.b);
    setup.launch(&kernel, DIM)?;
    ended_with(&pair.a, &status, Syndrome::TransportRetryExc)
}

pub(super) fn kernel_reconnect(setup: &Setup) -> End {
    let mut pair = setup.kernel_pair()?;
    for _ in 0..3 {
        let broken = status(setup)?;
        let mut kernel = write(&pair, 8, &broken);
        kernel.to.rkey = 0x5a5a_5a00;
        setup.launch(&kernel, DIM)?;
        ended_with(&pair.a, &broken, Syndrome::RemoteAccess)?;
        drop(kernel);
        pair.a.reset()?;
        pair.b.reset()?;
        pair.connect()?;
        let (well, all) = (status(setup)?, THREADS * 8);
        setup.launch(&write(&pair, 8, &well), DIM)?;
        went_well(&pair, &well)?;
        same(&bytes(&pair.dst, 0, all)?, &pattern(all, 1), "WRITEs after a reset")?;
        pair.dst.write(0, &vec![0; all])?;
    }
    Ok(())
}
