//! Messages to the user: whole lines, without the standard library's lock, which a thread
//! may hold when another one forks.

/// Writes a line to standard error, as `eprintln!` would.
macro_rules! say {
    ($($argument:tt)*) => { crate::say::line(&format!($($argument)*)) };
}

pub(crate) use say;

pub(crate) fn line(text: &str) {
    let line = format!("warpverbs: {text}\n");
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        // SAFETY: bytes that live during the call.
        let written = unsafe { libc::write(libc::STDERR_FILENO, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(written) {
            Ok(written @ 1..) => rest = &rest[written..],
            // A line that cannot be written is dropped.
            _ => return,
        }
    }
}
