//! Whether a thread is in a call of ours, whose own calls go to the C library as they are.

use nix::errno::Errno as Error;
use std::cell::Cell;
use std::ffi::c_int;

/// How the name of a NIC begins here. A program that has software NICs of its own names them as the device.
pub(crate) const NIC: &str = "run-";
/// How the names of threads of NICs and their links begin.
const THREADS: [&str; 2] = ["nic-run-", "nic-port-"];

thread_local! {
    /// The NIC's thread, which may hold what a call of the program waits for, is always inside.
    static INSIDE: Cell<bool> = Cell::new(is_nics_own());
}

/// Whether this is a thread of a NIC or its link, by its name.
fn is_nics_own() -> bool {
    let mut name = [0u8; 16];
    // SAFETY: room for a name, which has at most 16 bytes.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    THREADS.iter().any(|own| name.starts_with(own.as_bytes()))
}

unsafe extern "C" {
    /// The C library's; the crate `libc` does not have it.
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// `PTHREAD_CANCEL_DISABLE`.
const CANCEL_DISABLE: c_int = 1;

/// The thread's cancellation state from now on, and the one before.
fn cancel_state(state: c_int) -> c_int {
    let mut old = 0;
    // SAFETY: room for a state.
    unsafe { pthread_setcancelstate(state, &mut old) };
    old
}

/// Runs `work`, during which this thread's calls go to the C library as they are. `None` if it does
/// so already. The thread is not cancelled meanwhile, and the program's `errno` is as before: many a
/// program reads it after it has closed a file.
pub(crate) fn inside<T>(work: impl FnOnce() -> T) -> Option<T> {
    struct Leave(Error, c_int);
    impl Drop for Leave {
        fn drop(&mut self) {
            cancel_state(self.1);
            INSIDE.with(|inside| inside.set(false));
            self.0.set();
        }
    }
    // In a thread that ends, calls go to the C library as well.
    if INSIDE.try_with(|inside| inside.replace(true)).unwrap_or(true) {
        return None;
    }
    let _leave = Leave(Error::last(), cancel_state(CANCEL_DISABLE));
    Some(work())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn threads_of_the_program_are_not_taken_for_those_of_our_nics() {
        let is_outside = |name: &str| {
            let thread = thread::Builder::new().name(name.to_owned());
            thread.spawn(|| inside(|| ()).is_some()).unwrap().join().unwrap()
        };
        for name in ["nic-mlx5_0", "nic-bnxt_re0", "nic-ionic_0", "worker"] {
            assert!(is_outside(name), "{name}");
        }
        // Names of threads have 15 bytes.
        for device in ["mlx5_0", "bnxt_re0", "ionic_0"] {
            assert!(!is_outside(&format!("nic-{NIC}{device}")[..15.min(8 + device.len())]));
        }
    }
}
