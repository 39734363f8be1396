//! Both engines against a model: a vector for the file and one for the memory.

mod ends;

use super::*;
use crate::testing::{LazyCopier, LazyMemory, content, region_of};
use crate::{HostBuf, MemError, Region};
use rand::{Rng as _, RngExt as _, SeedableRng as _, rngs::StdRng};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::sync::Arc;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

/// Threads, and io_uring where this system allows it.
fn engines() -> Vec<FileEngine> {
    let ring = FileQueue::new(FileEngine::Ring);
    println!("{}", ring.explain());
    let has_ring = ring.submit(Arc::new([])).is_ok();
    // Where a system is known to allow it, its absence is no reason to pass.
    assert!(has_ring || std::env::var_os("WARPVERBS_REQUIRE_IO_URING").is_none());
    let mut engines = vec![FileEngine::Threads];
    engines.extend(has_ring.then_some(FileEngine::Ring));
    engines
}

fn seeded() -> StdRng {
    let seed = rand::random();
    println!("seed {seed}");
    StdRng::seed_from_u64(seed)
}

fn bytes(rng: &mut StdRng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill_bytes(&mut bytes);
    bytes
}

/// A file without a name.
fn file_of(bytes: &[u8]) -> Arc<OwnedFd> {
    let mut file = tempfile();
    file.write_all(bytes).unwrap();
    Arc::new(file.into())
}

fn tempfile() -> File {
    let mut options = File::options();
    let flags = libc::O_TMPFILE | libc::O_CLOEXEC;
    options.read(true).write(true).custom_flags(flags).open(std::env::temp_dir()).unwrap()
}

fn content_of(file: &OwnedFd) -> Vec<u8> {
    let file = File::from(file.try_clone().unwrap());
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn done(batch: &FileBatch) -> Result<(), FileFailure> {
    batch.wait(LONG).expect("a batch that does not end")
}

fn request(
    op: FileOp,
    memory: &Region,
    at: u64,
    file: &Arc<OwnedFd>,
    offset: u64,
    len: u64,
) -> FileRequest {
    FileRequest { op, memory: memory.clone(), at, file: file.clone(), offset, len }
}

/// Random ranges that do not overlap, so that their order does not matter, written and then read back to
/// other places, among them some longer than what one call moves.
#[test]
fn random_ranges_move_as_in_a_model() {
    let mut rng = seeded();
    for engine in engines() {
        let queue = FileQueue::new(engine);
        for round in 0..12 {
            let size = if round < 10 { 100_000 } else { 5 << 20 };
            let (mut model, was) = (bytes(&mut rng, size), bytes(&mut rng, size));
            let (file, memory) = (file_of(&model), region_of(&was));
            let mut requests = Vec::new();
            // A place in the file for each range; memory may be used twice.
            let mut offset = 0;
            while offset < size {
                let longest = if round < 10 { 2000 } else { 3 << 20 };
                let len = rng.random_range(0..longest.min(size - offset) + 1);
                let at = rng.random_range(0..size - len + 1);
                requests.push(request(
                    FileOp::Write,
                    &memory,
                    at as u64,
                    &file,
                    offset as u64,
                    len as u64,
                ));
                model[offset..offset + len].copy_from_slice(&was[at..at + len]);
                offset += len + rng.random_range(1..1000);
            }
            done(&queue.submit(requests.into()).unwrap()).unwrap();
            assert!(content_of(&file) == model && content(&memory) == was, "{engine:?} {round}");
            let mut expected = was.clone();
            let mut requests = Vec::new();
            let mut at = 0;
            while at < size {
                let len = rng.random_range(0..2000usize.min(size - at) + 1);
                let offset = rng.random_range(0..size - len + 1);
                requests.push(request(
                    FileOp::Read,
                    &memory,
                    at as u64,
                    &file,
                    offset as u64,
                    len as u64,
                ));
                expected[at..at + len].copy_from_slice(&model[offset..offset + len]);
                at += len + rng.random_range(1..1000);
            }
            done(&queue.submit(requests.into()).unwrap()).unwrap();
            assert!(
                content(&memory) == expected && content_of(&file) == model,
                "{engine:?} {round}"
            );
        }
    }
}

#[test]
fn one_range_by_a_call_that_waits() {
    let mut rng = seeded();
    let data = bytes(&mut rng, 10_000);
    let (file, memory) = (tempfile(), region_of(&data));
    write_file(file.as_fd(), 5000, &memory, 100, 9900).unwrap();
    let back = HostBuf::region(9900).unwrap();
    read_file(file.as_fd(), 5000, &back, 0, 9900).unwrap();
    assert_eq!(content(&back), data[100..]);
    let short = FileIoError::Short { offset: 14_000, len: 901, size: 14_900 };
    assert_eq!(read_file(file.as_fd(), 14_000, &back, 0, 901), Err(short.clone()));
    let text = "a read of 901 bytes at offset 14000 of a file that has 14900 bytes";
    assert_eq!(short.to_string(), text);
    let out = write_file(file.as_fd(), 0, &memory, 1, 10_000);
    assert!(matches!(out, Err(FileIoError::Memory(MemError::OutOfBounds { .. }))));
    let beyond = write_file(file.as_fd(), u64::MAX, &memory, 0, 1);
    assert!(matches!(beyond, Err(FileIoError::Offset { .. })));
    let (device, _) = LazyMemory::regions(8, 0, &Arc::default()).unwrap();
    let device = read_file(file.as_fd(), 0, &device, 0, 8);
    assert!(matches!(device, Err(FileIoError::Memory(MemError::NotHost { .. }))));
}

#[test]
fn what_a_file_cannot_do_is_an_error_with_its_reason() {
    let mut rng = seeded();
    let data = bytes(&mut rng, 3 << 20);
    for engine in engines() {
        let (queue, memory) = (FileQueue::new(engine), region_of(&data));
        let result =
            |requests: Vec<FileRequest>| done(&queue.submit(requests.into()).unwrap()).unwrap_err();
        // A file that ends in the second part of the second request.
        let file = file_of(&data[..1_500_000]);
        let all = data.len() as u64;
        let first = request(FileOp::Read, &memory, 0, &file, 0, 4096);
        let failure = result(vec![first, request(FileOp::Read, &memory, 0, &file, 0, all)]);
        let error = FileIoError::Short { offset: 0, len: all, size: 1_500_000 };
        assert_eq!(failure, FileFailure { request: Some(1), error });
        let read_only = Arc::new(OwnedFd::from(File::open("/proc/self/exe").unwrap()));
        let failure = result(vec![request(FileOp::Write, &memory, 0, &read_only, 0, 8)]);
        let text = "write of 8 bytes at offset 0: EBADF: Bad file number";
        assert_eq!((failure.request, failure.to_string().as_str()), (Some(0), text));
        let full = Arc::new(OwnedFd::from(File::options().write(true).open("/dev/full").unwrap()));
        let failure = result(vec![request(FileOp::Write, &memory, 0, &full, 0, 2 << 20)]);
        let errno = nix::errno::Errno::ENOSPC;
        let error = FileIoError::System { op: FileOp::Write, offset: 0, len: 2 << 20, errno };
        assert_eq!(failure.error, error);
        // Memory that its owner has unmapped: an error, not a signal.
        // SAFETY: none of it is touched but by the kernel, which finds nothing mapped there.
        let gone = unsafe { Region::foreign(1 << 40, 4096, ()) };
        let failure = result(vec![request(FileOp::Read, &gone, 0, &file, 0, 4096)]);
        assert!(matches!(
            failure.error,
            FileIoError::System { errno: nix::errno::Errno::EFAULT, .. }
        ));
        // Refused at once, and nothing is moved.
        let refused = queue.submit(
            vec![
                request(FileOp::Read, &memory, 0, &file, 0, 8),
                request(FileOp::Read, &memory, all - 7, &file, 0, 8),
            ]
            .into(),
        );
        assert_eq!(refused.unwrap_err().request, Some(1));
        // The queue goes on.
        done(&queue.submit(vec![request(FileOp::Read, &memory, 0, &file, 0, 8)].into()).unwrap())
            .unwrap();
    }
}

/// Where build outputs are, and not in the folder of temporary files, which may be in memory.
fn direct_file() -> Option<Arc<OwnedFd>> {
    let mut options = File::options();
    let flags = libc::O_TMPFILE | libc::O_DIRECT;
    let program = std::env::current_exe().unwrap();
    let opened = options.read(true).write(true).custom_flags(flags).open(program.parent().unwrap());
    opened.ok().map(|file| Arc::new(file.into()))
}

#[test]
fn direct_files_take_what_is_aligned_and_say_what_is_not() {
    let mut rng = seeded();
    let Some(file) = direct_file() else { return println!("no file system for O_DIRECT") };
    let data = bytes(&mut rng, (2 << 20) + 8192);
    for engine in engines() {
        let (queue, memory) = (FileQueue::new(engine), region_of(&data));
        let result = |op, at, offset, len| {
            done(&queue.submit(vec![request(op, &memory, at, &file, offset, len)].into()).unwrap())
        };
        result(FileOp::Write, 0, 4096, data.len() as u64).unwrap();
        memory.fill(0, data.len(), 0).unwrap();
        result(FileOp::Read, 0, 4096, data.len() as u64).unwrap();
        assert!(content(&memory) == data);
        // The end of the file, in the middle of what is read.
        let short = result(FileOp::Read, 0, 1 << 20, data.len() as u64).unwrap_err().error;
        assert!(matches!(short, FileIoError::Short { .. }), "{short}");
        memory.write(0, &data).unwrap();
        for (at, offset, len) in [(1, 0, 4096), (0, 1, 4096), (0, 0, 100)] {
            let error = result(FileOp::Read, at, offset, len);
            let Err(failure) = error else {
                println!(
                    "{engine:?}: O_DIRECT takes {len} bytes at offset {offset} and address {at}"
                );
                continue;
            };
            let text = failure.to_string();
            assert!(matches!(failure.error, FileIoError::Alignment { .. }), "{text}");
            assert!(text.contains("the address must be a multiple of"), "{text}");
        }
    }
}

/// Reads the end of a block device, if there is one that this user may read.
#[test]
fn a_block_device_ends_where_the_system_says() {
    let all = std::fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let opened = all.filter_map(|entry| {
        let sectors = std::fs::read_to_string(entry.path().join("size")).ok()?;
        let size = 512 * sectors.trim().parse::<u64>().ok()?;
        let file = File::open(std::path::Path::new("/dev").join(entry.file_name())).ok()?;
        (size >= 8192).then_some((Arc::new(OwnedFd::from(file)), size))
    });
    let Some((device, size)) = { opened }.next() else {
        return println!("no block device may be read");
    };
    for engine in engines() {
        let (queue, memory) = (FileQueue::new(engine), HostBuf::region(8192).unwrap());
        let result = |offset| {
            let requests = [request(FileOp::Read, &memory, 0, &device, offset, 4096)];
            done(&queue.submit(requests.into()).unwrap()).map_err(|failure| failure.error)
        };
        result(size - 4096).unwrap();
        let short = |offset| Err(FileIoError::Short { offset, len: 4096, size });
        assert_eq!(result(size - 100), short(size - 100));
        assert_eq!(result(size + 4096), short(size + 4096));
    }
}

/// A list for both: of files in the system's cache and of such that are not, of host and device memory.
#[test]
fn a_list_is_divided_between_the_ring_and_threads() {
    const BLOCK: u64 = 65536;
    let mut rng = seeded();
    let Some(direct) = direct_file() else { return println!("no file system for O_DIRECT") };
    let data = bytes(&mut rng, 100 * BLOCK as usize);
    let (cached, memory) = (file_of(&data), region_of(&data));
    write_file(direct.as_fd(), 0, &memory, 0, data.len() as u64).unwrap();
    let copier = Arc::new(LazyCopier::default());
    copier.pace(1);
    let (device, view) = LazyMemory::regions(data.len(), 0, &copier).unwrap();
    let host = HostBuf::region(data.len()).unwrap();
    let queue = FileQueue::new(FileEngine::Auto);
    println!("{}", queue.explain());
    for _ in 0..4 {
        let requests = (0..100).flat_map(|block| {
            let files = [rng.random_bool(0.5), rng.random_bool(0.5)];
            let file = files.map(|is_direct| if is_direct { &direct } else { &cached });
            [(&host, file[0]), (&device, file[1])].map(|(memory, file)| {
                request(FileOp::Read, memory, block * BLOCK, file, block * BLOCK, BLOCK)
            })
        });
        let requests = requests.collect();
        done(&queue.submit(requests).unwrap()).unwrap();
        assert!(content(&host) == data && content(&view) == data);
        host.fill(0, data.len(), 0).unwrap();
        view.fill(0, data.len(), 0).unwrap();
    }
}

/// A write beyond the limit would end the process by SIGXFSZ.
#[test]
fn more_than_a_file_may_have_is_an_error() {
    const LIMITED: &str = "WARPVERBS_TEST_FILE_QUEUE_LIMIT";
    if std::env::var_os(LIMITED).is_none() {
        let own = "file::tests::more_than_a_file_may_have_is_an_error";
        let out = std::process::Command::new("sh")
            .args(["-c", "ulimit -f 8; exec \"$0\" --exact \"$1\" --nocapture"])
            .arg(std::env::current_exe().unwrap())
            .arg(own)
            .env(LIMITED, "1")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        // A signal is no exit code.
        assert!(out.status.success() && text.contains("1 passed"), "{}: {text}", out.status);
        return;
    }
    let (file, memory) = (file_of(&[1; 100]), region_of(&[7; 9000]));
    for engine in engines() {
        let queue = FileQueue::new(engine);
        let submit = |offset| {
            queue.submit(vec![request(FileOp::Write, &memory, 0, &file, offset, 100)].into())
        };
        let limit = FileIoError::Limit { offset: 8000, len: 100, limit: 4096 };
        assert_eq!(submit(8000).unwrap_err().error, limit);
        done(&submit(3000).unwrap()).unwrap();
        assert_eq!(content_of(&file)[3000..], [7; 100]);
    }
}

#[test]
fn memory_of_a_device_goes_by_its_engine() {
    let mut rng = seeded();
    let data = bytes(&mut rng, (3 << 20) + 77);
    for engine in engines() {
        let copier = Arc::new(LazyCopier::default());
        copier.pace(2);
        let (device, view) = LazyMemory::regions(data.len(), 0, &copier).unwrap();
        let (queue, host) = (FileQueue::new(engine), HostBuf::region(1000).unwrap());
        let file = file_of(&data);
        let all = data.len() as u64 - 100;
        let requests = [
            request(FileOp::Read, &device, 50, &file, 7, all),
            request(FileOp::Read, &host, 0, &file, 3, 1000),
        ];
        done(&queue.submit(requests.into()).unwrap()).unwrap();
        assert!(content(&view)[50..50 + all as usize] == data[7..7 + all as usize]);
        assert!(content(&host) == data[3..1003]);
        let requests = [request(FileOp::Write, &device, 50, &file, 200, all)];
        done(&queue.submit(requests.into()).unwrap()).unwrap();
        assert!(content_of(&file)[200..200 + all as usize] == data[7..7 + all as usize]);
        copier.break_down();
        let requests = [request(FileOp::Read, &device, 0, &file, 0, 8)];
        let failure = done(&queue.submit(requests.into()).unwrap()).unwrap_err();
        assert!(matches!(failure.error, FileIoError::Memory(MemError::CopyFailed { .. })));
    }
}

#[test]
fn who_moves_the_bytes_is_said() {
    let threads = FileQueue::new(FileEngine::Threads);
    assert_eq!(threads.explain(), "up to 16 threads, not io_uring: threads were asked for");
    let (auto, ring) = (FileQueue::new(FileEngine::Auto), FileQueue::new(FileEngine::Ring));
    match ring.submit(Arc::new([])) {
        Ok(batch) => {
            assert_eq!(batch.poll(), Some(Ok(())));
            assert_eq!(ring.explain(), "io_uring, 128 operations at a time");
            let both = "io_uring for files opened with O_DIRECT, 128 operations at a time, and up to 16 \
                        threads for others";
            assert_eq!(auto.explain(), both);
        }
        Err(failure) => {
            assert!(matches!(failure.error, FileIoError::NoRing { .. }));
            assert!(auto.explain().starts_with("up to 16 threads, not io_uring: "));
        }
    }
}
