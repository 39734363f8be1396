//! Loads, stores and copies that survive memory which their owner has unmapped.
//!
//! A kernel pins what it registers. A NIC in the process of an unmodified program cannot: the
//! program may unmap or protect its memory, or truncate the file behind it, at any time. An access
//! then raises SIGSEGV or SIGBUS. As in a kernel's copies from user memory, every instruction here
//! that may fault has an entry in a table, with the place where it goes on after a fault; the
//! handler of the signals looks it up with [`resume_at`]. A path without faults costs nothing.
//!
//! Without the feature `fault-guard`, and on processors other than x86-64, these are plain atomic
//! accesses, and the code that makes a [`Region`](crate::Region) ensures that its memory stays mapped.

#[cfg(all(feature = "fault-guard", target_arch = "x86_64", not(miri)))]
#[path = "guarded/x86_64.rs"]
mod imp;
#[cfg(not(all(feature = "fault-guard", target_arch = "x86_64", not(miri))))]
#[path = "guarded/plain.rs"]
mod imp;

pub(crate) use imp::*;

/// Where the thread goes on that had a fault at the instruction `at`, if it was in an access to
/// registered memory. For a handler of SIGSEGV and SIGBUS; it only reads constants.
#[cfg(feature = "fault-guard")]
pub fn resume_at(at: usize) -> Option<usize> {
    imp::resume_at(at)
}

#[cfg(all(test, feature = "fault-guard", target_arch = "x86_64", not(miri)))]
mod tests {
    use crate::{CompletionRing, MemError, QueueRecord, Region, SendRing, copy};
    use crate::{HostBuf, Progress, resume_at};
    use std::ffi::{c_int, c_void};
    use std::ptr;

    const PAGE: usize = 4096;

    extern "C" fn on_fault(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
        let context = context.cast::<libc::ucontext_t>();
        // SAFETY: the kernel gives a handler with SA_SIGINFO the context of its thread.
        let registers = unsafe { &mut (*context).uc_mcontext.gregs };
        let at = &mut registers[libc::REG_RIP as usize];
        match resume_at(*at as usize) {
            Some(next) => *at = next as i64,
            None => std::process::abort(),
        }
    }

    /// Two pages whose second comes and goes.
    fn guarded_pages() -> Region {
        // SAFETY: all zeros is a sigaction.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        // SAFETY: the handler is async-signal-safe.
        assert_eq!(unsafe { libc::sigaction(libc::SIGSEGV, &action, ptr::null_mut()) }, 0);
        let (rights, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping.
        let at = unsafe { libc::mmap(ptr::null_mut(), 2 * PAGE, rights, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        // SAFETY: the first page stays mapped; accesses to the second are guarded.
        unsafe { Region::foreign(at as u64, 2 * PAGE, ()) }
    }

    fn protect(region: &Region, rights: c_int) {
        let second = (region.addr() + PAGE as u64) as *mut c_void;
        // SAFETY: a page of this test's own, accesses to which are guarded.
        assert_eq!(unsafe { libc::mprotect(second, PAGE, rights) }, 0);
    }

    #[test]
    fn accesses_to_memory_that_is_gone_fail() {
        let region = guarded_pages();
        let host = HostBuf::region(2 * PAGE).unwrap();
        host.fill(0, 2 * PAGE, 7).unwrap();
        let gone = |done: Result<(), MemError>, what: &str| {
            assert!(matches!(done, Err(MemError::Unmapped { .. })), "{what}: {done:?}");
        };
        protect(&region, libc::PROT_NONE);
        let edge = PAGE as u64;
        for len in [1, 2, 3, 4, 7, 8, 15, 16, 17, 64, 100, 1000, 1024, 3000] {
            // Wholly in the second page, and across the edge.
            for at in [edge, edge - len as u64 / 2] {
                let mut out = vec![0; len];
                gone(region.read(at, &mut out), &format!("read of {len} at {at}"));
                gone(region.write(at, &out), &format!("write of {len} at {at}"));
                gone(region.fill(at, len, 1), &format!("fill of {len} at {at}"));
                let copied = |done: Result<Progress, MemError>| done.map(drop);
                gone(copied(copy(&region, at, &host, 0, len)), &format!("{len} to {at}"));
                gone(copied(copy(&host, 0, &region, at, len)), &format!("{len} from {at}"));
            }
        }
        // Backwards.
        gone(copy(&region, edge, &region, edge - 8, 100).map(drop), "an overlapping copy");
        gone(region.update_u64(edge, |word| word + 1).map(drop), "an atomic of 8 bytes");
        gone(region.update_u32(edge + 4, |word| word + 1).map(drop), "an atomic of 4 bytes");
        gone(CompletionRing::new(&region, 7).map(drop), "a CQ");
        // Queues read as zero.
        let ring = SendRing::new(&region, 7).unwrap();
        let record = QueueRecord::new(&region.slice(edge, 8).unwrap()).unwrap();
        assert_eq!((ring.load(64), record.send(), record.receive()), ([0; 8], 0, 0));
        // Memory that may be read is.
        protect(&region, libc::PROT_READ);
        region.read(edge, &mut [1; 8]).unwrap();
        gone(region.write(edge, &[1; 8]), "a write to memory that may be read");
        gone(region.update_u64(edge, |word| word).map(drop), "an atomic there");
        protect(&region, libc::PROT_READ | libc::PROT_WRITE);
        region.write(edge, &5u64.to_ne_bytes()).unwrap();
        assert_eq!(region.update_u64(edge, |word| word + 1), Ok(5));
        assert_eq!(region.update_u32(edge, |word| word + 1), Ok(6));
        assert_eq!(ring.load(64)[0], 7);
    }

    #[test]
    fn other_instructions_are_not_resumed() {
        assert_eq!(resume_at(other_instructions_are_not_resumed as *const () as usize), None);
        assert_eq!(resume_at(0), None);
    }
}
