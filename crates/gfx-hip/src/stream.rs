//! Streams: threads that do one piece of work after the other.

use crate::code::{Answer, Code, exports, put};
use crate::device::check;
use crate::handles::Handles;
use crate::state::state;
use std::ffi::{c_int, c_uchar, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};

pub(crate) type Work = Box<dyn FnOnce() + Send>;

struct Stream {
    work: Sender<Work>,
    /// Pieces that have not ended.
    left: Arc<AtomicU64>,
}

static STREAMS: Handles<Stream> = Handles::new();

/// Has a stream do a piece of work.
pub(crate) fn enqueue(stream: *mut c_void, piece: impl FnOnce() + Send + 'static) -> Answer {
    state().alive()?;
    let give = |stream: &Stream| {
        stream.left.fetch_add(1, Ordering::Relaxed);
        stream.work.send(Box::new(piece)).map_err(|_| Code::InvalidHandle)
    };
    // There is no default stream: nobody here uses it.
    STREAMS.with(stream, give).ok_or(Code::InvalidHandle)?
}

exports! {
    fn hipDeviceGetStreamPriorityRange(greatest: *mut c_int) -> c_int {
        // SAFETY: the caller's pointer.
        unsafe { put(greatest, -1) }.map(|()| 1)
    }

    fn hipStreamCreateWithPriority(_flags: c_uint, priority: c_int) -> *mut c_void {
        if !(-1..=1).contains(&priority) {
            return Err(Code::InvalidValue);
        }
        let (work, todo) = channel::<Work>();
        let left = Arc::new(AtomicU64::new(0));
        let open = left.clone();
        let run = move || {
            for piece in todo {
                // After a failure nothing runs any more.
                if state().alive().is_ok() {
                    piece();
                }
                // Release: who sees that it has ended sees what it wrote.
                open.fetch_sub(1, Ordering::Release);
            }
        };
        let started = std::thread::Builder::new().name("hip stream".to_owned()).spawn(run);
        started.map_err(|_| Code::OutOfMemory)?;
        Ok(STREAMS.add(Stream { work, left }))
    }

    /// Work that is left is done.
    fn hipStreamDestroy(stream: *mut c_void) {
        STREAMS.remove(stream).map(drop).ok_or(Code::InvalidHandle)
    }

    fn hipStreamQuery(stream: *mut c_void) {
        state().alive()?;
        let left = STREAMS.with(stream, |stream| stream.left.load(Ordering::Acquire));
        if left.ok_or(Code::InvalidHandle)? == 0 { Ok(()) } else { Err(Code::NotReady) }
    }

    fn hipStreamWriteValue64(stream: *mut c_void, addr: *mut c_void, value: u64, flags: c_uint) {
        let at = addr as usize;
        if flags != 0 || at == 0 || !at.is_multiple_of(8) {
            return Err(Code::InvalidValue);
        }
        enqueue(stream, move || {
            // SAFETY: the caller keeps the word mapped until it is written, and lets others reach it by atomic
            // accesses alone.
            unsafe { AtomicU64::from_ptr(at as *mut u64) }.store(value, Ordering::Release);
        })
    }

    fn hipMemcpyAsync(
        dst: *mut c_void,
        src: *const c_void,
        len: usize,
        kind: c_int,
        stream: *mut c_void,
    ) {
        // Only the kind that goes by addresses is used.
        if kind == 4 { copy(dst, src, len, stream) } else { Err(Code::InvalidValue) }
    }

    /// All devices have the same addresses.
    fn hipMemcpyPeerAsync(
        dst: *mut c_void,
        to: c_int,
        src: *const c_void,
        from: c_int,
        len: usize,
        stream: *mut c_void,
    ) {
        check(to).and(check(from))?;
        copy(dst, src, len, stream)
    }

    fn hipMemsetD8Async(addr: *mut c_void, value: c_uchar, len: usize, stream: *mut c_void) {
        let at = addr as usize;
        enqueue(stream, move || {
            // SAFETY: the caller keeps the range valid until it is done.
            unsafe { std::ptr::write_bytes(at as *mut u8, value, len) };
        })
    }
}

/// Has a stream copy, for a caller of HIP.
fn copy(dst: *mut c_void, src: *const c_void, len: usize, stream: *mut c_void) -> Answer {
    let (dst, src) = (dst as usize, src as usize);
    enqueue(stream, move || {
        // SAFETY: the caller keeps both ranges valid until the copy is done; as on a GPU, who accesses them
        // meanwhile sees any mixture of bytes.
        unsafe { std::ptr::copy(src as *const u8, dst as *mut u8, len) };
    })
}
