//! A descriptor that wakes an event loop when transfers end.

use super::errors::Raise;
use pyo3::prelude::*;
use std::future::Future;
use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use warpverbs_agent::{AgentError, State, Transfer};
use warpverbs_meet::Wake as Readable;

/// Which transfers of an event loop have news, and the descriptor that says so.
#[pyclass(frozen, module = "warpverbs._native")]
pub(crate) struct Ready(Arc<Bell>);

struct Bell {
    readable: Readable,
    rung: Mutex<Vec<u64>>,
}

impl Bell {
    fn ring(&self, token: u64) {
        self.rung.lock().unwrap_or_else(PoisonError::into_inner).push(token);
        self.readable.wake();
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
        Ok(Self(Arc::new(Bell { readable: Readable::new()?, rung: Mutex::default() })))
    }

    /// Readable when `take` has something to give.
    fn fileno(&self) -> i32 {
        self.0.readable.as_fd().as_raw_fd()
    }

    /// The numbers of what has news, since the last call.
    fn take(&self) -> Vec<u64> {
        self.0.readable.clear();
        std::mem::take(&mut self.0.rung.lock().unwrap_or_else(PoisonError::into_inner))
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
