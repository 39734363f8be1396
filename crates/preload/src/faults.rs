//! SIGSEGV and SIGBUS of the NIC's own accesses to memory that the program has unmapped, and SIGBUS of stores
//! to doorbell pages.
//!
//! The handler stands in front of the program's. A signal that no access of the NIC's raised goes
//! to the program's handler, or has the effect that it has without one. `sigaction` and `signal`
//! are answered as if the NIC's handler were not there.

use crate::bells;
use crate::real::Real;
use std::ffi::{c_int, c_void};
use std::mem::{MaybeUninit, transmute};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const SIGNALS: [c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];
/// `si_code` of SIGBUS: behind the end of a file.
const BUS_ADRERR: c_int = 2;
/// Whether the handler is in place.
static INSTALLED: AtomicBool = AtomicBool::new(false);
/// The program's own handlers, each in one word, because a handler reads it at any time.
static PROGRAM: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Flags of the program's that the kernel does not get: its handler takes three arguments; it is
/// for one signal only. Addresses of programs are below 2^57.
const SIGINFO: u64 = 1 << 62;
const RESETHAND: u64 = 1 << 63;

fn pack(action: &libc::sigaction) -> u64 {
    let flag = |flag, bit| if action.sa_flags & flag == 0 { 0 } else { bit };
    let flags = flag(libc::SA_SIGINFO, SIGINFO) | flag(libc::SA_RESETHAND, RESETHAND);
    action.sa_sigaction as u64 | flags
}

/// Makes of the action that the kernel has the one that the program gave.
fn unpack(word: u64, action: &mut libc::sigaction) {
    let flag = |bit, flag| if word & bit == 0 { 0 } else { flag };
    action.sa_sigaction = (word & !(SIGINFO | RESETHAND)) as usize;
    action.sa_flags &= !(libc::SA_SIGINFO | libc::SA_RESETHAND);
    action.sa_flags |= flag(SIGINFO, libc::SA_SIGINFO) | flag(RESETHAND, libc::SA_RESETHAND);
}

/// Our handler, with the program's mask and flags.
fn ours(program: &libc::sigaction) -> libc::sigaction {
    let mut action = *program;
    action.sa_sigaction = on_fault as *const () as usize;
    action.sa_flags = (program.sa_flags & !libc::SA_RESETHAND) | libc::SA_SIGINFO;
    action
}

/// The C library's `sigaction`.
fn kernel(signal: c_int, new: Option<&libc::sigaction>, old: *mut libc::sigaction) -> c_int {
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: null or a sigaction each.
    unsafe { (Real::get().sigaction)(signal, new, old) }
}

/// Puts the handler in place, once.
pub(crate) fn install() {
    if !cfg!(target_arch = "x86_64") || INSTALLED.swap(true, Ordering::AcqRel) {
        return;
    }
    for (signal, program) in SIGNALS.iter().zip(&PROGRAM) {
        let mut old = MaybeUninit::uninit();
        if kernel(*signal, None, old.as_mut_ptr()) == 0 {
            // SAFETY: the call succeeded, so it has written all of it.
            let old = unsafe { old.assume_init() };
            program.store(pack(&old), Ordering::Release);
            kernel(*signal, Some(&ours(&old)), ptr::null_mut());
        }
    }
}

/// Signals that tell of what the thread itself has just done: it cannot wait for them.
const OWN_FAULTS: [c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Runs `work` without the program's signal handlers, as a system call would run: they are called
/// after it, and may jump out of it as little. Threads that it starts never run them: they are the
/// program's, and a program may wait for a signal that all threads of its own have blocked.
pub(crate) fn masked<T>(work: impl FnOnce() -> T) -> T {
    struct Restore(libc::sigset_t);
    impl Drop for Restore {
        fn drop(&mut self) {
            // SAFETY: a set that the kernel has written.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) };
        }
    }
    let mut set = MaybeUninit::uninit();
    let mut before = MaybeUninit::uninit();
    // SAFETY: room for a set.
    unsafe { libc::sigfillset(set.as_mut_ptr()) };
    for signal in OWN_FAULTS {
        // SAFETY: an initialised set.
        unsafe { libc::sigdelset(set.as_mut_ptr(), signal) };
    }
    // SAFETY: an initialised set, and room for another.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, set.as_ptr(), before.as_mut_ptr()) };
    // SAFETY: the call above has written it.
    let _restore = Restore(unsafe { before.assume_init() });
    work()
}

/// The program's `sigaction`; `None` if it is none of ours.
///
/// # Safety
/// As for the C library's.
pub(crate) unsafe fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> Option<c_int> {
    let at = SIGNALS.iter().position(|known| *known == signal)?;
    if !INSTALLED.load(Ordering::Acquire) {
        return None;
    }
    // SAFETY: null or a sigaction, as the caller says.
    let new = unsafe { new.as_ref() };
    let word = match new {
        Some(new) => PROGRAM[at].swap(pack(new), Ordering::AcqRel),
        None => PROGRAM[at].load(Ordering::Acquire),
    };
    let done = kernel(signal, new.map(ours).as_ref(), old);
    // SAFETY: null or room for a sigaction, as the caller says; the call has written it.
    if let Some(old) = unsafe { old.as_mut() } {
        unpack(word, old);
    }
    Some(done)
}

#[cfg(target_arch = "x86_64")]
fn resume(context: *mut c_void) -> bool {
    let context = context.cast::<libc::ucontext_t>();
    // SAFETY: the kernel gives a handler with SA_SIGINFO the context of its thread.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    let at = &mut registers[libc::REG_RIP as usize];
    let next = warpverbs_mem::resume_at(*at as usize);
    if let Some(next) = next {
        *at = next as i64;
    }
    next.is_some()
}

#[cfg(not(target_arch = "x86_64"))]
fn resume(_: *mut c_void) -> bool {
    false
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a handler with SA_SIGINFO the signal's circumstances.
    let about = unsafe { &*info };
    let code = about.si_code;
    if signal == libc::SIGBUS && code == BUS_ADRERR {
        // SAFETY: such a signal has an address.
        let address = unsafe { about.si_addr() } as u64;
        // SAFETY: the context of this thread, as the kernel gives it.
        if unsafe { bells::rang(address, context) } {
            return;
        }
    }
    if resume(context) {
        return;
    }
    let Some(at) = SIGNALS.iter().position(|known| *known == signal) else { return };
    let word = PROGRAM[at].load(Ordering::Acquire);
    if word & RESETHAND != 0 {
        PROGRAM[at].store(libc::SIG_DFL as u64, Ordering::Release);
    }
    let sent = code <= 0;
    let handler = (word & !(SIGINFO | RESETHAND)) as usize;
    match handler {
        libc::SIG_IGN if sent => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: all zeros is the default action.
            let default = unsafe { MaybeUninit::<libc::sigaction>::zeroed().assume_init() };
            kernel(signal, Some(&default), ptr::null_mut());
            // A fault comes again by itself; it has to be sent again where it was sent.
            if sent {
                // SAFETY: raise may be called in a handler.
                unsafe { libc::raise(signal) };
            }
        }
        _ if word & SIGINFO != 0 => {
            // SAFETY: the program gave it as a handler of three arguments.
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                unsafe { transmute(handler) };
            handler(signal, info, context);
        }
        _ => {
            // SAFETY: the program gave it as a handler of one argument.
            let handler: extern "C" fn(c_int) = unsafe { transmute(handler) };
            handler(signal);
        }
    }
}
