//! Transfers against a model: vectors for files and memory.

use super::*;
use crate::{Error, Status};
use nix::fcntl::OFlag;
use rand::{Rng as _, RngExt as _, SeedableRng as _, rngs::StdRng, seq::SliceRandom as _};
use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::time::{Duration, Instant};
use warpverbs_gpu::{GpuChoice, Place};
use warpverbs_mem::testing::{LazyCopier, LazyMemory, content, region_of};
use warpverbs_mem::{FileIoError, HostBuf, Kind, MemError, Region};

const LONG: Duration = Duration::from_secs(60);

/// All that move bytes here.
fn all() -> Vec<Files> {
    let mut all: Vec<_> = [FileEngine::Threads, FileEngine::Auto].map(Files::with).into();
    let ring = Files::with(FileEngine::Ring);
    let none = ring.transfer(FileOp::Read, vec![]).unwrap();
    match none.post() {
        Ok(()) => all.push(ring),
        Err(error) => assert_eq!(error.status(), Status::NotSupported, "{error}"),
    }
    all.iter().for_each(|files| println!("{}", files.explain()));
    all
}

fn seeded() -> StdRng {
    StdRng::seed_from_u64(warpverbs_dev::seed())
}

fn bytes(rng: &mut StdRng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill_bytes(&mut bytes);
    bytes
}

fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn content_of(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn piece(memory: &Region, at: u64, file: &File, offset: u64, len: u64) -> FilePiece {
    FilePiece { memory: memory.clone(), at, fd: file.as_raw_fd(), offset, len }
}

fn done(transfer: &FileTransfer) -> Result<(), FileError> {
    transfer.wait(LONG).expect("a transfer that does not end")
}

fn moved(files: &Files, op: FileOp, pieces: Vec<FilePiece>) -> Result<(), FileError> {
    let transfer = files.transfer(op, pieces)?;
    transfer.post()?;
    done(&transfer)
}

/// 10,000 blocks of three files, in an order that leaves some neighbours, from one memory to another.
#[test]
fn many_blocks_move_as_in_a_model() {
    const BLOCK: usize = 700;
    let mut rng = seeded();
    for files in all() {
        let memory = bytes(&mut rng, 10_000 * BLOCK);
        let from = region_of(&memory);
        let mut model = [(); 3].map(|()| bytes(&mut rng, 10_000 * BLOCK));
        let targets = model.each_ref().map(|bytes| file_of(bytes));
        // Runs of blocks: (file, first block, count), each block once.
        let mut runs = Vec::new();
        let mut block = 0;
        while block < 10_000 {
            let count = rng.random_range(1..6usize).min(10_000 - block);
            runs.push((rng.random_range(0..3usize), block, count));
            block += count;
        }
        runs.shuffle(&mut rng);
        let mut pieces = Vec::new();
        for &(file, first, count) in &runs {
            for block in first..first + count {
                let at = (block * BLOCK) as u64;
                pieces.push(piece(&from, at, &targets[file], at, BLOCK as u64));
            }
            let range = first * BLOCK..(first + count) * BLOCK;
            model[file][range.clone()].copy_from_slice(&memory[range]);
        }
        // Runs that follow one another by chance are one as well.
        let joins =
            runs.windows(2).filter(|two| two[0].0 == two[1].0 && two[0].1 + two[0].2 == two[1].1);
        let operations = runs.len() - joins.count();
        let transfer = files.transfer(FileOp::Write, pieces.clone()).unwrap();
        assert_eq!((transfer.bytes(), transfer.operations()), (memory.len() as u64, operations));
        transfer.post().unwrap();
        done(&transfer).unwrap();
        for (file, model) in targets.iter().zip(&model) {
            assert!(content_of(file) == *model);
        }
        from.fill(0, memory.len(), 0).unwrap();
        moved(&files, FileOp::Read, pieces).unwrap();
        assert!(content(&from) == memory);
    }
}

#[test]
fn only_neighbours_in_memory_and_file_become_one() {
    let files = Files::start();
    let (file, other) = (file_of(&[0; 100]), file_of(&[0; 100]));
    let one = region_of(&[1; 100]);
    let half = one.slice(50, 50).unwrap();
    let count =
        |pieces: Vec<FilePiece>| files.transfer(FileOp::Write, pieces).unwrap().operations();
    let first = piece(&one, 0, &file, 10, 10);
    assert_eq!(count(vec![first.clone(), piece(&one, 10, &file, 20, 10)]), 1);
    assert_eq!(count(vec![first.clone(), piece(&one, 10, &other, 20, 10)]), 2);
    assert_eq!(count(vec![first.clone(), piece(&one, 10, &file, 21, 10)]), 2);
    assert_eq!(count(vec![first.clone(), piece(&one, 11, &file, 20, 10)]), 2);
    assert_eq!(count(vec![piece(&one, 10, &file, 20, 10), first.clone()]), 2);
    assert_eq!(count(vec![first, piece(&one, 10, &file, 20, 0)]), 1);
    assert_eq!(count(vec![]), 0);
    // A part of the same memory, and a part whose owner has no more of it.
    assert_eq!(count(vec![piece(&one, 40, &file, 0, 10), piece(&half, 0, &file, 10, 10)]), 1);
    let begin = one.slice(0, 50).unwrap();
    assert_eq!(count(vec![piece(&begin, 40, &file, 0, 10), piece(&half, 0, &file, 10, 10)]), 2);
    moved(&files, FileOp::Read, vec![]).unwrap();
}

/// The number of a closed descriptor is given to the next file that is opened.
#[test]
fn a_closed_descriptor_is_still_its_file() {
    let mut rng = seeded();
    let data = bytes(&mut rng, 5000);
    for files in all() {
        let (memory, file) = (region_of(&data), file_of(&[]));
        let view = file.try_clone().unwrap();
        let number = file.as_raw_fd();
        let transfer =
            files.transfer(FileOp::Write, vec![piece(&memory, 0, &file, 0, 5000)]).unwrap();
        drop(file);
        // Until the number is used again, which another test may come before us with.
        let others: Vec<File> = (0..50).map(|_| file_of(&[])).collect();
        println!("again: {}", others.iter().any(|other| other.as_raw_fd() == number));
        transfer.post().unwrap();
        done(&transfer).unwrap();
        assert!(content_of(&view) == data);
        assert!(others.iter().all(|other| other.metadata().unwrap().len() == 0));
    }
}

#[test]
fn descriptors_that_will_not_do_are_named_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, [1; 10]).unwrap();
    let with = |read, write, flags: OFlag| {
        File::options().read(read).write(write).custom_flags(flags.bits()).open(&path).unwrap()
    };
    let (reader, _writer) = std::io::pipe().unwrap();
    let pipe = File::from(std::os::fd::OwnedFd::from(reader));
    let memory = region_of(&[0; 10]);
    let files = Files::start();
    let check = |op, file: &File, text: &str, status| {
        let fd = file.as_raw_fd();
        let error = files.transfer(op, vec![piece(&memory, 0, file, 0, 10)]).unwrap_err();
        assert_eq!(error.to_string(), text.replace("FD", &format!("file descriptor {fd}")));
        assert_eq!(error.status(), status);
        let error = Error::from(error);
        assert!(error.to_string().starts_with(status.name()), "{error}");
    };
    let (read, write, wrong) = (FileOp::Read, FileOp::Write, Status::InvalidParam);
    let denied = Status::NotAllowed;
    let kinds = "expected a regular file or a block device";
    check(read, &pipe, &format!("FD is a pipe, {kinds}"), wrong);
    check(read, &File::open(folder.path()).unwrap(), &format!("FD is a directory, {kinds}"), wrong);
    let null = File::options().read(true).write(true).open("/dev/null").unwrap();
    check(write, &null, &format!("FD is a character device, {kinds}"), wrong);
    let (none, read_only) = (OFlag::empty(), "no write: FD was opened for reading alone");
    check(write, &with(true, false, none), read_only, denied);
    check(read, &with(false, true, none), "no read: FD was opened for writing alone", denied);
    let path_only = "no read: FD was opened as a path alone";
    check(read, &with(true, false, OFlag::O_PATH), path_only, denied);
    let append = "no write: FD was opened with O_APPEND, so offsets would be ignored";
    check(write, &with(true, true, OFlag::O_APPEND), append, wrong);
    for fd in [-1, i32::MAX] {
        assert_eq!(files.check(fd), Err(FileError::Closed { fd }));
        assert_eq!(Files::query_descriptor(fd), Err(FileError::Closed { fd }));
    }
    let good = with(true, true, none);
    files.check(good.as_raw_fd()).unwrap();
    let bad =
        files.transfer(read, vec![piece(&memory, 0, &good, 0, 5), piece(&memory, 5, &good, 5, 6)]);
    let error = MemError::OutOfBounds { offset: 5, len: 6, region_len: 10 };
    assert_eq!(bad.unwrap_err(), FileError::Memory { piece: 1, error });
    let far = files.transfer(read, vec![piece(&memory, 0, &good, u64::MAX - 2, 5)]).unwrap_err();
    assert_eq!(far, FileError::Offset { piece: 0, offset: u64::MAX - 2, len: 5 });
    let error = moved(&files, read, vec![piece(&memory, 0, &good, 4, 10)]).unwrap_err();
    let text = "a read of 10 bytes at offset 4 of a file that has 10 bytes";
    assert_eq!(error.to_string(), format!("file descriptor {}: {text}", good.as_raw_fd()));
    assert_eq!(error.status(), Status::Backend);
}

#[test]
fn a_transfer_is_posted_again_when_it_is_over_and_its_end_stays() {
    let mut rng = seeded();
    let size = 48 << 20;
    for files in all() {
        let (memory, file) = (HostBuf::region(size).unwrap(), tempfile::tempfile().unwrap());
        file.set_len(size as u64).unwrap();
        let pieces = (0..size as u64 / 65536)
            .rev()
            .map(|block| piece(&memory, block * 65536, &file, block * 65536, 65536));
        let transfer = files.transfer(FileOp::Read, pieces.collect()).unwrap();
        assert_eq!(transfer.poll(), Some(Err(FileError::NotPosted)));
        assert_eq!(transfer.wait(LONG), Some(Err(FileError::NotPosted)));
        transfer.cancel();
        let (mut cut, mut refused) = (0, 0);
        for _ in 0..20 {
            transfer.post().unwrap();
            if transfer.post() == Err(FileError::InProgress) {
                refused += 1;
            }
            std::thread::sleep(Duration::from_micros(rng.random_range(0..2000)));
            transfer.cancel();
            let result = done(&transfer);
            cut += usize::from(result == Err(FileError::Cancelled));
            assert!(result.is_ok() || result == Err(FileError::Cancelled), "{result:?}");
            memory.fill(0, size, 0xA5).unwrap();
            std::thread::sleep(Duration::from_millis(1));
            assert!(content(&memory).iter().all(|&byte| byte == 0xA5), "bytes after the end");
            transfer.cancel();
            assert_eq!(transfer.poll(), Some(result));
        }
        assert!(cut > 0 && refused > 0, "{cut} were cut, {refused} were in progress");
        transfer.post().unwrap();
        done(&transfer).unwrap();
        assert!(content(&memory).iter().all(|&byte| byte == 0));
        // A file that has become shorter, and is long enough again.
        file.set_len(100).unwrap();
        transfer.post().unwrap();
        let error = done(&transfer).unwrap_err();
        assert!(
            matches!(error, FileError::Io { error: FileIoError::Short { size: 100, .. }, .. }),
            "{error}"
        );
        file.set_len(size as u64).unwrap();
        transfer.post().unwrap();
        done(&transfer).unwrap();
    }
}

#[test]
fn memory_of_a_gpu_goes_both_ways() {
    let mut rng = seeded();
    let data = bytes(&mut rng, (5 << 20) + 3);
    for files in all() {
        let copier = std::sync::Arc::new(LazyCopier::default());
        copier.pace(1);
        let (device, view) = LazyMemory::regions(data.len(), 0, &copier).unwrap();
        let (file, host) = (file_of(&data), region_of(&[0; 64]));
        let all = data.len() as u64;
        let pieces = vec![
            piece(&device, 0, &file, 0, 1000),
            piece(&host, 0, &file, 100, 64),
            piece(&device, 1000, &file, 1000, all - 1000),
        ];
        moved(&files, FileOp::Read, pieces).unwrap();
        assert!(content(&view) == data && content(&host) == data[100..164]);
        let target = file_of(&[]);
        moved(&files, FileOp::Write, vec![piece(&device, 1, &target, 0, all - 1)]).unwrap();
        assert!(content_of(&target) == data[1..]);
    }
}

/// A file system without room, in a mount namespace of a process of its own.
#[test]
fn a_full_file_system_is_named() {
    const FULL: &str = "WARPVERBS_TEST_FULL_FOLDER";
    let Some(folder) = std::env::var_os(FULL) else {
        let folder = tempfile::tempdir().unwrap();
        let script = "mount -t tmpfs -o size=256k none \"$1\" || exit 77
            exec \"$0\" --exact file::tests::a_full_file_system_is_named --nocapture";
        let out = std::process::Command::new("unshare")
            .args(["-rm", "sh", "-c", script])
            .args([std::env::current_exe().unwrap().as_os_str(), folder.path().as_os_str()])
            .env(FULL, folder.path())
            .output();
        let Ok(out) = out else { return println!("SKIPPED: no unshare") };
        let (text, errors) =
            (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        if !text.contains("running 1 test") {
            return println!("SKIPPED: nothing may be mounted: {errors}");
        }
        assert!(out.status.success() && text.contains("1 passed"), "{text}{errors}");
        return;
    };
    let memory = region_of(&[1; 1 << 20]);
    for files in all() {
        let path = std::path::Path::new(&folder).join("file");
        let file =
            File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        let pieces = (0..16).rev().map(|i| piece(&memory, i << 16, &file, i << 16, 1 << 16));
        let transfer = files.transfer(FileOp::Write, pieces.collect()).unwrap();
        transfer.post().unwrap();
        let error = done(&transfer).unwrap_err();
        assert!(error.to_string().ends_with("ENOSPC: No space left on device"), "{error}");
        assert_eq!(error.status(), Status::Backend);
        // There is room for a part.
        file.set_len(0).unwrap();
        moved(&files, FileOp::Write, vec![piece(&memory, 0, &file, 0, 1 << 16)]).unwrap();
        assert_eq!(content_of(&file), [1; 1 << 16]);
    }
}

/// The same of a real one, whose copy engine pins what it copies through.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn memory_of_an_nvidia_gpu_goes_both_ways() {
    let mut rng = seeded();
    let gpu = warpverbs_gpu::open(GpuChoice::Cuda(0)).unwrap();
    let data = bytes(&mut rng, (64 << 20) + 13);
    for files in all() {
        let buffer = gpu.alloc(data.len(), Place::Device).unwrap();
        assert_ne!(buffer.region().kind(), Kind::Host);
        let (file, target) = (file_of(&data), file_of(&[]));
        let all = data.len() as u64;
        // Both halves at the same time, so that all threads have something to do.
        let halves = |file: &File| {
            [(0, all / 3), (all / 3, all - all / 3)].map(|(at, len)| {
                files.transfer(FileOp::Write, vec![piece(buffer.region(), at, file, at, len)])
            })
        };
        let began = Instant::now();
        let pieces = vec![piece(buffer.region(), 0, &file, 0, all)];
        moved(&files, FileOp::Read, pieces).unwrap();
        println!("{all} bytes from a file to the GPU: {:?}", began.elapsed());
        let mut seen = vec![0; data.len()];
        gpu.read(&buffer, 0, &mut seen).unwrap();
        assert!(seen == data);
        let began = Instant::now();
        let both = halves(&target).map(Result::unwrap);
        both.iter().for_each(|half| half.post().unwrap());
        both.iter().for_each(|half| done(half).unwrap());
        println!("{all} bytes from the GPU to a file: {:?}", began.elapsed());
        assert!(content_of(&target) == data);
        // Cancelled: what has begun ends, and the GPU's memory is as it was left.
        let transfer =
            files.transfer(FileOp::Read, vec![piece(buffer.region(), 0, &file, 0, all)]).unwrap();
        transfer.post().unwrap();
        transfer.cancel();
        assert_eq!(done(&transfer), Err(FileError::Cancelled));
        gpu.zero(&buffer).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        gpu.read(&buffer, 0, &mut seen).unwrap();
        assert!(seen.iter().all(|&byte| byte == 0), "bytes after the end");
    }
}

/// As long as it is in progress, and no longer.
#[test]
fn memory_is_kept_while_it_is_on_its_way() {
    let size = 32 << 20;
    let file = tempfile::tempfile().unwrap();
    file.set_len(size).unwrap();
    for files in all() {
        let memory = HostBuf::region(size as usize).unwrap();
        let weak = memory.downgrade();
        let piece = piece(&memory, 0, &file, 0, size);
        let transfer = files.transfer(FileOp::Read, vec![piece]).unwrap();
        transfer.post().unwrap();
        done(&transfer).unwrap();
        transfer.post().unwrap();
        drop(memory);
        transfer.cancel();
        let result = done(&transfer);
        assert!(result.is_ok() || result == Err(FileError::Cancelled), "{result:?}");
        assert!(weak.upgrade().is_none(), "memory is kept after the end");
        let gone = FileError::Gone { piece: 0 };
        assert_eq!((transfer.post(), gone.status()), (Err(gone.clone()), Status::NotFound));
        assert_eq!(transfer.poll(), Some(Err(gone)));
    }
}

/// In a process of its own, where nobody else opens files and starts threads.
#[test]
fn nothing_is_left_of_transfers() {
    const ALONE: &str = "WARPVERBS_TEST_FILES_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let out = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "file::tests::nothing_is_left_of_transfers", "--nocapture"])
            .env(ALONE, "1")
            .output()
            .unwrap();
        let (text, errors) =
            (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success() && text.contains("1 passed"), "{text}{errors}");
        return;
    }
    let count = |folder| std::fs::read_dir(folder).unwrap().count();
    let state = || (count("/proc/self/fd"), count("/proc/self/task"));
    let (memory, target) = (region_of(&[7; 100_000]), file_of(&[]));
    let before = state();
    for engine in [FileEngine::Threads, FileEngine::Auto, FileEngine::Ring] {
        let files = Files::with(engine);
        println!("{}", files.explain());
        if files.explain().starts_with("nobody") {
            continue;
        }
        let started = state();
        let pieces = |at: u64| vec![piece(&memory, at, &target, at, 100)];
        let transfers: Vec<_> =
            (0..1000).map(|at| files.transfer(FileOp::Write, pieces(at)).unwrap()).collect();
        // One descriptor for all of them, and no thread before one is posted.
        assert_eq!(state(), (started.0 + 1, before.1));
        transfers.iter().for_each(|transfer| transfer.post().unwrap());
        drop(files);
        for transfer in &transfers {
            done(transfer).unwrap();
        }
        assert!(state().1 > before.1);
        drop(transfers);
        let asked = Instant::now();
        // A thread that was joined is in the list for a moment more.
        while state() != before {
            assert!(asked.elapsed() < LONG, "{:?} after {before:?}", state());
            std::thread::yield_now();
        }
    }
    assert_eq!(content_of(&target), [7; 1099]);
}

#[test]
fn what_is_known_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file with a space");
    std::fs::write(&path, [1; 1234]).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    file.set_modified(std::time::UNIX_EPOCH + Duration::from_secs(1_700_000_000)).unwrap();
    let bytes = path.as_os_str().as_encoded_bytes();
    let info = Files::query(bytes).unwrap();
    assert_eq!((info.size, info.mtime, info.mode & 0o170_000), (1234, 1_700_000_000, 0o100_000));
    assert_eq!(Files::query_descriptor(file.as_raw_fd()), Ok(info));
    let mode = info.mode.to_string();
    let entries = [("size", "1234"), ("mode", &mode), ("mtime", "1700000000")];
    assert_eq!(info.entries(), entries.map(|(name, text)| (name, text.to_owned())));
    assert_eq!(Files::query(&[bytes, b"2"].concat()), None);
    assert_eq!((Files::query(b""), Files::query(b"with\0zero")), (None, None));
}

#[test]
fn paths_of_registrations_are_opened_as_they_say() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a:b");
    let meta = |modes: &str| [modes.as_bytes(), b":", path.as_os_str().as_encoded_bytes()].concat();
    let files = Files::start();
    let missing = FilePath::parse(&meta("rw")).unwrap().open().unwrap_err();
    assert_eq!(missing.status(), Status::NotFound);
    let created = FilePath::parse(&meta("rw,sync,create")).unwrap().open().unwrap();
    let flags = nix::fcntl::fcntl(&created, nix::fcntl::FcntlArg::F_GETFL).unwrap();
    assert!(OFlag::from_bits_retain(flags).contains(OFlag::O_SYNC | OFlag::O_RDWR));
    let created = File::from(created);
    let memory = region_of(b"bytes");
    moved(&files, FileOp::Write, vec![piece(&memory, 0, &created, 2, 5)]).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"\0\0bytes");
    let read_only = File::from(FilePath::parse(&meta("ro")).unwrap().open().unwrap());
    let refused = files.transfer(FileOp::Write, vec![piece(&region_of(b"b"), 0, &read_only, 0, 1)]);
    assert!(matches!(refused, Err(FileError::Access { .. })));
    for other in ["", "ro", "ro:", "wo:/x", "rw,fast:/x", "/path/to:file", ":/x", "RO:/x"] {
        assert_eq!(FilePath::parse(other.as_bytes()), None, "{other}");
    }
}
