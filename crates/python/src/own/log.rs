//! The library's log goes to Python's `logging`, under the logger `warpverbs`.
//!
//! Lines come from any thread, also from such that hold locks, so they wait in a queue for a thread that has no
//! other task. It ends before the interpreter does.

use pyo3::prelude::*;
use std::fmt::{Debug, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, Once, PoisonError};
use std::thread::{self, JoinHandle};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// Lines that may wait. Further ones are counted and left out.
const MOST_WAITING: usize = 4096;

struct Line {
    level: Level,
    target: &'static str,
    text: String,
}

/// Puts what the library says into the queue.
struct Forward {
    queue: SyncSender<Option<Line>>,
    left_out: AtomicU64,
}

/// An event as a line: its message, and its fields.
#[derive(Default)]
struct Text(String, String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        // Writing to a string does not fail.
        let _ = match field.name() {
            "message" => write!(self.0, "{value:?}"),
            name => write!(self.1, " {name}={value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

impl<S: Subscriber> Layer<S> for Forward {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        let Text(message, fields) = text;
        let mut text = message + &fields;
        let left_out = self.left_out.swap(0, Ordering::Relaxed);
        if left_out > 0 {
            let _ = write!(text, " ({left_out} lines before this one were left out)");
        }
        let metadata = event.metadata();
        let line = Line { level: *metadata.level(), target: metadata.target(), text };
        if self.queue.try_send(Some(line)).is_err() {
            self.left_out.fetch_add(left_out + 1, Ordering::Relaxed);
        }
    }
}

/// The thread, and the queue whose end ends it.
type Running = (SyncSender<Option<Line>>, JoinHandle<()>);

static THREAD: Mutex<Option<Running>> = Mutex::new(None);

fn number(level: Level) -> u8 {
    match level {
        Level::ERROR => 40,
        Level::WARN => 30,
        Level::INFO => 20,
        Level::DEBUG => 10,
        Level::TRACE => 5,
    }
}

/// `warpverbs_agent::path` is the logger `warpverbs.agent.path`.
fn logger(target: &str) -> String {
    let name = target.replace("::", ".");
    match name.strip_prefix("warpverbs_") {
        Some(rest) => format!("warpverbs.{rest}"),
        None => format!("warpverbs.{name}"),
    }
}

fn write(py: Python<'_>, line: &Line) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1("getLogger", (logger(line.target),))?;
    logger.call_method1("log", (number(line.level), "%s", &line.text))?;
    Ok(())
}

fn forward(lines: &Receiver<Option<Line>>) {
    while let Ok(Some(line)) = lines.recv() {
        // A handler of the program's that raises is the program's; `logging` has reported it.
        if Python::try_attach(|py| write(py, &line)).is_none() {
            return;
        }
    }
}

/// Ends the thread, after the lines that wait.
#[pyfunction]
fn end_log(py: Python<'_>) {
    let Some((queue, thread)) = THREAD.lock().unwrap_or_else(PoisonError::into_inner).take() else {
        return;
    };
    py.detach(|| {
        if queue.send(None).is_ok() {
            let _ = thread.join();
        }
    });
}

/// Begins to forward, once in a process. `WARPVERBS_LOG` says what is logged, as for the program `warpverbs`; by default
/// information and what is more urgent, of which the program's loggers take what they like.
pub(crate) fn start(py: Python<'_>) -> PyResult<()> {
    static ONCE: Once = Once::new();
    let mut failed = Ok(());
    ONCE.call_once(|| failed = begin(py));
    failed
}

fn begin(py: Python<'_>) -> PyResult<()> {
    let (queue, lines) = sync_channel(MOST_WAITING);
    let wished = std::env::var("WARPVERBS_LOG").ok().filter(|wished| !wished.is_empty());
    let filter = wished.and_then(|wished| wished.parse::<Targets>().ok());
    let filter = filter.unwrap_or_else(|| Targets::new().with_default(Level::INFO));
    let forwarder = Forward { queue: queue.clone(), left_out: AtomicU64::new(0) };
    // A program that has a subscriber of its own in this process keeps it.
    if tracing_subscriber::registry().with(filter).with(forwarder).try_init().is_err() {
        return Ok(());
    }
    let thread = thread::Builder::new().name("wv-log".into()).spawn(move || forward(&lines))?;
    *THREAD.lock().unwrap_or_else(PoisonError::into_inner) = Some((queue, thread));
    let module = PyModule::new(py, "_log")?;
    module.add_function(wrap_pyfunction!(end_log, &module)?)?;
    py.import("atexit")?.call_method1("register", (module.getattr("end_log")?,))?;
    Ok(())
}
