//! The queues that MORI posts to, its process, and what it is told.

use std::fmt::Write as _;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use warpverbs_dev::{Child, Poster, QueueFormat, bytes};
use warpverbs_mem::{Access, HostBuf, Region, map_sealed, sealed_memfd};
use warpverbs_nic::{
    BnxtLibrary, BnxtMode, BnxtQueues, Config, Cq, CqConfig, CqMode, Dialect, IonicProtocol, Mr,
    Mtu, PacketTable, QpAttrs, QpConfig, QpFormat, QpState, RqConfig, SoftNic,
};

/// The device for which MORI is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Device {
    Mlx5,
    Bnxt,
    Ionic,
    /// With completions in a CQ of one entry.
    IonicCollapsed,
}

impl Device {
    pub(super) const ALL: [Self; 4] = [Self::Mlx5, Self::Bnxt, Self::Ionic, Self::IonicCollapsed];

    fn peer(self) -> QueueFormat {
        match self {
            Self::Mlx5 => QueueFormat::Mlx5,
            Self::Bnxt => QueueFormat::BnxtVariable,
            Self::Ionic | Self::IonicCollapsed => QueueFormat::IonicV2,
        }
    }

    fn dialect(self) -> Dialect {
        self.peer().dialect()
    }

    /// Bytes of one of its receives.
    fn receive(self) -> usize {
        match self {
            Self::Mlx5 => 16,
            Self::Bnxt => 48,
            Self::Ionic | Self::IonicCollapsed => 64,
        }
    }
}

/// log2 of WQEs, receives, and CQEs of a ring.
const LOG_SQ: u8 = 6;
const LOG_RQ: u8 = 5;
const LOG_CQ: u8 = 8;
/// Entries of the table of packet numbers, for three slots a WQE.
const LOG_PACKETS: u8 = 7;
const MTU: Mtu = Mtu::B1024;

/// Bytes of the memory that both processes map.
pub(super) const LEN: u64 = 1 << 20;
// Where its parts begin.
const SQ: u64 = 0;
const PACKETS: u64 = 0x2000;
const RQ: u64 = 0x3000;
const CQ: u64 = 0x4000;
const RECV_CQ: u64 = 0xc000;
const CQ_LEN: usize = 64 << LOG_CQ;
const RECORD: u64 = 0xa000;
const BELL: u64 = 0xa040;
const CQ_RECORD: u64 = 0xa080;
const RECV_CQ_RECORD: u64 = 0xa0c0;
/// A doorbell at which nobody looks.
const NOWHERE: u64 = 0xa100;
/// Results of atomics.
const RESULTS: u64 = 0xb000;
const LOG_RESULTS: u8 = 6;
/// Payload that is sent, and the place of READs and receives.
pub(super) const FROM: u64 = 0x1_0000;
pub(super) const TO: u64 = 0x8_0000;

/// Threads of the poster, lanes of a wave, the bytes at the peer that each has, and those of a request at most.
pub(super) const THREADS: u64 = 4;
pub(super) const LANES: u64 = 8;
pub(super) const PIECE: u64 = 0x1_0000;
pub(super) const MOST: u64 = 4000;

/// The folder of MORI's sources.
pub(super) fn sources() -> Option<PathBuf> {
    let folder = std::env::var_os("WARPVERBS_MORI").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("SKIPPED: WARPVERBS_MORI names no folder of MORI's sources");
    }
    folder
}

/// Compiles the poster, whose sources need clang 17 or a compiler as new.
fn program(sources: &Path, device: Device, folder: &Path) -> PathBuf {
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mori");
    let program = folder.join(format!("{device:?}"));
    let compiler = std::env::var("CXX").unwrap_or_else(|_| "clang++-19".into());
    let mut command = Command::new(compiler);
    command.args(["-std=c++20", "-O1", "-pthread", "-w", "-o"]).arg(&program);
    // Ours first: it has headers in the place of theirs.
    command.arg("-I").arg(&ours).arg("-I").arg(sources.join("include"));
    command.args(match device {
        Device::Mlx5 => [].as_slice(),
        Device::Bnxt => &["-DMORI_DEVICE_NIC_BNXT"],
        Device::Ionic => &["-DMORI_DEVICE_NIC_IONIC"],
        Device::IonicCollapsed => &["-DMORI_DEVICE_NIC_IONIC", "-DIONIC_CCQE"],
    });
    let output =
        command.arg(ours.join("poster.cpp")).output().expect("clang++-19, or what CXX names");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// The kinds of steps, as the poster numbers them.
#[derive(Clone, Copy, Debug)]
#[repr(u64)]
pub(super) enum Kind {
    Put,
    PutValue,
    PutAdd,
    PutSet,
    Add,
    FetchAdd,
    CompareSwap,
    Get,
    Quiet,
    Writes,
    Sends,
    Receives,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) thread: u64,
    pub(super) kind: Kind,
    pub(super) here: u64,
    pub(super) there: u64,
    pub(super) bytes: u64,
    pub(super) value: u64,
}

/// A NIC, a queue pair in shared memory for the poster, and its peer.
pub(super) struct Rig {
    pub(super) device: Device,
    pub(super) nic: SoftNic,
    pub(super) shared: Region,
    qp: warpverbs_nic::Qp,
    pub(super) peer: Poster,
    pub(super) there: Mr,
    child: Child,
    /// The next lines for the poster.
    text: String,
    _here: Mr,
    _folder: tempfile::TempDir,
}

impl Rig {
    pub(super) fn new(sources: &Path, device: Device, cq_mode: CqMode) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let memory = sealed_memfd(LEN).expect("shared memory");
        let shared = map_sealed(&memory, LEN).expect("a mapping");
        let path = format!("/proc/{}/fd/{}", std::process::id(), memory.as_raw_fd());
        let mut command = Command::new(program(sources, device, folder.path()));
        let mut child = Child::start(command.arg(path).arg(format!("{LEN:x}")));
        let address = u64::from_str_radix(&child.said(), 16).expect("an address");

        let nic = SoftNic::new(Config::default()).expect("a NIC");
        let pd = nic.alloc_pd();
        for at in [CQ, RECV_CQ] {
            // As MORI fills them.
            let byte = if device == Device::Mlx5 { 0xff } else { 0 };
            shared.fill(at, CQ_LEN, byte).expect("inside");
        }
        let send_cq = cq(&nic, &shared, device, (cq_mode, CQ, CQ_RECORD));
        let recv_cq = cq(&nic, &shared, device, (CqMode::Ring, RECV_CQ, RECV_CQ_RECORD));
        let here = nic.reg_mr_at(&pd, &shared, Access::all(), address).expect("a key");
        let there = HostBuf::region((LANES * PIECE) as usize).expect("memory");
        let there = nic.reg_mr(&pd, &there, Access::all()).expect("a key");
        let cqn = send_cq.cqn();
        let qp = nic.create_qp(&pd, queues(device, &shared, send_cq, recv_cq)).expect("a QP");
        let mut peer = Poster::new(&nic, &pd, device.peer(), (CqMode::Ring, 7)).expect("a QP");
        connect(&qp, &mut peer);
        // A doorbell that was never rung.
        let bell = bytes(nic.doorbells(), qp.doorbell_offset(), 8);
        shared.write(BELL, &bell).expect("inside");
        let text = described(device, &qp, (cq_mode, cqn), &here, &there);
        Self { device, nic, shared, qp, peer, there, child, text, _here: here, _folder: folder }
    }

    /// The poster does these steps, `how` it is told, while the NIC runs. Returns the values that each thread has fetched.
    pub(super) fn run(&mut self, steps: &[Step], how: &str) -> Vec<Vec<u64>> {
        let Self { text, .. } = self;
        for Step { thread, kind, here, there, bytes, value } in steps {
            let kind = *kind as u64;
            writeln!(text, "op {thread:x} {kind:x} {here:x} {there:x} {bytes:x} {value:x}")
                .expect("text");
        }
        let text = std::mem::take(text) + how;
        let (done, rung) = (AtomicBool::new(false), &self.qp);
        let _engine = self.nic.spawn().expect("a thread");
        let (nic, shared, child) = (&self.nic, &self.shared, &mut self.child);
        let answer = std::thread::scope(|scope| {
            scope.spawn(|| pass_on(shared, nic, rung, &done));
            let answer = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| child.ask(text)));
            done.store(true, Ordering::Release);
            answer
        });
        let found = self.nic.take_violations();
        assert_eq!(found, [], "{:?}, {:?}", self.device, self.qp.first_error());
        let answer = answer.expect("the poster's answer");
        let threads = answer.split_terminator('|').map(|words| {
            words.split_whitespace().map(|word| u64::from_str_radix(word, 16).expect("a number"))
        });
        threads.map(Iterator::collect).collect()
    }
}

/// The NIC's doorbells are in memory of its own: what is stored to that of sends in shared memory is
/// brought there. A later value says all that those before it said.
fn pass_on(shared: &Region, nic: &SoftNic, qp: &warpverbs_nic::Qp, done: &AtomicBool) {
    let from = shared.atomic_u64(BELL).expect("a doorbell");
    let to = nic.doorbells().atomic_u64(qp.doorbell_offset()).expect("a doorbell");
    while !done.load(Ordering::Acquire) {
        let value = from.load(Ordering::Acquire);
        if value == to.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_micros(5));
        } else {
            to.store(value, Ordering::Release);
        }
    }
}

fn part(shared: &Region, at: u64, len: usize) -> Region {
    shared.slice(at, len).expect("inside the memory")
}

fn cq(
    nic: &SoftNic,
    shared: &Region,
    device: Device,
    (mode, at, record): (CqMode, u64, u64),
) -> Cq {
    let config = CqConfig {
        dialect: device.dialect(),
        mode,
        log_size: if mode == CqMode::Ring { LOG_CQ } else { 0 },
        cqe_size: Default::default(),
        buf: part(shared, at, CQ_LEN),
        dbr: part(shared, record, 8),
        // Nobody consumes what is in a CQ of one entry, or in that of receives, and MORI tells no CQ of bnxt_re
        // what it has consumed.
        ignore_overrun: mode == CqMode::Collapsed || at == RECV_CQ || device == Device::Bnxt,
        notice: None,
    };
    nic.create_cq(&config).expect("a CQ")
}

fn queues(device: Device, shared: &Region, send_cq: Cq, recv_cq: Cq) -> QpConfig {
    let format = match device {
        Device::Mlx5 => QpFormat::Mlx5,
        Device::Bnxt => QpFormat::Bnxt(BnxtQueues {
            library: BnxtLibrary::Current,
            mode: BnxtMode::Variable,
            slots: 3 << LOG_SQ,
            receive_slots: Some(3),
            counts_receive_slots: true,
            table: PacketTable::Msn,
            packets: part(shared, PACKETS, 8 << LOG_PACKETS),
            log_packets: LOG_PACKETS,
            handle: 0x1234_5678_9abc,
        }),
        Device::Ionic | Device::IonicCollapsed => {
            QpFormat::Ionic { protocol: IonicProtocol::V2, log_wqe: 6 }
        }
    };
    let buf = part(shared, RQ, device.receive() << LOG_RQ);
    let log_stride = device.receive().next_power_of_two().ilog2() as u8;
    QpConfig {
        format,
        service: Default::default(),
        user_index: None,
        scatter_to_cqe: Default::default(),
        announcement: Default::default(),
        send_cq,
        recv_cq,
        sq: part(shared, SQ, 64 << LOG_SQ),
        log_sq: LOG_SQ,
        rq: RqConfig::Own { buf, log_rq: LOG_RQ, log_stride },
        dbr: part(shared, RECORD, 8),
        on_send_error: Default::default(),
        consume_only: false,
    }
}

/// As MORI connects: every packet number begins with 0.
fn connect(qp: &warpverbs_nic::Qp, peer: &mut Poster) {
    let init = QpAttrs::init(Access::all());
    let rts = QpAttrs { rnr_retry: Some(7), ..QpAttrs::rts() };
    let rtr = |qpn| QpAttrs { mtu: Some(MTU), ..QpAttrs::rtr(qpn) };
    peer.connect(&init, &rtr(qp.qpn()), &rts);
    let to_peer = rtr(peer.qp.qpn());
    for (state, attrs) in [(QpState::Init, &init), (QpState::Rtr, &to_peer), (QpState::Rts, &rts)] {
        qp.modify(state, attrs).expect("the usual way to RTS");
    }
}

/// The queues, as the poster reads them.
fn described(
    device: Device,
    qp: &warpverbs_nic::Qp,
    (cq_mode, cqn): (CqMode, u32),
    here: &Mr,
    there: &Mr,
) -> String {
    let receive_bell = if device == Device::Mlx5 { NOWHERE } else { RECORD };
    let cqes = if cq_mode == CqMode::Ring { 1 << LOG_CQ } else { 1 };
    let numbers = [
        qp.qpn().into(),
        SQ,
        1 << LOG_SQ,
        RQ,
        1 << LOG_RQ,
        PACKETS,
        1 << LOG_PACKETS,
        MTU.bytes() as u64,
        RECORD,
        BELL,
        receive_bell,
        CQ,
        cqes,
        CQ_RECORD,
        cqn.into(),
        RESULTS,
        1 << LOG_RESULTS,
        here.lkey().into(),
        there.addr(),
        there.rkey().into(),
    ];
    numbers.map(|number| format!("{number:x}")).join(" ") + "\n"
}
