//! Commands to a guest, over a virtio-serial port; the other end is `guest/serve.sh`.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use warpverbs_meet::{Deadline, Timed};

/// How long a guest may take to accept a command.
const TAKEN: Duration = Duration::from_secs(5);

/// The end of a command.
#[derive(Debug)]
pub(crate) struct Output {
    /// Its exit status; 137 if it ran past its limit.
    pub(crate) status: i32,
    /// Its output, both streams together.
    pub(crate) text: String,
}

/// One port: it runs one command at a time.
pub(crate) struct Channel {
    stream: UnixStream,
    /// Bytes that have come and belong to no output yet.
    pending: Vec<u8>,
    commands: u32,
}

/// A command that was begun and not waited for.
pub(crate) struct Begun {
    token: String,
    deadline: Deadline,
}

impl Channel {
    /// Connects to the socket that the machine makes when it starts.
    pub(crate) fn connect(path: &Path, deadline: Deadline) -> io::Result<Self> {
        let stream = loop {
            match UnixStream::connect(path) {
                Ok(stream) => break stream,
                Err(error) if deadline.passed() => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        Ok(Self::new(stream))
    }

    fn new(stream: UnixStream) -> Self {
        Self { stream, pending: Vec::new(), commands: 0 }
    }

    /// Waits until the guest serves this port.
    pub(crate) fn greet(&mut self, deadline: Deadline) -> io::Result<()> {
        self.until(b"@@ready\n", deadline).map(drop)
    }

    /// Begins a shell command of one line, which is killed in the guest after `limit`.
    pub(crate) fn start(&mut self, command: &str, limit: Duration) -> io::Result<Begun> {
        if command.contains('\n') {
            return Err(io::Error::other("a command of more than one line"));
        }
        self.commands += 1;
        let token = format!("{:08x}", self.commands.wrapping_mul(0x9e37_79b1));
        let seconds = limit.as_secs().max(1);
        let mut taken = Timed { stream: &self.stream, deadline: Deadline::after(TAKEN) };
        taken.write_all(format!("{token} {seconds} {command}\n").as_bytes())?;
        // The guest is the first to give up, so that it can tell.
        let deadline = Deadline::after(limit + Duration::from_secs(10));
        Ok(Begun { token, deadline })
    }

    pub(crate) fn finish(&mut self, running: &Begun) -> io::Result<Output> {
        let Begun { token, deadline } = running;
        let text = self.until(format!("\n@@{token} ").as_bytes(), *deadline)?;
        let status = self.until(b"\n", *deadline)?;
        let status = String::from_utf8_lossy(&status).trim().parse();
        let status = status.map_err(|_| io::Error::other("no exit status behind the token"))?;
        Ok(Output { status, text: String::from_utf8_lossy(&text).into_owned() })
    }

    pub(crate) fn so_far(&self) -> String {
        String::from_utf8_lossy(&self.pending).into_owned()
    }

    /// Takes everything up to `mark`, which is taken away as well.
    fn until(&mut self, mark: &[u8], deadline: Deadline) -> io::Result<Vec<u8>> {
        let mut chunk = [0; 4096];
        let mut seen = 0;
        loop {
            let from = usize::saturating_sub(seen, mark.len());
            if let Some(at) = self.pending[from..].windows(mark.len()).position(|w| w == mark) {
                let rest = self.pending.split_off(from + at + mark.len());
                let mut taken = std::mem::replace(&mut self.pending, rest);
                taken.truncate(from + at);
                return Ok(taken);
            }
            seen = self.pending.len();
            match (Timed { stream: &self.stream, deadline }).read(&mut chunk)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                n => self.pending.extend_from_slice(&chunk[..n]),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_ends_where_the_token_says() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair of sockets");
        let mut channel = Channel::new(ours);
        let running = channel.start("echo @@no; false", Duration::from_secs(9)).expect("started");
        theirs
            .write_all(format!("@@no\n\n@@{} 1\nnext", running.token).as_bytes())
            .expect("written");
        let output = channel.finish(&running).expect("an output");
        assert_eq!((output.status, &*output.text, &*channel.so_far()), (1, "@@no\n", "next"));
    }

    #[test]
    fn silence_ends_at_the_deadline_and_a_dead_guest_at_once() {
        let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
        let mut channel = Channel::new(ours);
        let error = channel.greet(Deadline::after(Duration::ZERO)).expect_err("nobody is there");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        drop(theirs);
        let error = channel.greet(Deadline::after(TAKEN)).expect_err("nobody is there");
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
    }
}
