//! `warpverbs run`: an unmodified program of libibverbs on the software NIC.

mod sysfs;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::net::IpAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use warpverbs::raw::mlx5::prm::Status;
use warpverbs::raw::nic::LinkKind;
use warpverbs_bench::folder::Folder;

/// The library that is loaded into the program.
const LIBRARY: &str = "libwarpverbs_preload.so";
/// The variable that says what the library is to do.
const SETTINGS: &str = "WARPVERBS_RUN";
/// Whether UCX registers memory with relaxed ordering. On AMD it does unless configured otherwise, and then
/// adds an offset to addresses that only keys of pieces undo, which the device has none of.
const UCX_RELAXED: &str = "UCX_IB_PCI_RELAXED_ORDERING";
/// Where the loader looks for libraries first.
const LIBRARIES: &str = "LD_LIBRARY_PATH";
/// Devices at most: each has an address of its own in the loopback network.
const MAX_NICS: i64 = 3;

/// Kinds of devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    Mlx5,
    #[value(name = "bnxt_re")]
    Bnxt,
    Ionic,
}

impl Kind {
    /// Name of the kernel's driver, with which those of its devices begin.
    fn name(self) -> &'static str {
        match self {
            Self::Mlx5 => "mlx5",
            Self::Bnxt => "bnxt_re",
            Self::Ionic => "ionic",
        }
    }

    /// The library of its vendor whose functions for queues of kernels rdma-core's does not have.
    fn vendor_library(self) -> Option<&'static str> {
        match self {
            // Its functions are rdma-core's.
            Self::Mlx5 => None,
            Self::Bnxt => Some("libbnxt_re.so"),
            Self::Ionic => Some("libionic.so"),
        }
    }
}

/// The program to run, and its devices.
#[derive(Args)]
pub(crate) struct RunArgs {
    /// Kind of the devices: mlx5 (ConnectX-7), bnxt_re (Thor), or ionic (Pollara)
    #[arg(long, value_enum, default_value_t = Kind::Mlx5)]
    device: Kind,
    /// Devices that the program finds: mlx5_0, bnxt_re0 or ionic_0, and so on
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=MAX_NICS))]
    nics: u32,
    /// The largest path MTU: 256, 512, 1024, 2048 or 4096; that of the interface otherwise
    #[arg(long, value_parser = parse_mtu)]
    mtu: Option<usize>,
    /// Link to other processes: udp, shm (memory that processes share) or auto
    #[arg(long, env = "WARPVERBS_LINK", default_value_t = LinkKind::Auto)]
    link: LinkKind,
    /// Address of the first device: one of this host's; an own one of 127.0.0.0/8 otherwise
    #[arg(long)]
    address: Option<IpAddr>,
    /// Print each call that the device refuses, and why
    #[arg(long)]
    verbose: bool,
    /// Append every call that the program makes to this file
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Fail one call of each open device, the CALL-th that makes, changes or queries something, as
    /// firmware that answers STATUS (a number, such as 8 for "limit"): to see how a program cleans up
    #[arg(long, value_name = "CALL:STATUS", value_parser = parse_fault)]
    fail: Option<(u32, u8)>,
    /// Complete what doorbells announce without reading or moving it, to measure posters
    /// (`int warpverbs_consume(int on)` in the program, found by dlsym, switches at any time)
    #[arg(long)]
    consume: bool,
    /// Run although this machine has a device of that kind, which the program will not see
    #[arg(long)]
    hide_hardware: bool,
    /// The library to preload, if it is not beside this program
    #[arg(long, value_name = "FILE", env = "WARPVERBS_PRELOAD")]
    library: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    program: Vec<OsString>,
}

fn parse_mtu(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(bytes @ (256 | 512 | 1024 | 2048 | 4096)) => Ok(bytes),
        _ => Err("expected 256, 512, 1024, 2048 or 4096".into()),
    }
}

fn parse_fault(text: &str) -> Result<(u32, u8), String> {
    let fault = text.split_once(':').and_then(|(call, status)| {
        let status: u8 = status.parse().ok()?;
        let known = Status::parse(&[status, 0, 0, 0, 0, 0, 0, 0]).0;
        known.filter(|known| *known != Status::Ok)?;
        Some((call.parse().ok().filter(|call| *call > 0)?, status))
    });
    fault.ok_or_else(|| {
        "expected the number of a call from 1 on, a colon, and a status of firmware: 1 to 6, 8 to 10, \
         15, 16, 80 or 81"
            .into()
    })
}

/// Runs the program and ends as it did.
pub(crate) fn run(args: &RunArgs) -> Result<ExitCode> {
    if !args.hide_hardware {
        refuse_hardware(Path::new("/sys/class/infiniband"), args.device)?;
    }
    ensure!(
        !args.consume || args.device == Kind::Mlx5,
        "--consume: queues of {} are not consumed unread, only those of mlx5 are",
        args.device.name()
    );
    let library = library(args)?;
    let root = Folder::new("warpverbs-run-").context("a folder for the devices of the program")?;
    sysfs::write(root.path(), args.device, args.nics)
        .with_context(|| root.path().display().to_string())?;
    let [program, arguments @ ..] = args.program.as_slice() else { bail!("no program is given") };
    let mut preload = library.clone().into_os_string();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let relaxed = std::env::var_os(UCX_RELAXED).unwrap_or_else(|| "n".into());
    let mut command = Command::new(program);
    if let Some(name) = args.device.vendor_library() {
        command.env(LIBRARIES, vendor_library(root.path(), name, &library)?);
    }
    let status = command
        .args(arguments)
        .env(UCX_RELAXED, relaxed)
        .env("LD_PRELOAD", preload)
        .env("SYSFS_PATH", root.path())
        .env(SETTINGS, settings(args)?)
        .env("WARPVERBS_LINK", args.link.to_string())
        .status()
        .with_context(|| format!("{} cannot be started", program.display()))?;
    // As a shell does: 128 and the number of the signal.
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    Ok(ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

/// Makes the library that is preloaded also the one of this name, which programs load for what rdma-core's does
/// not have. The folders in which libraries are looked for.
fn vendor_library(root: &Path, name: &str, library: &Path) -> Result<OsString> {
    let folder = root.join("lib");
    std::fs::create_dir(&folder)?;
    std::os::unix::fs::symlink(library, folder.join(name))?;
    let mut folders = folder.into_os_string();
    if let Some(others) = std::env::var_os(LIBRARIES).filter(|others| !others.is_empty()) {
        folders.push(":");
        folders.push(others);
    }
    Ok(folders)
}

/// Settings for the library.
fn settings(args: &RunArgs) -> Result<OsString> {
    let mut out = format!("nics={},device={}", args.nics, args.device.name());
    if let Some(mtu) = args.mtu {
        out += &format!(",mtu={mtu}");
    }
    if let Some(address) = args.address {
        out += &format!(",address={address}");
    }
    if let Some((call, status)) = args.fail {
        out += &format!(",fail={call}:{status}");
    }
    if args.consume {
        out += ",consume";
    }
    if args.verbose {
        out += ",verbose";
    }
    let mut out = OsString::from(out);
    if let Some(file) = &args.record {
        out.push(",record=");
        out.push(std::path::absolute(file)?);
    }
    Ok(out)
}

/// A device of hardware is not to be mistaken for ours, nor the other way round.
fn refuse_hardware(class: &Path, kind: Kind) -> Result<()> {
    let Ok(devices) = class.read_dir() else { return Ok(()) };
    for device in devices.flatten() {
        let name = device.file_name();
        ensure!(
            !name.to_string_lossy().starts_with(kind.name()),
            "this machine has the device {}; --hide-hardware runs the program on software all the same",
            name.display()
        );
    }
    Ok(())
}

/// The library: as given, or beside this program.
fn library(args: &RunArgs) -> Result<PathBuf> {
    let path = match &args.library {
        Some(path) => path.clone(),
        None => std::env::current_exe()?.with_file_name(LIBRARY),
    };
    path.canonicalize().with_context(|| {
        format!(
            "{}: build it with `cargo build -p warpverbs-preload`, or name it by --library",
            path.display()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_is_seen() {
        let class = tempfile::tempdir().unwrap();
        assert!(refuse_hardware(&class.path().join("none"), Kind::Mlx5).is_ok());
        std::fs::create_dir(class.path().join("rxe0")).unwrap();
        assert!(refuse_hardware(class.path(), Kind::Mlx5).is_ok());
        std::fs::create_dir(class.path().join("mlx5_3")).unwrap();
        assert!(refuse_hardware(class.path(), Kind::Bnxt).is_ok());
        let error = refuse_hardware(class.path(), Kind::Mlx5).unwrap_err().to_string();
        assert!(error.contains("mlx5_3") && error.contains("--hide-hardware"), "{error}");
    }
}
