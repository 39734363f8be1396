//! The NICs of this process, one for each device, made when a device is first opened.

use crate::bells;
use crate::events::Router;
use crate::faults;
use crate::inside::NIC;
use crate::process::Own;
use crate::say::say;
use crate::settings::{Settings, device_name};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use warpverbs_nic::link::LinkError;
use warpverbs_nic::{Config, EngineThread, Idle, LinkConfig, Mtu, NicError, SoftNic, UdpConfig};
use warpverbs_uverbs::{Driver, Errno, Gid, Port, Profile, Refusal};

const MAX_QPS: u32 = 8192;
/// Addresses that a device tries until one is free: more than there are namespaces on a host.
const ADDRESSES: usize = 4096;
/// Between two of these, odd, so that all are reached: the golden section of 2^22.
const STRIDE: u32 = 0x27_8dde | 1;
/// A number of NVIDIA's for ConnectX-7, whose formats the queues have.
const CONNECTX7: u32 = 4129;
/// A number of Broadcom's for Thor, likewise.
const THOR: u32 = 0x1750;
/// A number of AMD's for Pollara, likewise.
const POLLARA: u32 = 0x1002;
/// GUID of the first node: locally administered, with the letters "WV".
const GUID: u64 = 0x0257_56ff_fe00_0001;

/// A NIC with its thread and what it says about itself.
pub(crate) struct SharedNic {
    pub(crate) nic: SoftNic,
    pub(crate) profile: Profile,
    pub(crate) address: IpAddr,
    pub(crate) events: Arc<Router>,
    index: u32,
    /// The last line that was printed of the link.
    said: Mutex<String>,
    _engine: EngineThread,
}

/// The interval at which broken rules of WQEs are printed.
const SAY_EVERY: Duration = Duration::from_millis(200);

impl SharedNic {
    /// Prints the rules that WQEs broke since the last time, if that was asked for.
    pub(crate) fn say_violations(&self) {
        if Settings::get().verbose {
            for violation in self.nic.take_violations() {
                say!("{}: {violation}", device_name(self.index));
            }
            bells::take_unheard().for_each(|line| say!("{line}"));
        }
    }

    /// Prints what leads to other processes, if that was asked for and has changed: which link is
    /// taken is known once there is a peer.
    pub(crate) fn say_link(&self) {
        if !Settings::get().verbose {
            return;
        }
        let link = self.nic.describe_link().unwrap_or_default();
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if *said != link {
            say!("{}: {link}", device_name(self.index));
            *said = link;
        }
    }
}

/// All NICs of this process.
#[derive(Default)]
struct Nics {
    by_device: Vec<(u32, Arc<SharedNic>)>,
    /// Whether they only consume; `None`: as `warpverbs run` asks for.
    consume: Option<bool>,
}

static NICS: Own<Mutex<Nics>> = Own::new();

/// The NIC of device `index`. It stays until the process ends.
pub(crate) fn shared(index: u32) -> Result<Arc<SharedNic>, Refusal> {
    let mut nics = NICS.get().lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, nic)) = nics.by_device.iter().find(|(number, _)| *number == index) {
        return Ok(nic.clone());
    }
    let nic = Arc::new(start(index).map_err(refuse_nic)?);
    let consume = nics.consume.unwrap_or(Settings::get().consume);
    nic.nic.consume_only(consume).map_err(refuse_nic)?;
    nics.by_device.push((index, nic.clone()));
    if Settings::get().verbose {
        let (nic, name) = (nic.clone(), format!("nic-{NIC}{}", device_name(index)));
        let say = move || loop {
            std::thread::sleep(SAY_EVERY);
            nic.say_violations();
        };
        // Without it they are printed when a QP is destroyed.
        drop(std::thread::Builder::new().name(name).spawn(say));
    }
    Ok(nic)
}

/// Switches consuming on or off for the NICs of this process, present and future. Returns how many there
/// are now.
pub(crate) fn consume_only(on: bool) -> Result<usize, NicError> {
    let mut nics = NICS.get().lock().unwrap_or_else(PoisonError::into_inner);
    nics.consume = Some(on);
    nics.by_device.iter().try_for_each(|(_, nic)| nic.nic.consume_only(on))?;
    Ok(nics.by_device.len())
}

fn start(index: u32) -> Result<SharedNic, NicError> {
    let (nic, address) = open(index)?;
    let mtu = nic.max_mtu().unwrap_or(Mtu::B1024);
    faults::install();
    let engine = nic.spawn()?;
    let profile = profile(Settings::get().driver, index, (address, mtu));
    let events = Arc::new(Router::default());
    let router = events.clone();
    nic.on_event(move |event| {
        router.deliver(event);
    });
    let said = Mutex::default();
    let shared = SharedNic { nic, profile, address, events, index, said, _engine: engine };
    shared.say_link();
    Ok(shared)
}

/// A NIC and its address.
fn open(index: u32) -> Result<(SoftNic, IpAddr), NicError> {
    let settings = Settings::get();
    let at = |address, shared| {
        let udp = UdpConfig { max_mtu: settings.mtu, shared, ..UdpConfig::new(address) };
        let config = Config {
            name: format!("{NIC}{}", device_name(index)),
            max_qps: MAX_QPS,
            link: LinkConfig::Auto(udp),
            idle: idle(),
            ..Config::default()
        };
        let mut config = config.with_env()?;
        config.capture = config.capture.map(|path| own_file(&path, index));
        Ok((SoftNic::new(config)?, address))
    };
    // Every process of the host has a NIC at an address that was given.
    if let Some(address) = settings.address.filter(|_| index == 0) {
        return at(address, true);
    }
    let mut addresses = loopback_addresses(std::process::id(), index).take(ADDRESSES);
    let mut address = addresses.next().unwrap_or(Ipv4Addr::LOCALHOST);
    loop {
        match (at(address.into(), false), addresses.next()) {
            (
                Err(NicError::Link(LinkError::Open { kind: ErrorKind::AddrInUse, .. })),
                Some(next),
            ) => address = next,
            (opened, _) => return opened,
        }
    }
}

/// Programs poll their CQs without end. Where two of them and their NICs do not have a core each, a
/// NIC that sleeps between its polls is run sooner than one that competes with what it waits for.
fn idle() -> Idle {
    let sleeping = |us| Idle { spin: 0, yields: 0, sleep: Duration::from_micros(us) };
    match std::thread::available_parallelism().map_or(1, NonZero::get) {
        // Each wake-up takes the only core from the program that it waits for.
        1 => sleeping(100),
        2 | 3 => sleeping(20),
        _ => Idle::default(),
    }
}

/// Addresses of the loopback network for a process' device. The first is unique to a process and device
/// where process numbers, below 2^22, are unique; but processes of several PID namespaces may share a
/// network, and then the same numbers are common: those that follow lie apart.
fn loopback_addresses(process: u32, index: u32) -> impl Iterator<Item = Ipv4Addr> {
    (0u32..).map(move |attempt| {
        let own = process.wrapping_add(attempt.wrapping_mul(STRIDE)) & 0x3f_ffff;
        let [_, b, c, d] = ((index + 1) << 22 | own).to_be_bytes();
        Ipv4Addr::new(127, b, c, d)
    })
}

/// A capture of this process and device: `wire.pcap` is `wire.4711.0.pcap`.
fn own_file(path: &Path, index: u32) -> PathBuf {
    let process = std::process::id();
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    path.with_extension(format!("{process}.{index}.{extension}"))
}

fn profile(driver: Driver, index: u32, (address, mtu): (IpAddr, Mtu)) -> Profile {
    let gid = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    let mlx5 = Profile {
        driver,
        fw_ver: 1 << 16,
        node_guid: GUID + u64::from(index),
        vendor_part_id: CONNECTX7,
        max_qp: MAX_QPS,
        max_qp_wr: 1 << 15,
        max_sge: 30,
        max_cq: 1 << 20,
        max_cqe: 1 << 22,
        max_mr: 1 << 20,
        max_pd: 1 << 20,
        max_qp_rd_atom: 16,
        max_srq: 1 << 20,
        max_srq_wr: 1 << 15,
        comp_vectors: 1,
        cqe_version: 1,
        port: Port { max_mtu: mtu, active_mtu: mtu, max_msg_sz: 1 << 30 },
        gids: vec![Gid { gid, ifindex: interface_of(address) }],
    };
    match driver {
        Driver::Mlx5 => mlx5,
        // Its library leaves 129 of a send queue free, and reads the version from the lowest byte on.
        Driver::Bnxt { .. } => Profile {
            fw_ver: 1 << 8,
            vendor_part_id: THOR,
            max_qp_wr: (1 << 15) - 129,
            max_sge: 6,
            max_cq: bells::PLACES,
            max_srq: bells::PLACES,
            cqe_version: 0,
            ..mlx5
        },
        // Its library adds 100 to the CQEs that a program asks for, of which there are 2^16 at most.
        Driver::Ionic { .. } => Profile {
            vendor_part_id: POLLARA,
            max_qp_wr: (1 << 15) - 1,
            max_cq: bells::PLACES,
            max_cqe: 1 << 15,
            max_srq: 0,
            max_srq_wr: 0,
            cqe_version: 0,
            ..mlx5
        },
    }
}

/// Number of the interface that has `address`, or of the loopback interface.
fn interface_of(address: IpAddr) -> u32 {
    let has = |interface: &nix::ifaddrs::InterfaceAddress| {
        let found = interface.address.as_ref();
        let v4 = found.and_then(|a| a.as_sockaddr_in()).map(|a| IpAddr::V4(a.ip()));
        let v6 = found.and_then(|a| a.as_sockaddr_in6()).map(|a| IpAddr::V6(a.ip()));
        v4.or(v6) == Some(address)
    };
    let name = nix::ifaddrs::getifaddrs().ok().and_then(|mut all| all.find(has));
    let name = name.map_or_else(|| "lo".to_owned(), |interface| interface.interface_name);
    nix::net::if_::if_nametoindex(name.as_str()).unwrap_or(1)
}

/// The refusal for an error of the NIC, as the interface says it.
pub(crate) fn refuse_nic(error: NicError) -> Refusal {
    let errno = match error {
        NicError::Stopped { .. } => Errno::EIO,
        NicError::Exhausted { .. } => Errno::ENOMEM,
        NicError::Link(LinkError::Descriptors { name: "ENFILE", .. }) => Errno::ENFILE,
        NicError::Link(LinkError::Descriptors { .. }) => Errno::EMFILE,
        _ => Errno::EINVAL,
    };
    Refusal::new(errno, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn processes_and_devices_have_addresses_of_their_own() {
        let first = |process, index| loopback_addresses(process, index).next().unwrap();
        assert_eq!(first(0x2a_1234, 0).to_string(), "127.106.18.52");
        assert_eq!(first(0x2a_1234, 1).to_string(), "127.170.18.52");
        assert_ne!(first(1, 0), first(2, 0));
        let all = |index| loopback_addresses(1, index).take(ADDRESSES).collect::<BTreeSet<_>>();
        assert_eq!((all(0).len(), all(0).intersection(&all(1)).count()), (ADDRESSES, 0));
    }

    #[test]
    fn firmware_claims_what_verbs_claim() {
        use warpverbs_mlx5::prm::GENERAL;
        let profile = profile(Driver::Mlx5, 0, (Ipv4Addr::LOCALHOST.into(), Mtu::B4096));
        for (name, log, limit) in [
            ("QPs", GENERAL.log_max_qp, profile.max_qp),
            ("WQEs of a QP", GENERAL.log_max_qp_sz, profile.max_qp_wr),
            ("CQs", GENERAL.log_max_cq, profile.max_cq),
            ("CQEs of a CQ", GENERAL.log_max_cq_sz, profile.max_cqe),
            ("WQEs of an SRQ", GENERAL.log_max_srq_sz, profile.max_srq_wr),
            ("keys", GENERAL.log_max_mkey, profile.max_mr),
            ("bytes of a message", GENERAL.log_max_msg, profile.port.max_msg_sz),
        ] {
            assert_eq!(1 << log, limit, "{name}");
        }
        assert!(1 << GENERAL.log_max_rmp <= profile.max_srq);
        assert_eq!(GENERAL.cqe_version, u32::from(profile.cqe_version));
    }

    #[test]
    fn captures_have_files_of_their_own() {
        let file = own_file(Path::new("/tmp/wire.pcap"), 1);
        let expected = format!("/tmp/wire.{}.1.pcap", std::process::id());
        assert_eq!(file, Path::new(&expected));
    }
}
