//! Arenas of the SIMT device: what is shared, across processes as well, and what is refused.

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::ftruncate;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use warpverbs_gpu::simt::{SimtConfig, SimtDevice};
use warpverbs_gpu::{Arena, ArenaError, Gpu, Segment};
use warpverbs_mem::Kind;

const LEN: u64 = 1 << 16;

fn device() -> SimtDevice {
    SimtDevice::new(SimtConfig::default()).unwrap()
}

fn arena(len: u64) -> Arena {
    device().arena(len).unwrap()
}

fn bytes<const N: usize>(segment: &Segment, offset: u64) -> [u8; N] {
    let mut out = [0; N];
    segment.buffer().region().read(offset, &mut out).unwrap();
    out
}

#[test]
fn a_segment_is_zeroed_host_memory_at_its_offset() {
    let arena = arena(1 << 30);
    let segment = arena.commit(LEN, LEN).unwrap();
    assert_eq!(segment.buffer().kernel_addr(), arena.addr() + LEN);
    assert_eq!(segment.buffer().region().kind(), Kind::Host);
    assert_eq!((segment.offset(), segment.len(), segment.buffer().len() as u64), (LEN, LEN, LEN));
    assert_eq!(bytes::<65536>(&segment, 0), [0; 65536]);
}

#[test]
fn two_mappings_show_the_same_bytes_and_outlive_the_exporter() {
    let (here, there) = (arena(1 << 20), arena(1 << 20));
    let own = here.commit(0, LEN).unwrap();
    let attached = there.attach(4 * LEN, LEN, own.export().unwrap()).unwrap();
    own.buffer().region().write(100, b"to").unwrap();
    attached.buffer().region().write(200, b"fro").unwrap();
    assert_eq!((&bytes(&attached, 100), &bytes(&own, 200)), (b"to", b"fro"));
    drop((own, here));
    assert_eq!(&bytes(&attached, 100), b"to");
    // Handed on by a process that did not make it.
    let again = there.attach(0, LEN, attached.export().unwrap()).unwrap();
    assert_eq!(&bytes(&again, 200), b"fro");
}

#[test]
fn memory_stays_as_long_as_its_buffer_and_its_place_as_well() {
    let arena = arena(1 << 20);
    let segment = arena.commit(0, LEN).unwrap();
    let buffer = segment.buffer().clone();
    drop(segment);
    buffer.region().write(0, b"still").unwrap();
    let refused = arena.commit(0, LEN).unwrap_err();
    assert!(matches!(refused, ArenaError::Occupied { other: 0, other_len: LEN, .. }), "{refused}");
    drop(buffer);
    assert_eq!(bytes(&arena.commit(0, LEN).unwrap(), 0), [0; 5]);
}

#[test]
fn ranges_that_do_not_fit_are_refused() {
    let arena = arena(8 * LEN);
    let _taken = arena.commit(2 * LEN, 2 * LEN).unwrap();
    for (offset, len) in [(2 * LEN, LEN), (LEN, 2 * LEN), (0, 8 * LEN), (3 * LEN, LEN)] {
        let refused = arena.commit(offset, len).unwrap_err();
        assert!(matches!(refused, ArenaError::Occupied { .. }), "{offset:#x}+{len:#x}: {refused}");
    }
    for (offset, len) in [(0, 0), (1, LEN), (0, LEN + 1)] {
        let refused = arena.commit(offset, len).unwrap_err();
        assert!(matches!(refused, ArenaError::Granule { .. }), "{offset:#x}+{len:#x}: {refused}");
    }
    for (offset, len) in [(8 * LEN, LEN), (7 * LEN, 2 * LEN), (u64::MAX / LEN * LEN, LEN)] {
        let refused = arena.commit(offset, len).unwrap_err();
        assert!(matches!(refused, ArenaError::Outside { .. }), "{offset:#x}+{len:#x}: {refused}");
    }
    assert!(arena.commit(LEN, LEN).is_ok() && arena.commit(4 * LEN, 4 * LEN).is_ok());
}

#[test]
fn neighbours_join_and_others_do_not() {
    let arena = arena(8 * LEN);
    let near = [(0, LEN), (LEN, 2 * LEN)].map(|(at, len)| arena.commit(at, len).unwrap());
    let far = [arena.commit(4 * LEN, LEN).unwrap()];
    let joined = arena.join(&near).unwrap();
    assert_eq!((joined.kernel_addr(), joined.len() as u64), (arena.addr(), 3 * LEN));
    joined.region().write(LEN - 2, b"over").unwrap();
    assert_eq!((&bytes(&near[0], LEN - 2), &bytes(&near[1], 0)), (b"ov", b"er"));
    drop(near);
    assert!(matches!(arena.commit(LEN, LEN), Err(ArenaError::Occupied { .. })));
    assert_eq!(arena.join(&far).unwrap().len() as u64, LEN);
    let [second] = far;
    let first = arena.commit(6 * LEN, LEN).unwrap();
    assert!(matches!(arena.join(&[second, first]), Err(ArenaError::Apart { index: 1 })));
    assert!(matches!(arena.join(&[]), Err(ArenaError::Apart { index: 0 })));
    let other = device().arena(LEN).unwrap().commit(0, LEN).unwrap();
    assert!(matches!(arena.join(&[other]), Err(ArenaError::Apart { index: 0 })));
}

#[test]
fn more_than_the_machine_has_is_refused_before_it_is_used() {
    let total = device().info().memory_bytes;
    let arena = arena(total * 4);
    let refused = arena.commit(0, (total + 1).next_multiple_of(arena.granule())).unwrap_err();
    assert!(matches!(refused, ArenaError::TooLarge { .. }), "{refused}");
}

fn refused(fd: OwnedFd) -> String {
    let error = arena(1 << 20).attach(0, LEN, fd).unwrap_err();
    assert!(matches!(error, ArenaError::WrongDescriptor { .. }), "{error}");
    error.to_string()
}

#[test]
fn descriptors_of_something_else_are_refused_with_what_they_are() {
    let file = tempfile::tempfile().unwrap();
    file.set_len(LEN).unwrap();
    assert!(refused(file.into()).contains("no memfd"));
    assert!(refused(File::open("/dev/null").unwrap().into()).contains("no memfd"));
    // Memory whose owner could cut it short while others map it.
    let loose = memfd_create(c"loose", MFdFlags::MFD_ALLOW_SEALING).unwrap();
    ftruncate(&loose, LEN as i64).unwrap();
    assert!(refused(loose).contains("without the seal"));
    let longer = arena(1 << 20).commit(0, 2 * LEN).unwrap();
    let said = refused(longer.export().unwrap());
    assert!(said.contains("0x20000") && said.contains("0x10000"), "{said}");
}

/// Whether this process was started by a test to do its part `name`.
fn is_part(name: &str) -> bool {
    std::env::var("ARENA_PART").is_ok_and(|part| part == name)
}

/// Runs the test `name` of this module in another process, as its part of that name.
fn part(name: &str, to: &str) -> (bool, String) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("arena::{name}"), "--nocapture"])
        .env("ARENA_PART", name)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // A part that reads nothing may have ended already.
    match writeln!(child.stdin.take().unwrap(), "{to}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        written => written.unwrap(),
    }
    let said = BufReader::new(child.stdout.take().unwrap()).lines();
    let said: Vec<_> = said.map(|line| line.unwrap()).collect();
    (child.wait().unwrap().success(), said.join("\n"))
}

#[test]
fn another_process_shares_the_bytes() {
    let name = "another_process_shares_the_bytes";
    if is_part(name) {
        let mut path = String::new();
        std::io::stdin().read_line(&mut path).unwrap();
        // A memfd may be opened through the process that has it.
        let fd = OpenOptions::new().read(true).write(true).open(path.trim()).unwrap();
        let segment = arena(1 << 24).attach(8 * LEN, LEN, fd.into()).unwrap();
        assert_eq!(&bytes(&segment, 0), b"from the parent");
        return segment.buffer().region().write(4096, b"from the child").unwrap();
    }
    let arena = arena(1 << 20);
    let segment = arena.commit(LEN, LEN).unwrap();
    segment.buffer().region().write(0, b"from the parent").unwrap();
    let fd = segment.export().unwrap();
    let path = format!("/proc/{}/fd/{}", std::process::id(), fd.as_raw_fd());
    let (well, said) = part(name, &path);
    assert!(well, "{said}");
    assert_eq!(&bytes(&segment, 4096), b"from the child");
}

#[test]
fn limits_of_the_process_are_named() {
    let name = "limits_of_the_process_are_named";
    if !is_part(name) {
        let (well, said) = part(name, "");
        return assert!(well, "{said}");
    }
    let device = device();
    let (arena, limit) = (device.arena(1 << 20).unwrap(), 16 << 30);
    setrlimit(Resource::RLIMIT_AS, limit, limit).unwrap();
    let refused = device.arena(1 << 40).unwrap_err();
    assert!(matches!(refused, ArenaError::Reserve { limit: Some(l), .. } if l == limit));
    assert!(refused.to_string().contains("ulimit -v"), "{refused}");
    let refused = device.arena(u64::MAX).unwrap_err();
    assert!(matches!(refused, ArenaError::Reserve { .. }), "{refused}");

    let segment = arena.commit(0, LEN).unwrap();
    let most = segment.export().unwrap().as_raw_fd() as u64;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    for refused in [segment.export().unwrap_err(), arena.commit(LEN, LEN).unwrap_err()] {
        let right = matches!(&refused, ArenaError::Descriptors { limit, .. } if *limit == most);
        assert!(right && refused.to_string().contains("ulimit -n"), "{refused}");
    }
    // The calls that failed left nothing behind.
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    drop(segment);
    assert!(arena.commit(0, LEN).is_ok());
}
