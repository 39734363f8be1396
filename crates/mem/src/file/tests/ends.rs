//! How batches and queues end: all of it, and nothing touches memory afterwards.

use super::*;
use std::time::Instant;

/// Threads of this process that move bytes of files, of all queues.
fn threads() -> usize {
    let all = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
    };
    all.filter_map(name).filter(|name| name.trim() == "warpverbs-file").count()
}

/// Descriptors of this process.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// A cancelled and a dropped handle: no byte lands afterwards, and neither file nor memory is held.
#[test]
fn cancelled_batches_end_and_touch_nothing_afterwards() {
    let mut rng = seeded();
    let size = 32 << 20;
    let data = region_of(&vec![1; size]);
    let mut files = vec![Arc::new(OwnedFd::from(tempfile()))];
    // Its operations wait for a device, where they can be called back.
    files.extend(direct_file());
    for (file, engine) in
        files.iter().flat_map(|file| engines().into_iter().map(move |e| (file, e)))
    {
        write_file(file.as_fd(), 0, &data, 0, size as u64).unwrap();
        let queue = FileQueue::new(engine);
        let cut = (0..16).filter(|round| is_cut(&mut rng, &queue, file, size, round % 2 == 0));
        assert!(cut.count() > 0, "{engine:?}: no batch was cut");
    }
}

/// Reads all of the file, and cancels that or drops it. Whether bytes are missing.
fn is_cut(
    rng: &mut StdRng,
    queue: &FileQueue,
    file: &Arc<OwnedFd>,
    size: usize,
    is_cancelled: bool,
) -> bool {
    const BLOCK: u64 = 65536;
    let memory = HostBuf::region(size).unwrap();
    let held = Arc::new(());
    let owner = (memory.clone(), held.clone());
    // SAFETY: the region that is dropped with it has the bytes.
    let shared = unsafe { Region::foreign(memory.addr(), size, owner) };
    let requests: Arc<[_]> = (0..size as u64 / BLOCK)
        .map(|i| request(FileOp::Read, &shared, i * BLOCK, file, i * BLOCK, BLOCK))
        .collect();
    drop(shared);
    let users = || (Arc::strong_count(&held), Arc::strong_count(file));
    let batch = queue.submit(requests).unwrap();
    std::thread::sleep(Duration::from_micros(rng.random_range(0..2000)));
    if is_cancelled {
        batch.cancel();
        let result = done(&batch);
        if let Err(failure) = &result {
            assert_eq!(failure.error, FileIoError::Stopped);
        } else {
            assert!(content(&memory).iter().all(|&byte| byte == 1));
        }
        // Over, before the handle is dropped.
        assert_eq!((users(), batch.poll()), ((1, 1), Some(result)));
    }
    drop(batch);
    assert_eq!(users(), (1, 1));
    let is_cut = content(&memory).contains(&0);
    memory.fill(0, size, 0xA5).unwrap();
    std::thread::sleep(Duration::from_millis(2));
    assert!(content(&memory).iter().all(|&byte| byte == 0xA5), "bytes after the end");
    is_cut
}

/// In a process of its own, where nobody else opens files and starts threads.
#[test]
fn a_queue_that_is_dropped_ends_its_batches_and_threads() {
    const ALONE: &str = "WARPVERBS_TEST_FILE_QUEUE_ALONE";
    if std::env::var_os(ALONE).is_none() {
        let own = "file::tests::ends::a_queue_that_is_dropped_ends_its_batches_and_threads";
        let out = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", own, "--nocapture"])
            .env(ALONE, "1")
            .output()
            .unwrap();
        let (text, errors) =
            (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(out.status.success() && text.contains("1 passed"), "{text}{errors}");
        return;
    }
    let size = 32 << 20;
    let file = tempfile();
    file.set_len(size).unwrap();
    let file = Arc::new(OwnedFd::from(file));
    let engines = engines();
    let before = (threads(), descriptors());
    assert_eq!(before.0, 0);
    for engine in engines {
        for round in 0..8 {
            let (queue, memory) = (FileQueue::new(engine), HostBuf::region(size as usize).unwrap());
            let requests: Arc<[_]> = [request(FileOp::Read, &memory, 0, &file, 0, size)].into();
            let batches: Vec<_> = (0..8).map(|_| queue.submit(requests.clone()).unwrap()).collect();
            drop(requests);
            if round % 2 == 0 {
                done(&batches[0]).unwrap();
                // It has its name since it began.
                assert!(threads() > 0);
            }
            drop(queue);
            for batch in &batches {
                let result = batch.poll().expect("a batch without a queue is over");
                assert!(
                    result.is_ok()
                        || result.is_err_and(|failure| failure.error == FileIoError::Stopped)
                );
            }
            assert_eq!(Arc::strong_count(&file), 1);
            drop(batches);
            // A thread that was joined is in the list for a moment more.
            let asked = Instant::now();
            while (threads(), descriptors()) != before {
                assert!(
                    asked.elapsed() < LONG,
                    "{:?} after {before:?}",
                    (threads(), descriptors())
                );
                std::thread::yield_now();
            }
        }
    }
}

/// A system may forbid io_uring: then threads do it, and say why.
#[test]
fn without_io_uring_threads_do_it() {
    let ran = std::thread::spawn(|| {
        if !crate::testing::forbid_io_uring() {
            return println!("no filter may be set here");
        }
        let queue = FileQueue::new(FileEngine::Auto);
        let why =
            "up to 16 threads, not io_uring: io_uring_setup: Operation not permitted (os error 1)";
        assert_eq!(queue.explain(), why);
        let (file, memory) = (file_of(&[3; 5000]), region_of(&[0; 5000]));
        done(&queue.submit([request(FileOp::Read, &memory, 0, &file, 0, 5000)].into()).unwrap())
            .unwrap();
        assert_eq!(content(&memory), [3; 5000]);
        let none = FileQueue::new(FileEngine::Ring).submit(Arc::new([])).unwrap_err();
        assert!(none.to_string().starts_with("io_uring cannot be had: io_uring_setup: "), "{none}");
    });
    ran.join().unwrap();
}

/// The ring is made, and then its thread may not use it.
#[test]
fn a_ring_that_fails_ends_its_batches() {
    let ran = std::thread::spawn(|| {
        let queue = FileQueue::new(FileEngine::Ring);
        if queue.submit(Arc::new([])).is_err() || !crate::testing::forbid_io_uring_use() {
            return println!("no io_uring, or no filter may be set here");
        }
        let (file, memory) = (file_of(&[3; 5000]), region_of(&[0; 5000]));
        for _ in 0..3 {
            let requests = [request(FileOp::Read, &memory, 0, &file, 0, 5000)];
            let failure = done(&queue.submit(requests.into()).unwrap()).unwrap_err();
            assert_eq!(failure.to_string(), "io_uring failed: EPERM: Operation not permitted");
            assert_eq!((Arc::strong_count(&file), content(&memory)), (1, vec![0; 5000]));
        }
        let auto = FileQueue::new(FileEngine::Auto).explain();
        let why = "not io_uring: io_uring_enter: Operation not permitted (os error 1)";
        assert!(auto.ends_with(why), "{auto}");
    });
    ran.join().unwrap();
}

/// The memory of a batch may own the queue: its last part then ends the queue, on a thread of its own.
#[test]
fn memory_that_owns_its_queue_ends_it() {
    struct Owner {
        _memory: Region,
        _queue: Arc<FileQueue>,
        _ended: Arc<()>,
    }
    for engine in engines() {
        let (queue, memory, ended) =
            (Arc::new(FileQueue::new(engine)), region_of(&[0; 4096]), Arc::new(()));
        let owner = Owner { _memory: memory.clone(), _queue: queue.clone(), _ended: ended.clone() };
        // SAFETY: the owner has the bytes.
        let owning = unsafe { Region::foreign(memory.addr(), 4096, owner) };
        let file = file_of(&[5; 4096]);
        let batch =
            queue.submit([request(FileOp::Read, &owning, 0, &file, 0, 4096)].into()).unwrap();
        drop((queue, owning));
        let asked = Instant::now();
        while Arc::strong_count(&ended) > 1 {
            assert!(asked.elapsed() < LONG, "the queue was not ended");
            std::thread::yield_now();
        }
        done(&batch).unwrap();
        assert_eq!(content(&memory), [5; 4096]);
    }
}

/// The owner of memory panics when it is let go, on a thread that others need.
#[test]
fn an_owner_that_panics_ends_no_queue() {
    struct Panics(Region, bool);
    impl Drop for Panics {
        fn drop(&mut self) {
            assert!(!self.1, "an owner that panics, as this test wants it");
        }
    }
    for engine in engines() {
        let (queue, memory) = (FileQueue::new(engine), region_of(&[0; 4096]));
        let file = file_of(&[5; 4096]);
        for round in 0..20 {
            let owner = Panics(memory.clone(), true);
            // SAFETY: the owner has the bytes.
            let owned = unsafe { Region::foreign(owner.0.addr(), 4096, owner) };
            let requests = [request(FileOp::Read, &owned, 0, &file, 0, 4096)].into();
            drop(owned);
            let batch = queue.submit(requests).unwrap();
            done(&batch).unwrap();
            assert_eq!((content(&memory), Arc::strong_count(&file)), (vec![5; 4096], 1), "{round}");
            memory.fill(0, 4096, 0).unwrap();
        }
    }
}
