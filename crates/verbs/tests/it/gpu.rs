//! Memory of a GPU, which here is host memory that says it is one's.

use crate::pair::ALL;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use warpverbs_mem::testing::{LazyCopier, LazyMemory};
use warpverbs_mem::{Access, HostBuf, Kind, Region};
use warpverbs_verbs::testing::{Fake, fake};
use warpverbs_verbs::{
    GpuWays, Pd, Registered, Registration, RegistrationPath, VerbsError, peer_module,
};

/// Memory that a copy engine reaches, and that lies in a dmabuf if one is given.
fn of_gpu(dmabuf: Option<(OwnedFd, u64)>) -> Region {
    LazyMemory::exporting(8192, 0, &Arc::new(LazyCopier::default()), dmabuf).unwrap().0
}

/// The words of memory that is in no dmabuf.
const REFUSED: &str = "cuda:0 memory is not exported";

fn domain(fake: &Fake) -> Pd {
    Pd::new(&fake.verbs().device("fake0").unwrap().open().unwrap()).unwrap()
}

/// A file for a dmabuf; the library only looks at its length.
fn file() -> Option<(OwnedFd, u64)> {
    Some((std::fs::File::open("/proc/self/exe").unwrap().into(), 8192))
}

#[test]
fn a_dmabuf_comes_first() {
    let Some(fake) = fake() else { return };
    let ways = GpuWays { peer_module: Some("nvidia_peermem"), bounce: true };
    let (pd, region) = (domain(&fake), of_gpu(file()));
    let made = Registered::new(&pd, &region, Registration::new(ALL), &ways).unwrap();
    assert_eq!((made.how.route, made.how.explain().as_str()), (RegistrationPath::Dmabuf, "dmabuf"));
    assert_eq!(made.mr.region().addr(), region.addr());
    assert_eq!(fake.mr_place(made.mr.rkey()), Some((8192, region.addr(), 8192)));
    // A slice lies further on in the same dmabuf, under its own addresses.
    let part = region.slice(4096, 100).unwrap();
    let made = Registered::new(&pd, &part, Registration::new(ALL), &ways).unwrap();
    assert_eq!(made.how.route, RegistrationPath::Dmabuf);
    let place = (8192 + 4096, region.addr() + 4096, 100);
    assert_eq!(fake.mr_place(made.mr.rkey()), Some(place));
}

#[test]
fn a_peer_module_comes_second_and_the_reason_is_kept() {
    let Some(fake) = fake() else { return };
    let pd = domain(&fake);
    let ways = GpuWays { peer_module: Some("nvidia_peermem"), bounce: true };
    let made = Registered::new(&pd, &of_gpu(None), Registration::new(ALL), &ways).unwrap();
    assert_eq!(made.how.route, RegistrationPath::PeerMemory);
    assert_eq!(made.how.explain(), format!("peer memory module (dmabuf: {REFUSED})"));
    fake.fail_next("ibv_reg_dmabuf_mr", libc::EOPNOTSUPP);
    let made = Registered::new(&pd, &of_gpu(file()), Registration::new(ALL), &ways).unwrap();
    assert_eq!(made.how.route, RegistrationPath::PeerMemory);
    assert!(made.how.explain().contains("Linux 5.12"), "{}", made.how.explain());
}

#[test]
fn host_memory_in_its_place_is_used_only_when_asked_for() {
    let Some(fake) = fake() else { return };
    let (pd, region) = (domain(&fake), of_gpu(None));
    let mut ways = GpuWays::default();
    let error = Registered::new(&pd, &region, Registration::new(ALL), &ways).unwrap_err();
    let VerbsError::NotRegistered(error) = error else { panic!("{error}") };
    assert_eq!(error.tried.len(), 3);
    let text = error.to_string();
    for words in ["fake0", "cuda:0", REFUSED, "nvidia_peermem", "not asked for"] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
    ways.bounce = true;
    let own = Registration::new(Access::LOCAL_WRITE);
    let made = Registered::new(&pd, &region, own, &ways).unwrap();
    assert_eq!((made.how.route, made.how.not_better.len()), (RegistrationPath::Bounce, 2));
    let host = made.mr.region();
    assert_eq!((host.kind(), host.len()), (Kind::Host, region.len()));
    assert_ne!(host.addr(), region.addr());
}

#[test]
fn peers_are_kept_out_of_memory_that_is_copied() {
    let Some(fake) = fake() else { return };
    let (pd, region) = (domain(&fake), of_gpu(None));
    let ways = GpuWays { peer_module: None, bounce: true };
    for rights in [Access::REMOTE_READ, Access::REMOTE_WRITE, Access::REMOTE_ATOMIC] {
        let asked = Registration::new(rights | Access::LOCAL_WRITE);
        let error = Registered::new(&pd, &region, asked, &ways).unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, VerbsError::BouncedRights { rights: r, .. } if r == rights));
        for words in ["Place::Shared", REFUSED, "nvidia_peermem"] {
            assert!(text.contains(words), "{words:?} is not in {text}");
        }
    }
    assert_eq!(fake.live().mrs, 0);
}

#[test]
fn host_memory_needs_none_of_this() {
    let Some(fake) = fake() else { return };
    let ways = GpuWays::default();
    let region = HostBuf::region(4096).unwrap();
    let made = Registered::new(&domain(&fake), &region, Registration::new(ALL), &ways).unwrap();
    assert_eq!(
        (made.how.route, made.how.explain().as_str()),
        (RegistrationPath::Host, "host memory")
    );
}

#[test]
fn peer_modules_are_found_by_the_kind_of_memory() {
    let root = tempfile::tempdir().unwrap();
    let find = |kind| peer_module(root.path(), kind);
    assert_eq!(find(Kind::Cuda(0)), None);
    std::fs::create_dir_all(root.path().join("sys/module/nvidia_peermem")).unwrap();
    assert_eq!(find(Kind::Cuda(3)), Some("nvidia_peermem"));
    assert_eq!((find(Kind::Hip(0)), find(Kind::Host)), (None, None));
    assert_eq!(peer_module(Path::new("/nowhere"), Kind::Cuda(0)), None);
}
