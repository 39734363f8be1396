//! The end that answers.

use super::Tcp;
use super::case::{
    Answer, LIMIT, Request, Test, cpu_seconds, fill, memory, numbers, pipeline, poisoned, remote,
    verify, wait_for,
};
use crate::rig::ends::{self, announce};
use anyhow::{Context as _, Result, anyhow, ensure};
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use warpverbs::gpu::{Gpu, Place};
use warpverbs::raw::mem::Access;
use warpverbs::tcp::{Closer, Config, Domain, Link, TcpError};

/// Sockets of a connection at most: the client chooses how many.
const SOCKETS: u16 = 64;

/// The client measures others between two requests. One that is gone has closed the connection.
const BETWEEN: Duration = Duration::from_secs(3600);
/// Connections that have asked for nothing yet. One more ends the oldest: anybody may connect.
const MOST_SILENT: usize = 8;
/// Connections that are measured at a time.
const MOST_MEASURED: usize = 4;
/// Sizes that a request may ask for, as clients do.
const SIZES: RangeInclusive<u64> = 8..=1 << 30;
/// While the system has no descriptor for another connection.
const PAUSE: Duration = Duration::from_millis(10);

/// State that the threads of a server share. The server ends when the first client that was
/// measured has closed its connection; no other connection ends it.
struct Server {
    domain: Domain,
    gpu: Arc<dyn Gpu>,
    closer: Closer,
    silent: Mutex<VecDeque<Arc<Link>>>,
    measured: AtomicUsize,
    done: AtomicBool,
}

pub(super) fn run(args: &ends::Server<Tcp>) -> Result<()> {
    let config = Config::default().sockets(SOCKETS).chunk(64 << 20);
    let (opened, domain) = args.own.open(config)?;
    let gpu = opened.gpu;
    let mut listener = domain.listen(args.address())?;
    announce(listener.address())?;
    let closer = listener.closer()?;
    let (silent, measured, done) = Default::default();
    let server = Arc::new(Server { domain, gpu, closer, silent, measured, done });
    let (wait, began) = (args.wait(), Instant::now());
    loop {
        let left = wait.saturating_sub(began.elapsed()).max(PAUSE);
        let accepted = listener.accept(&server.domain, left);
        if server.done.load(Ordering::Acquire) {
            return Ok(());
        }
        match accepted {
            Ok(connection) => server.begin(connection)?,
            Err(error)
                if server.measured.load(Ordering::Acquire) == 0 && began.elapsed() >= wait =>
            {
                return Err(error.into());
            }
            Err(TcpError::Timeout { .. }) => {}
            Err(_) => thread::sleep(PAUSE),
        }
    }
}

impl Server {
    /// Gives a connection a thread, which ends with the process.
    fn begin(self: &Arc<Self>, connection: Link) -> Result<()> {
        let connection = Arc::new(connection);
        let mut silent = lock(&self.silent);
        silent.push_back(connection.clone());
        if silent.len() > MOST_SILENT
            && let Some(oldest) = silent.pop_front()
        {
            oldest.abort();
        }
        drop(silent);
        let server = self.clone();
        let named = thread::Builder::new().name("perf-tcp".to_owned());
        named.spawn(move || server.attend(connection))?;
        Ok(())
    }

    fn attend(&self, connection: Arc<Link>) {
        let first = connection.wait_notification(BETWEEN);
        lock(&self.silent).retain(|other| !Arc::ptr_eq(other, &connection));
        let Ok(first) = first else { return };
        let before = self.measured.fetch_add(1, Ordering::AcqRel);
        let measured = match before < MOST_MEASURED {
            true => self.measure(&connection, first),
            false => Err(anyhow!("{MOST_MEASURED} others are measured")),
        };
        self.measured.fetch_sub(1, Ordering::AcqRel);
        match measured {
            Ok(()) => {
                if let Some(connection) = Arc::into_inner(connection) {
                    // The client has closed it already.
                    let _ = connection.close(LIMIT);
                }
                self.done.store(true, Ordering::Release);
                self.closer.close();
            }
            Err(why) => eprintln!("a connection has ended: {why:#}"),
        }
    }

    /// Serves requests until the client closes the connection.
    fn measure(&self, connection: &Link, first: Vec<u8>) -> Result<()> {
        let mut request = first;
        loop {
            let asked: Request =
                serde_json::from_slice(&request).context("the client's request")?;
            let bytes = asked.bytes;
            ensure!(SIZES.contains(&bytes), "{bytes} bytes are asked for, expected {SIZES:?}");
            serve(&self.domain, connection, &*self.gpu, &asked)?;
            request = match connection.wait_notification(BETWEEN) {
                Ok(request) => request,
                Err(TcpError::Closed) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(domain: &Domain, connection: &Link, gpu: &dyn Gpu, request: &Request) -> Result<()> {
    let Request { test, bytes, iterations, .. } = *request;
    // The word that an end polls lies in host memory.
    let region = match test {
        Test::WriteLatency => gpu.alloc(8, Place::Shared)?.region().clone(),
        _ => memory(gpu, bytes)?,
    };
    // One buffer for all messages and writes, as the bare loop and UCX have it: several would not
    // fit a cache that holds one.
    if !test.is_latency() {
        poisoned(&region)?;
    }
    let registered = domain.register(&region, Access::REMOTE_WRITE)?;
    let mut answer = Answer { memory: numbers(registered.remote()), cpu_s: 0.0 };
    let say = |answer: &Answer| -> Result<()> {
        connection.notify(&serde_json::to_vec(answer)?)?;
        Ok(())
    };
    say(&answer)?;
    let before = cpu_seconds();
    // Comparing what came is not part of it.
    let used = || cpu_seconds() - before;
    answer.cpu_s = match test {
        Test::MessageLatency => {
            fill(&region)?;
            let back = memory(gpu, bytes)?;
            for _ in 0..iterations {
                let received = connection.irecv(&back)?;
                connection.wait(received, LIMIT)?;
                let sent = connection.isend(&region)?;
                connection.wait(sent, LIMIT)?;
            }
            let used = used();
            verify(&back)?;
            used
        }
        Test::WriteLatency => {
            let (here, to) = (gpu.alloc(8, Place::Shared)?, remote(request.memory));
            let mut written = None;
            for n in 1..=iterations {
                wait_for(connection, &region, n)?;
                // The answer to the write before came with this number.
                if let Some(written) = written.take() {
                    connection.wait(written, LIMIT)?;
                }
                here.region().write(0, &n.to_ne_bytes())?;
                written = Some(connection.write(here.region(), to)?);
            }
            used()
        }
        Test::MessageBandwidth => {
            pipeline(connection, iterations, || Ok(connection.irecv(&region)?))?;
            connection.notify(b"complete")?;
            let used = used();
            verify(&region)?;
            used
        }
        Test::WriteBandwidth => {
            connection.wait_notification(LIMIT)?;
            let used = used();
            verify(&region)?;
            used
        }
    };
    say(&answer)
}
