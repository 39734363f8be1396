//! Two guests on one network.

use super::accel::Accel;
use super::guest::{Guest, Spec};
use super::image::{Image, find};
use super::kernel::Kernel;
use super::options::Options;
use crate::workspace;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use warpverbs_bench::folder::Folder;

/// The address of guest 1.
pub(crate) const FIRST: &str = "10.99.0.1";
/// The address of guest 2.
pub(crate) const SECOND: &str = "10.99.0.2";
/// The same of IPv6.
pub(crate) const FIRST_V6: &str = "fd99::1";
/// Room for the largest path MTU and its headers.
const LINK_MTU: u32 = 9000;

/// For a look at something in a guest, or a change of it.
const SHORT: Duration = Duration::from_secs(60);

/// The NIC of a guest: rxe takes the UDP port of RoCEv2 for itself, so it has one of
/// the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nic {
    /// Ours, in user space.
    Soft,
    /// Linux's `rdma_rxe`, through libibverbs.
    Rxe,
}

/// Two guests that have booted.
pub(crate) struct Bed {
    // Guests end before their sockets are removed.
    pub(crate) one: Guest,
    pub(crate) two: Guest,
    /// The counts of objects of each guest's `rxe0`, where there is one, when it was made.
    rxe: [Option<String>; 2],
    spoiled: bool,
    /// Pairs of guests so far, these included.
    boots: u32,
    options: Options,
    programs: Vec<PathBuf>,
    _site: Site,
}

/// Where the guests' files are.
struct Site {
    kernel: Kernel,
    /// Sockets and the archive; short, as names of sockets have to be.
    folder: Folder,
    initrd: PathBuf,
    /// Kept, or in `folder`.
    logs: PathBuf,
}

impl Bed {
    /// Boots two guests that have `programs`, as `/bin/NAME`.
    pub(crate) fn boot(options: &Options, programs: &[PathBuf]) -> Result<Self> {
        Self::boot_nth(1, options, programs)
    }

    fn boot_nth(boots: u32, options: &Options, programs: &[PathBuf]) -> Result<Self> {
        let began = Instant::now();
        let site = Site::prepare(boots, options, programs)?;
        let accel = site.accel(options);
        let pcap = options.pcap.as_deref().map(|file| numbered(file, boots));
        let pcap = pcap.as_deref();
        let mut one = Guest::start(&site.spec(1, accel, pcap))?;
        let mut two = Guest::start(&site.spec(2, accel, None))?;
        one.ready()?;
        two.ready()?;
        // Large, and not needed any more, also if this process is killed.
        fs::remove_file(&site.initrd)?;
        let took = began.elapsed().as_secs_f64();
        println!("two guests with {} ({accel:?}), {took:.1} s", site.kernel.name);
        let (options, programs) = (options.clone(), programs.to_vec());
        let rxe = [None, None];
        Ok(Self { one, two, rxe, spoiled: false, boots, options, programs, _site: site })
    }

    /// The state of both guests after a failure. They are not used again, see [`Self::renew`].
    pub(crate) fn spoil(&mut self) -> String {
        self.spoiled = true;
        [&mut self.one, &mut self.two].map(Guest::state).concat()
    }

    /// Boots two guests anew if something has failed in these: a process or a kernel that hangs, a port
    /// that is in use or a network that stands still would fail whatever comes next.
    pub(crate) fn renew(&mut self) -> Result<()> {
        if self.spoiled {
            self.one.end();
            self.two.end();
            *self = Self::boot_nth(self.boots + 1, &self.options, &self.programs)?;
        }
        Ok(())
    }

    /// Boots two guests; the console of the first is the terminal.
    pub(crate) fn shell(options: &Options, programs: &[PathBuf]) -> Result<()> {
        let site = Site::prepare(1, options, programs)?;
        let accel = site.accel(options);
        let two = Guest::start(&site.spec(2, accel, None))?;
        let pcap = options.pcap.as_deref();
        let mut one = Guest::start(&Spec { interactive: true, ..site.spec(1, accel, pcap) })?;
        one.wait()?;
        drop(two);
        Ok(())
    }

    /// Runs a server in guest 1 and its client in guest 2 until both end; returns their output. The client
    /// starts when something listens on TCP `port` of guest 1, or a second later.
    pub(crate) fn pair(
        &mut self,
        [server, client]: [&str; 2],
        port: Option<u16>,
        limit: Duration,
    ) -> Result<[String; 2]> {
        let serving = self.one.begin(server, limit)?;
        match port {
            Some(port) => {
                // Sockets that listen have state 0A.
                let listens =
                    format!("grep -q ':{port:04X} [0-9A-F:]* 0A' /proc/net/tcp /proc/net/tcp6");
                self.one.check(&format!("until {listens}; do sleep 0.05; done"), limit)?;
            }
            // It has to listen first, and does not say when it does.
            None => std::thread::sleep(Duration::from_secs(1)),
        }
        let text = self.two.check(client, limit);
        let served = self.one.finish_ok(serving);
        match (text, served) {
            (Ok(client), Ok(server)) => Ok([server, client]),
            (Ok(_), Err(error)) | (Err(error), Ok(_)) => Err(error),
            (Err(client), Err(server)) => Err(client.context(format!("{server:#}"))),
        }
    }

    /// Makes `rxe0` or takes it away, so that each guest has what is asked for.
    pub(crate) fn have(&mut self, nics: [Nic; 2]) -> Result<()> {
        for ((guest, now), nic) in
            [&mut self.one, &mut self.two].into_iter().zip(&mut self.rxe).zip(nics)
        {
            match (nic, &now) {
                (Nic::Rxe, None) => {
                    guest.check("rxe-up", SHORT)?;
                    *now = Some(objects(guest)?);
                }
                (Nic::Soft, Some(_)) => {
                    guest.check("rxe-down", SHORT)?;
                    *now = None;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Objects that programs which have ended have left in a kernel; none, if all is well.
    pub(crate) fn leftovers(&mut self) -> Result<String> {
        let mut all = String::new();
        for (guest, made) in [&mut self.one, &mut self.two].into_iter().zip(&self.rxe) {
            let Some(made) = made else { continue };
            let now = objects(guest)?;
            if now != *made {
                let kinds = "for kind in qp mr cq pd; do rdma resource show $kind; done";
                let found = guest.check(kinds, SHORT)?;
                all += &format!("{} has {now}, had {made}: {found}", guest.name);
            }
        }
        Ok(all)
    }
}

/// The kernel's counts for `rxe0`: protection domains, CQs, QPs and the like.
fn objects(guest: &mut Guest) -> Result<String> {
    let text = guest.check("rdma resource show", SHORT)?;
    let counts = text.lines().find_map(|line| line.split_once("rxe0"));
    let (_, counts) = counts.with_context(|| format!("no counts of rxe0: {text:?}"))?;
    Ok(counts.trim().into())
}

/// The name of what belongs to the `boots`th pair of guests.
fn numbered(path: &Path, boots: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    if boots > 1 {
        name.push(format!(".{boots}"));
    }
    name.into()
}

impl Site {
    fn prepare(boots: u32, options: &Options, programs: &[PathBuf]) -> Result<Self> {
        find("qemu-system-x86_64", "qemu-system-x86")?;
        find("setpriv", "util-linux")?;
        let cache = workspace::target()?.join("vm");
        let kernel = Kernel::fetch(&cache)?;
        let mut image = Image::base(&kernel)?;
        for program in programs {
            image.program(program)?;
        }
        let folder = Folder::new("wv-vm").context("a folder for the guests")?;
        let initrd = folder.path().join("initrd");
        image.write(&initrd)?;
        let mut logs = folder.path().to_path_buf();
        if options.keep_logs {
            logs = numbered(&cache.join("logs").join(std::process::id().to_string()), boots);
            fs::create_dir_all(&logs).with_context(|| logs.display().to_string())?;
            println!("logs: {}", logs.display());
        }
        Ok(Self { kernel, folder, initrd, logs })
    }

    fn accel(&self, options: &Options) -> Accel {
        let memory = self.kernel.memory();
        Accel::choose(options.accel, &memory, self.spec(1, Accel::Kvm, None))
    }

    fn spec<'a>(&'a self, number: u8, accel: Accel, pcap: Option<&'a Path>) -> Spec<'a> {
        Spec {
            number,
            kernel: &self.kernel.image,
            initrd: &self.initrd,
            accel,
            link_mtu: LINK_MTU,
            folder: self.folder.path(),
            logs: &self.logs,
            pcap,
            interactive: false,
        }
    }
}
