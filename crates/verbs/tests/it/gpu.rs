//! Memory of a GPU, which here is host memory that says it is one's.

use crate::pair::ALL;
use std::os::fd::OwnedFd;
use std::path::Path;
use warpverbs_mem::{Backing, HostBuf, Kind, Region};
use warpverbs_verbs::testing::{Fake, fake};
use warpverbs_verbs::{
    GpuWays, HowRegistered, Pd, Registered, Registration, VerbsError, peer_module,
};

struct Pretended(HostBuf, Kind);

// SAFETY: the memory is the buffer's, which lives as long.
unsafe impl Backing for Pretended {
    fn addr(&self) -> u64 {
        self.0.addr()
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn kind(&self) -> Kind {
        self.1
    }
}

fn of_gpu() -> Region {
    Region::new(Pretended(HostBuf::new(8192).unwrap(), Kind::Cuda(0)))
}

fn domain(fake: &Fake) -> Pd {
    Pd::new(&fake.verbs().device("fake0").unwrap().open().unwrap()).unwrap()
}

fn exported() -> Result<(OwnedFd, u64), String> {
    Ok((std::fs::File::open("/proc/self/exe").unwrap().into(), 8192))
}

fn refused() -> Result<(OwnedFd, u64), String> {
    Err("this driver cannot".to_owned())
}

#[test]
fn a_dmabuf_comes_first() {
    let Some(fake) = fake() else { return };
    let ways = GpuWays { export: &exported, peer_module: Some("nvidia_peermem"), bounce: true };
    let (pd, region) = (domain(&fake), of_gpu());
    let made = Registered::new(&pd, &region, Registration::new(ALL), &ways).unwrap();
    assert_eq!((made.how, made.why().as_str()), (HowRegistered::Dmabuf, "dmabuf"));
    assert_eq!(made.mr.region().addr(), region.addr());
}

#[test]
fn a_peer_module_comes_second_and_the_reason_is_kept() {
    let Some(fake) = fake() else { return };
    let pd = domain(&fake);
    let mut ways = GpuWays { export: &refused, peer_module: Some("nvidia_peermem"), bounce: true };
    let made = Registered::new(&pd, &of_gpu(), Registration::new(ALL), &ways).unwrap();
    assert_eq!(made.how, HowRegistered::PeerMemory);
    assert_eq!(made.why(), "peer memory module (dmabuf: this driver cannot)");
    ways.export = &exported;
    fake.fail_next("ibv_reg_dmabuf_mr", libc::EOPNOTSUPP);
    let made = Registered::new(&pd, &of_gpu(), Registration::new(ALL), &ways).unwrap();
    assert_eq!(made.how, HowRegistered::PeerMemory);
    assert!(made.why().contains("Linux 5.12"), "{}", made.why());
}

#[test]
fn host_memory_in_its_place_is_used_only_when_asked_for() {
    let Some(fake) = fake() else { return };
    let (pd, region) = (domain(&fake), of_gpu());
    let mut ways = GpuWays { export: &refused, peer_module: None, bounce: false };
    let error = Registered::new(&pd, &region, Registration::new(ALL), &ways).unwrap_err();
    let VerbsError::NotRegistered(error) = error else { panic!("{error}") };
    assert_eq!(error.tried.len(), 3);
    let text = error.to_string();
    for words in ["fake0", "cuda:0", "this driver cannot", "nvidia_peermem", "not asked for"] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
    ways.bounce = true;
    let made = Registered::new(&pd, &region, Registration::new(ALL), &ways).unwrap();
    assert_eq!((made.how, made.not_taken.len()), (HowRegistered::Bounce, 2));
    let host = made.mr.region();
    assert_eq!((host.kind(), host.len()), (Kind::Host, region.len()));
    assert_ne!(host.addr(), region.addr());
}

#[test]
fn host_memory_needs_none_of_this() {
    let Some(fake) = fake() else { return };
    let ways = GpuWays { export: &refused, peer_module: None, bounce: false };
    let region = HostBuf::region(4096).unwrap();
    let made = Registered::new(&domain(&fake), &region, Registration::new(ALL), &ways).unwrap();
    assert_eq!((made.how, made.why().as_str()), (HowRegistered::Host, "host memory"));
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
