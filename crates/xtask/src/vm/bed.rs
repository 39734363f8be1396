//! Two guests on one network.

use super::Options;
use super::accel::Accel;
use super::folder::Folder;
use super::guest::{Guest, Job, Spec};
use super::image::{Image, find};
use super::kernel::Kernel;
use crate::workspace;
use anyhow::{Context as _, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The address of guest 1.
pub(crate) const FIRST: &str = "10.99.0.1";
/// The address of guest 2.
pub(crate) const SECOND: &str = "10.99.0.2";
/// The same of IPv6.
pub(crate) const FIRST_V6: &str = "fd99::1";
/// The same of IPv6.
pub(crate) const SECOND_V6: &str = "fd99::2";
/// Room for the largest path MTU and its headers.
const LINK_MTU: u32 = 9000;

/// Two guests that have booted.
pub(crate) struct Bed {
    // Guests end before their sockets are removed.
    pub(crate) one: Guest,
    pub(crate) two: Guest,
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
        let began = Instant::now();
        let site = Site::prepare(options, programs)?;
        let accel = site.accel(options);
        let pcap = options.pcap.as_deref();
        let mut one = Guest::start(&site.spec(1, accel, pcap))?;
        let mut two = Guest::start(&site.spec(2, accel, None))?;
        one.ready()?;
        two.ready()?;
        // Large, and not needed any more, also if this process is killed.
        fs::remove_file(&site.initrd)?;
        let took = began.elapsed().as_secs_f64();
        println!("two guests with {} ({accel:?}), {took:.1} s", site.kernel.name);
        Ok(Self { one, two, _site: site })
    }

    /// Boots two guests; the console of the first is the terminal.
    pub(crate) fn shell(options: &Options, programs: &[PathBuf]) -> Result<()> {
        let site = Site::prepare(options, programs)?;
        let accel = site.accel(options);
        let two = Guest::start(&site.spec(2, accel, None))?;
        let pcap = options.pcap.as_deref();
        let mut one = Guest::start(&Spec { interactive: true, ..site.spec(1, accel, pcap) })?;
        one.wait()?;
        drop(two);
        Ok(())
    }

    /// Runs a server in guest 1 and its client in guest 2 until both end; returns their output.
    pub(crate) fn pair(
        &mut self,
        server: &str,
        client: &str,
        limit: Duration,
    ) -> Result<[String; 2]> {
        let serving = self.one.begin(server, limit)?;
        // The server has to listen first, and does not say when it does.
        std::thread::sleep(Duration::from_secs(1));
        self.client(serving, client, limit)
    }

    /// As [`Self::pair`]; the client starts when something listens on TCP `port` of guest 1.
    pub(crate) fn pair_on(
        &mut self,
        port: u16,
        server: &str,
        client: &str,
        limit: Duration,
    ) -> Result<[String; 2]> {
        let serving = self.one.begin(server, limit)?;
        // Sockets that listen have state 0A.
        let listens = format!("grep -q ':{port:04X} [0-9A-F:]* 0A' /proc/net/tcp /proc/net/tcp6");
        self.one.check(&format!("until {listens}; do sleep 0.05; done"), limit)?;
        self.client(serving, client, limit)
    }

    /// Runs the client of a server; the output of both.
    fn client(&mut self, serving: Job, client: &str, limit: Duration) -> Result<[String; 2]> {
        let text = self.two.check(client, limit);
        let served = self.one.finish_ok(serving);
        match (text, served) {
            (Ok(client), Ok(server)) => Ok([server, client]),
            (Ok(_), Err(error)) | (Err(error), Ok(_)) => Err(error),
            (Err(client), Err(server)) => Err(client.context(format!("{server:#}"))),
        }
    }

    /// Makes `rxe0` in a guest.
    pub(crate) fn rxe(guest: &mut Guest) -> Result<()> {
        guest.check("rxe-up", Duration::from_secs(60)).map(drop)
    }
}

impl Site {
    fn prepare(options: &Options, programs: &[PathBuf]) -> Result<Self> {
        find("qemu-system-x86_64", "qemu-system-x86")?;
        find("setpriv", "util-linux")?;
        let cache = workspace::target()?.join("vm");
        let kernel = Kernel::fetch(&cache)?;
        let mut image = Image::base(&kernel)?;
        for program in programs {
            image.program(program)?;
        }
        let folder = Folder::new()?;
        let initrd = folder.path().join("initrd");
        image.write(&initrd)?;
        let mut logs = folder.path().to_path_buf();
        if options.keep_logs {
            logs = cache.join("logs").join(std::process::id().to_string());
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
