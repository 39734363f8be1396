//! One virtual machine.

use super::accel::Accel;
use super::channel::{Begun, Channel, Output};
use anyhow::{Result, anyhow, bail};
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use warpverbs_bench::child::{self, Running};
use warpverbs_meet::{Deadline, Timed};

/// Commands that may run in a guest at the same time.
const PORTS: usize = 3;
/// Emulation takes about 5 s to boot on an idle core, and more than 120 s beside thirty busy threads.
const BOOT: Duration = Duration::from_secs(300);
/// Lines of the console shown when something went wrong.
const TAIL: usize = 50;
/// For a guest to tell its state, or to panic.
const STATE: Duration = Duration::from_secs(60);

pub(crate) struct Spec<'a> {
    /// 1 or 2.
    pub(crate) number: u8,
    pub(crate) kernel: &'a Path,
    pub(crate) initrd: &'a Path,
    pub(crate) accel: Accel,
    /// MTU of the guest's interface, bytes.
    pub(crate) link_mtu: u32,
    /// Where sockets are made; the network's are `net1` and `net2`.
    pub(crate) folder: &'a Path,
    pub(crate) logs: &'a Path,
    /// Where everything on its network is captured.
    pub(crate) pcap: Option<&'a Path>,
    /// Its console is the user's terminal.
    pub(crate) interactive: bool,
}

/// A running guest. It ends when it is dropped, and with this process, however that ends.
pub(crate) struct Guest {
    pub(crate) name: String,
    machine: Running,
    console: PathBuf,
    monitor: PathBuf,
    ports: Vec<(Channel, bool)>,
}

/// A command that runs in a guest while others do.
pub(crate) struct Job {
    port: usize,
    running: Begun,
    command: String,
}

impl Guest {
    /// Starts a machine; [`Self::ready`] waits for it.
    pub(crate) fn start(spec: &Spec<'_>) -> Result<Self> {
        let console = spec.logs.join(format!("console{}.log", spec.number));
        let name = format!("guest {}", spec.number);
        let mut command = child::command("nice");
        command.args(["-n", "5"]).args(machine(spec, &console)?);
        if !spec.interactive {
            let errors = fs::File::create(spec.logs.join(format!("qemu{}.log", spec.number)))?;
            command.stdin(Stdio::null()).stdout(errors.try_clone()?).stderr(errors);
        }
        let machine = Running::start(name.clone(), &mut command)?;
        let monitor = monitor(spec);
        let mut guest = Self { name, machine, console, monitor, ports: Vec::new() };
        if spec.interactive {
            return Ok(guest);
        }
        let deadline = Deadline::after(Duration::from_secs(10));
        for port in 0..PORTS {
            let connected = Channel::connect(&socket(spec, port), deadline);
            let channel = connected.map_err(|error| guest.explain("does not start", &error))?;
            guest.ports.push((channel, false));
        }
        Ok(guest)
    }

    pub(crate) fn ready(&mut self) -> Result<()> {
        self.ready_within(BOOT)
    }

    /// As [`Self::ready`], with another deadline.
    pub(crate) fn ready_within(&mut self, limit: Duration) -> Result<()> {
        let deadline = Deadline::after(limit);
        let greeted = self.ports.iter_mut().try_for_each(|(port, _)| port.greet(deadline));
        greeted.map_err(|error| self.explain("does not boot", &error))
    }

    /// Runs a command to its end, whatever its exit status.
    pub(crate) fn run(&mut self, command: &str, limit: Duration) -> Result<Output> {
        let job = self.begin(command, limit)?;
        self.finish(job)
    }

    /// Runs a command that must succeed; its output.
    pub(crate) fn check(&mut self, command: &str, limit: Duration) -> Result<String> {
        let output = self.run(command, limit)?;
        self.succeeded(command, output)
    }

    pub(crate) fn begin(&mut self, command: &str, limit: Duration) -> Result<Job> {
        let Some(port) = self.ports.iter().position(|(_, busy)| !busy) else {
            bail!("{}: {PORTS} commands are running already", self.name);
        };
        let running = match self.ports[port].0.start(command, limit) {
            Ok(running) => running,
            Err(error) => return Err(self.explain(&format!("does not take '{command}'"), &error)),
        };
        self.ports[port].1 = true;
        Ok(Job { port, running, command: command.into() })
    }

    pub(crate) fn finish(&mut self, job: Job) -> Result<Output> {
        let (channel, busy) = &mut self.ports[job.port];
        match channel.finish(&job.running) {
            Ok(output) => {
                *busy = false;
                Ok(output)
            }
            Err(error) => {
                let what = format!("did not end '{}', wrote '{}'", job.command, channel.so_far());
                Err(self.explain(&what, &error))
            }
        }
    }

    /// As [`Self::finish`], for a command that must succeed; its output.
    pub(crate) fn finish_ok(&mut self, job: Job) -> Result<String> {
        let command = job.command.clone();
        let output = self.finish(job)?;
        self.succeeded(&command, output)
    }

    /// Its state now, for a report. It may end by this.
    pub(crate) fn state(&mut self) -> String {
        let told = match self.run("state", STATE) {
            Ok(output) => output.text,
            Err(error) => {
                let interrupted = self.interrupt();
                let became = match interrupted {
                    Ok(()) => tail(&self.console),
                    Err(error) => format!("a non-maskable interrupt: {error}"),
                };
                format!("{error:#}\n{became}")
            }
        };
        format!("state of {}:\n{}\n", self.name, told.trim_end())
    }

    /// Sends the machine a non-maskable interrupt, for a kernel that answers nothing else, and waits
    /// until it has panicked, which leaves its stack on the console.
    fn interrupt(&mut self) -> Result<()> {
        let stream = UnixStream::connect(&self.monitor)?;
        let deadline = Deadline::after(STATE);
        Timed { stream: &stream, deadline }.write_all(b"nmi\n")?;
        self.machine.wait(Instant::now() + STATE).map(drop)
    }

    pub(crate) fn end(&mut self) {
        self.machine.kill();
    }

    /// Waits until the machine has ended by itself.
    pub(crate) fn wait(&mut self) -> Result<()> {
        while self.machine.ended()?.is_none() {
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    fn succeeded(&self, command: &str, output: Output) -> Result<String> {
        let Output { status, text } = output;
        match status {
            0 => Ok(text),
            137 => bail!("{}: '{command}' ran past its limit:\n{text}", self.name),
            _ => bail!("{}: '{command}' ended with {status}:\n{text}", self.name),
        }
    }

    /// An error with the state of the guest and the end of its console.
    fn explain(&mut self, what: &str, error: &std::io::Error) -> anyhow::Error {
        // A machine that ends takes a moment.
        std::thread::sleep(Duration::from_millis(100));
        let became = match self.machine.ended() {
            Ok(Some(status)) => format!("the machine has ended ({status})"),
            _ if error.kind() == ErrorKind::TimedOut => "its deadline is over".to_owned(),
            _ => error.to_string(),
        };
        let qemu = self.console.with_file_name(self.console.file_name().map_or_else(
            || "qemu.log".into(),
            |name| name.to_string_lossy().replace("console", "qemu"),
        ));
        let logs = [qemu, self.console.clone()].map(|log| tail(&log));
        anyhow!("{} {what}: {became}; its log ends with\n{}", self.name, logs.concat())
    }
}

fn socket(spec: &Spec<'_>, port: usize) -> PathBuf {
    spec.folder.join(format!("port{}{port}", spec.number))
}

fn monitor(spec: &Spec<'_>) -> PathBuf {
    spec.folder.join(format!("monitor{}", spec.number))
}

fn machine(spec: &Spec<'_>, console: &Path) -> Result<Vec<String>> {
    let (own, other) = (spec.number, 3 - spec.number);
    let folder = spec.folder.display();
    let mut args: Vec<String> = Vec::new();
    let mut add = |words: &[&str]| args.extend(words.iter().map(|&word| word.to_owned()));
    add(&[
        "qemu-system-x86_64",
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
    ]);
    add(spec.accel.args());
    add(&["-m", "1024", "-kernel", &path(spec.kernel)?, "-initrd", &path(spec.initrd)?]);
    let shell = if spec.interactive { " wv.shell" } else { "" };
    // On a busy machine the timer of an emulated one may seem not to work.
    let boot = "console=ttyS0 quiet panic=-1 unknown_nmi_panic mitigations=off no_timer_check";
    let mtu = spec.link_mtu;
    let addresses = format!("wv.addr=10.99.0.{own} wv.addr6=fd99::{own}");
    add(&["-append", &format!("{boot} {addresses} wv.mtu={mtu}{shell}")]);
    if spec.interactive {
        add(&["-chardev", "stdio,id=tty,signal=off", "-serial", "chardev:tty"]);
    } else {
        add(&["-serial", &format!("file:{}", path(console)?)]);
        let at = path(&monitor(spec))?;
        add(&["-chardev", &format!("socket,id=monitor,path={at},server=on,wait=off")]);
        add(&["-mon", "chardev=monitor,mode=readline"]);
        add(&["-device", "virtio-serial-pci"]);
        for port in 0..PORTS {
            let at = path(&socket(spec, port))?;
            add(&["-chardev", &format!("socket,id=p{port},path={at},server=on,wait=off")]);
            add(&["-device", &format!("virtserialport,chardev=p{port},name=wv.{port}")]);
        }
    }
    // Datagrams: the stream kind adds 40 ms to every round trip.
    let net = format!(
        "dgram,id=net,local.type=unix,local.path={folder}/net{own},\
         remote.type=unix,remote.path={folder}/net{other}"
    );
    add(&["-netdev", &net]);
    let mac = format!("virtio-net-pci,netdev=net,mac=52:54:00:00:00:0{own},romfile=");
    add(&["-device", &mac]);
    if let Some(pcap) = spec.pcap {
        add(&["-object", &format!("filter-dump,id=dump,netdev=net,file={}", path(pcap)?)]);
    }
    Ok(args)
}

/// A path as QEMU's options take it: a comma would begin another option.
fn path(path: &Path) -> Result<String> {
    match path.to_str() {
        Some(text) => Ok(text.replace(',', ",,")),
        None => bail!("{} is not UTF-8", path.display()),
    }
}

/// The last lines of a log, or those from a kernel's panic on, each indented.
fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    let panic = lines.iter().position(|line| line.contains("Kernel panic"));
    let from = panic.unwrap_or(lines.len().saturating_sub(TAIL));
    lines[from..].iter().take(TAIL).map(|line| format!("    {line}\n")).collect()
}
