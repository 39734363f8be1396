//! A descriptor that wakes an event loop when transfers end.

use super::errors::Raise;
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, write};
use std::future::Future;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use warpverbs_agent::{AgentError, State, Transfer};

/// Which transfers of an event loop have news, and the descriptor that says so.
#[pyclass(frozen, module = "warpverbs._native")]
pub(crate) struct Ready(Arc<Bell>);

struct Bell {
    fd: OwnedFd,
    rung: Mutex<Vec<u64>>,
}

impl Bell {
    fn ring(&self, token: u64) {
        self.rung.lock().unwrap_or_else(PoisonError::into_inner).push(token);
        // It fails only if the counter is at its end, and then the descriptor is readable.
        let _ = write(&self.fd, &1u64.to_ne_bytes());
    }
}

struct Token {
    bell: Arc<Bell>,
    number: u64,
}

impl Wake for Token {
    fn wake(self: Arc<Self>) {
        self.bell.ring(self.number);
    }
}

#[pymethods]
impl Ready {
    #[new]
    fn new() -> PyResult<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let fd = eventfd(0, flags).map_err(std::io::Error::from)?;
        Ok(Self(Arc::new(Bell { fd, rung: Mutex::default() })))
    }

    /// Readable when `take` has something to give.
    fn fileno(&self) -> i32 {
        self.0.fd.as_raw_fd()
    }

    /// The numbers of what has news, since the last call.
    fn take(&self) -> PyResult<Vec<u64>> {
        match read(&self.0.fd, &mut [0; 8]) {
            Ok(_) | Err(Errno::AGAIN) => {}
            Err(error) => return Err(std::io::Error::from(error).into()),
        }
        Ok(std::mem::take(&mut self.0.rung.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

type End = Pin<Box<dyn Future<Output = Result<State, AgentError>> + Send>>;

/// The end of a transfer that an event loop waits for.
#[pyclass(frozen, module = "warpverbs._native")]
pub(crate) struct Pending(Mutex<End>);

impl Pending {
    pub(crate) fn new(transfer: Arc<Transfer>) -> Self {
        Self(Mutex::new(Box::pin(async move { transfer.completion().await })))
    }
}

#[pymethods]
impl Pending {
    /// Whether it has ended well; if it goes on, `ready` gets `number` when there is news. Raises why it failed.
    fn poll(&self, py: Python<'_>, ready: &Ready, number: u64) -> PyResult<bool> {
        let waker = Waker::from(Arc::new(Token { bell: ready.0.clone(), number }));
        let polled = py.detach(|| {
            let mut end = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            end.as_mut().poll(&mut Context::from_waker(&waker))
        });
        match polled {
            Poll::Pending => Ok(false),
            Poll::Ready(result) => result.raise(py).map(|_| true),
        }
    }
}
