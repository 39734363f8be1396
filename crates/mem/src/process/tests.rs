use super::*;
use crate::{HostBuf, Proof, map_sealed, sealed_memfd};
use memmap2::MmapOptions;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

const PROOF: [u8; 32] = *b"thirty-two bytes that are random";
const LEN: usize = 3 << 20;

/// The part of another process: prints where its memory and its proof are and, asked by a line,
/// its sum.
#[test]
fn other_process() {
    if std::env::var_os("MEM_OTHER_PROCESS").is_none() {
        return;
    }
    if let Ok(user) = std::env::var("MEM_OTHER_USER") {
        let user = user.parse().unwrap();
        // SAFETY: takes numbers.
        assert_eq!(unsafe { libc::setresuid(user, user, user) }, 0);
    }
    let memory = HostBuf::region(LEN).unwrap();
    memory.write(0, &PROOF).unwrap();
    let proof = Proof::new(&PROOF).unwrap();
    say(memory.addr());
    say_place(proof.place());
    std::io::stdin().read_exact(&mut [0]).unwrap();
    let mut bytes = vec![0; LEN];
    memory.read(0, &mut bytes).unwrap();
    say(sum(&bytes));
}

fn say(number: u64) {
    println!("\n> {number}");
}

fn say_place(place: ProofPlace) {
    for number in [place.proof, place.word, place.thread.into()] {
        say(number);
    }
}

/// Another process, as one of these tests: its variable says what it is to be.
fn spawn(test: &str, variable: (&str, &str)) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("process::tests::{test}"), "--nocapture"])
        .envs([variable, ("MEM_OTHER_PROCESS", "1")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn place(child: &mut Child) -> ProofPlace {
    let [proof, word, thread] = std::array::from_fn(|_| answer(child));
    ProofPlace { proof, word, thread: thread.try_into().unwrap() }
}

fn start() -> (Child, u64, ProofPlace) {
    let mut child = spawn("other_process", ("MEM_OTHER_PROCESS", "1"));
    let base = answer(&mut child);
    let place = place(&mut child);
    (child, base, place)
}

fn stop(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn ask(child: &mut Child) {
    child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(1, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

fn answer(child: &mut Child) -> u64 {
    let mut text = String::new();
    let mut byte = [0];
    let out = child.stdout.as_mut().unwrap();
    loop {
        out.read_exact(&mut byte).unwrap();
        text.push(char::from(byte[0]));
        match text.strip_suffix('\n').and_then(|line| line.rsplit_once("> ")) {
            Some((_, number)) => return number.parse().unwrap(),
            None => continue,
        }
    }
}

#[test]
fn bytes_go_to_another_process_and_back() {
    let (mut child, base, place) = start();
    let process = Process::open(child.id(), place.thread).unwrap();
    let pid = child.id();
    let beside = ProofPlace { proof: place.proof + 1, ..place };
    let wrong = process.prove(&beside, &PROOF, 7);
    assert_eq!(wrong, Err(ProcessError::WrongProof { pid }));
    // The same bytes, where any process that may write the memory could have put them.
    let planted = ProofPlace { proof: base, ..place };
    let refused = process.prove(&planted, &PROOF, 7);
    assert_eq!(refused, Err(ProcessError::SharedProof { pid }));
    let no_word = process.prove(&ProofPlace { word: place.proof, ..place }, &PROOF, 7);
    assert_eq!(no_word, Err(ProcessError::WriteRefused { pid, errno: Errno::EFAULT }));
    process.prove(&place, &PROOF, 7).unwrap();

    let own = HostBuf::region(LEN).unwrap();
    let mut expected = vec![0; LEN];
    expected[..PROOF.len()].copy_from_slice(&PROOF);
    // More pieces than one call takes, of odd lengths, in reverse.
    let piece = |i: u64| ProcessPiece { offset: i * 1000, remote: base + 999 * i, len: 1 + i };
    let pieces: Vec<_> = (1..=600).rev().map(piece).collect();
    for piece in &pieces {
        let bytes: Vec<u8> = (0..piece.len).map(|i| (i * 7 + piece.offset) as u8).collect();
        own.write(piece.offset, &bytes).unwrap();
    }
    for piece in &pieces {
        let mut bytes = vec![0; piece.len as usize];
        own.read(piece.offset, &mut bytes).unwrap();
        let at = (piece.remote - base) as usize;
        expected[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    process.copy(Direction::Write, &own, &pieces).unwrap();

    let back = HostBuf::region(LEN).unwrap();
    let whole = ProcessPiece { offset: 0, remote: base, len: LEN as u64 };
    process.copy(Direction::Read, &back, &[whole]).unwrap();
    let mut seen = vec![0; LEN];
    back.read(0, &mut seen).unwrap();
    assert!(seen == expected);

    let outside = ProcessPiece { offset: 8, ..whole };
    let refused = process.copy(Direction::Read, &back, &[outside]);
    assert!(matches!(refused, Err(ProcessError::Memory(MemError::OutOfBounds { .. }))));
    let unmapped = ProcessPiece { offset: 0, remote: 8, len: 8 };
    let refused = process.copy(Direction::Write, &own, &[unmapped]);
    assert!(matches!(refused, Err(ProcessError::Refused { errno: Errno::EFAULT, .. })));

    ask(&mut child);
    assert_eq!(answer(&mut child), sum(&expected));
    assert!(child.wait().unwrap().success());
    let gone = process.copy(Direction::Read, &back, &[whole]);
    assert_eq!(gone, Err(ProcessError::Ended { pid }));
}

#[cfg(feature = "test-utils")]
#[test]
fn a_process_that_may_be_read_and_not_written_is_refused_with_that_reason() {
    let (child, base, place) = start();
    let pid = child.id();
    let process = Process::open(pid, place.thread).unwrap();
    process.prove(&place, &PROOF, 7).unwrap();
    let limited = || {
        if !crate::testing::forbid_process_writes() {
            return eprintln!("SKIPPED: this system takes no filter of calls");
        }
        let errno = Errno::EPERM;
        let refused = process.prove(&place, &PROOF, 8);
        assert_eq!(refused, Err(ProcessError::WriteRefused { pid, errno }));
        let memory = HostBuf::region(64).unwrap();
        let piece = ProcessPiece { offset: 0, remote: base, len: 64 };
        process.copy(Direction::Read, &memory, &[piece]).unwrap();
        let refused = process.copy(Direction::Write, &memory, &[piece]);
        assert_eq!(refused, Err(ProcessError::Refused { pid, errno }));
    };
    std::thread::scope(|scope| scope.spawn(limited).join().unwrap());
    process.prove(&place, &PROOF, 9).unwrap();
    stop(child);
}

/// Makes the next process get the number `pid`, where that is allowed.
fn next_is(pid: u32) -> bool {
    std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).is_ok()
}

#[test]
fn the_number_of_an_ended_process_is_nobody_even_when_another_has_it() {
    let (mut child, base, place) = start();
    let process = Process::open(child.id(), place.thread).unwrap();
    process.prove(&place, &PROOF, 7).unwrap();
    let pid = child.id();
    let memory = HostBuf::region(64).unwrap();
    memory.write(0, &[0x5a; 64]).unwrap();
    let piece = ProcessPiece { offset: 0, remote: base, len: 64 };
    child.kill().unwrap();
    child.wait().unwrap();
    for _ in 0..100 {
        // The stranger is the same program, without address randomisation of its own: what is
        // looked at is that nothing is said to be done.
        if !next_is(pid) {
            eprintln!("SKIPPED: this process may not choose numbers of others");
            break;
        }
        let (mut other, base, place) = start();
        let same = other.id() == pid;
        if same {
            let piece = ProcessPiece { remote: base + 4096, ..piece };
            let ended = Err(ProcessError::Ended { pid });
            assert_eq!(process.copy(Direction::Write, &memory, &[piece]), ended);
            assert_eq!(process.prove(&place, &PROOF, 7), ended);
            // It has that memory, so the kernel would have written there.
            let again = Process::open(pid, place.thread).unwrap();
            let back = HostBuf::region(64).unwrap();
            again.copy(Direction::Read, &back, &[piece]).unwrap();
            let mut bytes = [1; 64];
            back.read(0, &mut bytes).unwrap();
            assert_eq!(bytes, [0; 64]);
        }
        other.kill().unwrap();
        other.wait().unwrap();
        if same {
            return;
        }
    }
    let ended = process.copy(Direction::Write, &memory, &[piece]);
    assert_eq!(ended, Err(ProcessError::Ended { pid }));
}

#[test]
fn the_own_process_is_refused_by_the_number_of_any_thread() {
    for pid in [std::process::id(), nix::unistd::gettid().as_raw().unsigned_abs()] {
        assert_eq!(Process::open(pid, 1).err(), Some(ProcessError::Own { pid }));
    }
    assert!(Process::open(u32::MAX, 1).is_err());
}

/// Where programs that follow each other in one process have memory.
const SAME_PLACE: usize = 0x2a_0000_0000;
const SAME_LEN: usize = 64 << 10;

/// The part of a process that executes another program, which has memory where the first had it.
#[test]
fn other_program() {
    let Ok(which) = std::env::var("MEM_OTHER_PROGRAM") else { return };
    let len = SAME_LEN.try_into().unwrap();
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_FIXED_NOREPLACE;
    // SAFETY: a fresh mapping that takes no other's place.
    let at = unsafe { mmap_anonymous(SAME_PLACE.try_into().ok(), len, access, flags) }.unwrap();
    // The thread that leaves the proof lives until the process ends, or executes the other program.
    let (send, proof) = mpsc::channel();
    std::thread::spawn(move || {
        send.send(Proof::new(&PROOF).unwrap()).unwrap();
        loop {
            std::thread::park();
        }
    });
    let proof = proof.recv().unwrap();
    say_place(proof.place());
    std::io::stdin().read_exact(&mut [0]).unwrap();
    if which == "first" {
        let error = Command::new("/proc/self/exe")
            .args(std::env::args_os().skip(1))
            .env("MEM_OTHER_PROGRAM", "second")
            .exec();
        panic!("{error}");
    }
    // SAFETY: mapped above, and for good; other processes write there only before they ask.
    let bytes = unsafe { std::slice::from_raw_parts(at.cast::<u8>().as_ptr(), SAME_LEN) };
    say(sum(bytes));
}

#[test]
fn a_program_that_the_process_executes_is_not_taken_for_the_first() {
    let mut child = spawn("other_program", ("MEM_OTHER_PROGRAM", "first"));
    let (pid, first) = (child.id(), place(&mut child));
    let process = Process::open(pid, first.thread).unwrap();
    process.prove(&first, &PROOF, 7).unwrap();
    let own = HostBuf::region(SAME_LEN).unwrap();
    let bytes: Vec<u8> =
        std::iter::repeat_with(|| rand::random_range(1..=255)).take(SAME_LEN).collect();
    own.write(0, &bytes).unwrap();
    let whole = ProcessPiece { offset: 0, remote: SAME_PLACE as u64, len: SAME_LEN as u64 };
    process.copy(Direction::Write, &own, &[whole]).unwrap();
    ask(&mut child);
    let second = place(&mut child);
    let ended = Err(ProcessError::Ended { pid });
    // The thread as if it had just been seen to run: the kernel itself must find nobody.
    process.seen.store(u64::MAX, Ordering::Relaxed);
    assert_eq!(process.copy(Direction::Write, &own, &[whole]), ended);
    assert_eq!(process.copy(Direction::Read, &own, &[whole]), ended);
    process.seen.store(0, Ordering::Relaxed);
    assert_eq!(process.check(), ended);
    assert_eq!(process.prove(&first, &PROOF, 7), ended);
    // The second program is there and has that memory, as it was.
    let again = Process::open(pid, second.thread).unwrap();
    again.copy(Direction::Read, &own, &[whole]).unwrap();
    ask(&mut child);
    assert_eq!(answer(&mut child), sum(&[0; SAME_LEN]));
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_process_is_not_reached_by_its_first_thread_nor_by_one_of_another_process() {
    let (child, _, place) = start();
    let (other, _, others) = start();
    let pid = child.id();
    assert_eq!(Process::open(pid, pid).err(), Some(ProcessError::FirstThread { pid }));
    let errno = Errno::ENOENT;
    for thread in [others.thread, other.id(), 0, u32::MAX] {
        assert_eq!(Process::open(pid, thread).err(), Some(ProcessError::Refused { pid, errno }));
    }
    assert!(Process::open(pid, place.thread).unwrap().is_by(place.thread));
    stop(child);
    stop(other);
}

/// The part of a process that maps a file of another.
#[test]
fn other_reader() {
    let Ok(path) = std::env::var("MEM_OTHER_FILE") else { return };
    let file = File::open(path).unwrap();
    let shared = MmapOptions::new().len(4096).map_raw_read_only(&file).unwrap();
    // SAFETY: nobody looks at the bytes as a slice.
    let private = unsafe { MmapOptions::new().len(4096).map_copy_read_only(&file) }.unwrap();
    say(shared.as_ptr() as u64);
    say(private.as_ptr() as u64);
    let proof = Proof::new(&PROOF).unwrap();
    say_place(proof.place());
    std::io::stdin().read_exact(&mut [0]).unwrap();
}

#[test]
fn a_proof_that_others_have_left_in_a_file_proves_nothing() {
    let file = sealed_memfd(4096).unwrap();
    map_sealed(&file, 4096).unwrap().write(0, &PROOF).unwrap();
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let mut child = spawn("other_reader", ("MEM_OTHER_FILE", &path));
    let planted = [answer(&mut child), answer(&mut child)];
    let (pid, place) = (child.id(), place(&mut child));
    let process = Process::open(pid, place.thread).unwrap();
    for proof in planted {
        let refused = process.prove(&ProofPlace { proof, ..place }, &PROOF, 7);
        assert_eq!(refused, Err(ProcessError::SharedProof { pid }));
    }
    stop(child);
}

/// Root may reach the processes of all users, and by that no peer's.
#[test]
fn processes_of_other_users_are_not_reached_by_privilege() {
    // SAFETY: takes nothing, and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        return eprintln!("SKIPPED: needs to be root");
    }
    let mut child = spawn("other_process", ("MEM_OTHER_USER", "65534"));
    let pid = child.id();
    let _base = answer(&mut child);
    let place = place(&mut child);
    assert_eq!(Process::open(pid, place.thread).err(), Some(ProcessError::OtherUser { pid }));
    assert!(!same_user(pid).unwrap() && same_user(std::process::id()).unwrap());
    stop(child);
}
