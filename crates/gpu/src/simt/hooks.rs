//! The functions that device code calls. Each runs on a lane's stack, and at most hands a
//! [`Request`] to the scheduler; none keeps anything with a destructor across that.

use super::abi::{LaneAbi, RawSite, tls};
use super::lane::{Call, LaneShared, Request};
use core::ffi::{c_char, c_void};

/// The lane that this runs on.
#[inline]
fn current<'lane>() -> &'lane LaneShared {
    let abi: *const LaneAbi = tls().current.get();
    assert!(!abi.is_null(), "a device function was called outside a kernel");
    // SAFETY: set by the scheduler to the first field of a `LaneShared` for as long as the lane
    // runs, and this runs on the lane.
    unsafe { &*abi.cast::<LaneShared>() }
}

/// Leaves the lane; returns when it has its next turn.
#[inline]
fn ask(request: Request) -> u64 {
    let yielder = current().yielder.get();
    // SAFETY: the lane's own yielder, set before the kernel was entered; it lives on this stack.
    unsafe { &*yielder }.suspend(request)
}

#[unsafe(no_mangle)]
extern "C" fn wv_simt_switch() {
    ask(Request::Switch);
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn wv_simt_pause(ns: u64, file: *const c_char, line: u32) {
    ask(Request::Pause { ns, site: RawSite { file, line } });
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn wv_simt_now_ns() -> u64 {
    // A loop that only looks at the clock must be switched, and under the virtual clock must see
    // time pass.
    let countdown = &tls().countdown;
    countdown.set(countdown.get() - 1);
    if countdown.get() == 0 {
        wv_simt_switch();
    }
    let clock = &current().clock;
    match clock.real {
        Some(zero) => zero.elapsed().as_nanos() as u64,
        None => clock.turn_end.get() - countdown.get(),
    }
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn wv_simt_active(file: *const c_char, line: u32) -> u64 {
    ask(Request::Active { site: RawSite { file, line } })
}

#[unsafe(no_mangle)]
extern "C" fn wv_simt_collective(
    mask: u64,
    op: u32,
    value: u64,
    arg: u32,
    file: *const c_char,
    line: u32,
) -> u64 {
    ask(Request::Collective(Call { mask, op, value, arg, site: RawSite { file, line } }))
}

#[unsafe(no_mangle)]
pub(super) extern "C" fn wv_simt_block_sync(file: *const c_char, line: u32) {
    ask(Request::BlockSync { site: RawSite { file, line } });
}

#[unsafe(no_mangle)]
extern "C" fn wv_simt_hold(mask: u64) {
    ask(Request::Hold { mask });
}

#[unsafe(no_mangle)]
extern "C" fn wv_simt_release() {
    ask(Request::Release);
}

#[unsafe(no_mangle)]
extern "C" fn wv_simt_shared(size: u64, align: u64, key: *const c_void) -> *mut c_void {
    ask(Request::Shared { size, align, key: key as u64 }) as *mut c_void
}

#[unsafe(no_mangle)]
extern "C" fn wv_simt_trap(file: *const c_char, line: u32) -> ! {
    ask(Request::Trap { site: RawSite { file, line } });
    unreachable!("a trapped lane is never resumed")
}
