//! The two programs talk over TCP: one line of JSON each way a step, so that neither runs ahead.

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io::{BufRead, BufReader, Read as _, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// The longest wait for the other program.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest line.
const MAX_LINE: u64 = 1 << 20;

/// What one side brings to a step.
#[derive(Serialize, Deserialize)]
enum Step<T> {
    Done(T),
    Failed(String),
}

/// The connection to the other program.
pub(crate) struct Talk {
    lines: BufReader<TcpStream>,
}

impl Talk {
    /// Waits for the other program to connect.
    pub(crate) fn accept(at: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(at).with_context(|| at.to_string())?;
        listener.set_nonblocking(true)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            match listener.accept() {
                Ok((stream, _)) => return Self::new(stream),
                Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => bail!(error),
                Err(_) if Instant::now() > deadline => bail!("nobody has connected to {at}"),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Connects to the other program, which may still be starting.
    pub(crate) fn connect(to: SocketAddr) -> Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match TcpStream::connect_timeout(&to, Duration::from_secs(5)) {
                Ok(stream) => return Self::new(stream),
                Err(error) if Instant::now() > deadline => {
                    return Err(error).with_context(|| to.to_string());
                }
                Err(_) => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }

    fn new(stream: TcpStream) -> Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self { lines: BufReader::new(stream) })
    }

    /// Tells the other side.
    pub(crate) fn tell<T: Serialize>(&mut self, value: &T) -> Result<()> {
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.lines.get_mut().write_all(&line).context("the other program")
    }

    /// Hears from the other side.
    pub(crate) fn hear<T: DeserializeOwned>(&mut self) -> Result<T> {
        let mut line = String::new();
        let read = (&mut self.lines).take(MAX_LINE).read_line(&mut line);
        if read.context("the other program")? == 0 {
            bail!("the other program has left");
        }
        serde_json::from_str(&line).with_context(|| format!("from the other program: {line}"))
    }

    /// Both sides bring what they have done, or why they have not; an error of either is one of
    /// both, and leaves them in step.
    pub(crate) fn step<T, U>(&mut self, own: Result<T>) -> Result<Result<(T, U)>>
    where
        T: Serialize,
        U: DeserializeOwned,
    {
        match &own {
            Ok(value) => self.tell(&Step::Done(value))?,
            Err(error) => self.tell(&Step::<T>::Failed(format!("{error:#}")))?,
        }
        Ok(match (own, self.hear::<Step<U>>()?) {
            (Ok(own), Step::Done(theirs)) => Ok((own, theirs)),
            (Err(error), _) => Err(error),
            (Ok(_), Step::Failed(text)) => Err(anyhow::anyhow!("the other side: {text}")),
        })
    }
}
