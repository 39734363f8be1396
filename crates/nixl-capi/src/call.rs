//! The frame that every function of the interface has around its work: it keeps panics in, gives a status,
//! and leaves the cause of a failure where it can be found.

use crate::log;
use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use warpverbs_nixl::{Error, Status};

/// The interface's `nixl_capi_status_t`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(c_int);

impl Code {
    pub(crate) const SUCCESS: Self = Self(0);
    pub(crate) const IN_PROGRESS: Self = Self(1);
    pub(crate) const INVALID_PARAM: Self = Self(-1);
    pub(crate) const BACKEND: Self = Self(-2);
    pub(crate) const INVALID_STATE: Self = Self(-3);
    pub(crate) const EXCEPTION: Self = Self(-4);
    pub(crate) const NO_TELEMETRY: Self = Self(-5);
    pub(crate) const NOT_FOUND: Self = Self(-6);

    /// The interface has fewer statuses than NIXL: what has none of its own is a failed backend.
    pub(crate) fn of(status: Status) -> Self {
        match status {
            Status::Success => Self::SUCCESS,
            Status::InProgress => Self::IN_PROGRESS,
            Status::InvalidParam => Self::INVALID_PARAM,
            Status::NotFound => Self::NOT_FOUND,
            Status::NoTelemetry => Self::NO_TELEMETRY,
            _ => Self::BACKEND,
        }
    }
}

/// Why a call fails: the status that it returns, and the cause, which no status tells.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) why: String,
    /// An answer rather than an error, such as that something is not there yet.
    pub(crate) expected: bool,
}

impl Failure {
    pub(crate) fn new(code: Code, why: impl Into<String>) -> Self {
        Self { code, why: why.into(), expected: false }
    }

    pub(crate) fn invalid(why: impl Into<String>) -> Self {
        Self::new(Code::INVALID_PARAM, why)
    }

    /// Any error as that of a backend, as the interface has it for some calls.
    pub(crate) fn backend(error: Error) -> Self {
        Self::new(Code::BACKEND, error.to_string())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(Code::of(error.status), error.to_string())
    }
}

/// The last failure of a thread.
#[derive(Default)]
struct Last {
    call: &'static str,
    text: CString,
    failed: bool,
}

thread_local! {
    static LAST: RefCell<Last> = RefCell::default();
}

/// Does the work of the function `call`, whose success is told by nothing but its status.
pub(crate) fn call(call: &'static str, work: impl FnOnce() -> Result<(), Failure>) -> Code {
    call_for(call, || work().map(|()| Code::SUCCESS))
}

/// Does the work of the function `call`.
pub(crate) fn call_for(call: &'static str, work: impl FnOnce() -> Result<Code, Failure>) -> Code {
    // A value that a panic leaves half done is behind a lock of ours, each of which guards whole values.
    let done = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        Err(Failure::new(Code::EXCEPTION, format!("panicked: {}", message(&*panic))))
    });
    match done {
        Ok(code) => code,
        Err(failure) => {
            let code = failure.code;
            // The same for what tells of the failure: a log that cannot be written, for one.
            let _ = catch_unwind(AssertUnwindSafe(|| tell(call, &failure)));
            code
        }
    }
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word")
}

/// Keeps the cause for [`warpverbs_nixl_last_error`], and logs it, once if a program asks again and again.
fn tell(call: &'static str, failure: &Failure) {
    let text = format!("{call}: {}", failure.why).replace('\0', "\\0");
    let text = CString::new(text).unwrap_or_default();
    let keep = |last: &RefCell<Last>| {
        let mut last = last.borrow_mut();
        let is_new = !last.failed || last.call != call || last.text != text;
        *last = Last { call, text, failed: true };
        is_new
    };
    // A thread that is ending keeps nothing any more.
    let is_new = LAST.try_with(keep).unwrap_or(true);
    log::start();
    match failure.expected || !is_new {
        true => tracing::debug!(target: "nixl", call, "{}", failure.why),
        false => tracing::error!(target: "nixl", call, "{}", failure.why),
    }
}

/// The cause of the last failed call of this thread: the function's name, a colon, and what was wrong; null
/// if none failed. It is of this project, not of NIXL, whose statuses tell less. The text is the library's,
/// and stays until the thread's next failure or end.
#[unsafe(no_mangle)]
extern "C" fn warpverbs_nixl_last_error() -> *const c_char {
    let text = |last: &RefCell<Last>| {
        let last = last.borrow();
        if last.failed { last.text.as_ptr() } else { ptr::null() }
    };
    LAST.try_with(text).unwrap_or(ptr::null())
}

/// Whether the functions only look for a library: no, this is one.
#[unsafe(no_mangle)]
extern "C" fn nixl_capi_is_stub() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn last() -> Option<String> {
        let text = warpverbs_nixl_last_error();
        // SAFETY: null, or a text that stays until the next failure of this thread.
        (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_str().unwrap().to_owned())
    }

    #[test]
    fn a_panic_is_a_status_and_a_text() {
        assert_eq!(last(), None);
        let code = call("here", || panic!("at the {}", "disco"));
        assert_eq!(code, Code::EXCEPTION);
        assert_eq!(last().unwrap(), "here: panicked: at the disco");
        // A success leaves the last error, and another thread has its own.
        assert_eq!(call("here", || Ok(())), Code::SUCCESS);
        assert_eq!(last().unwrap(), "here: panicked: at the disco");
        std::thread::spawn(|| assert_eq!(last(), None)).join().unwrap();
        assert_eq!(call("there", || Err(Failure::invalid("a\0b"))), Code::INVALID_PARAM);
        assert_eq!(last().unwrap(), "there: a\\0b");
    }

    #[test]
    fn each_status_has_the_code_that_the_interface_gives_it() {
        for status in Status::ALL {
            let expected = match status.number() {
                0 => 0,
                1 => 1,
                -2 => -1,
                -4 => -6,
                -12 => -5,
                _ => -2,
            };
            assert_eq!(Code::of(status), Code(expected), "{status:?}");
        }
    }
}
