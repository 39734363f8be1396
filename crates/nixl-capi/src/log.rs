//! Where the library's events go: to standard error, as much as `NIXL_LOG_LEVEL` asks for.

use std::io::IsTerminal as _;
use std::sync::Once;
use tracing::level_filters::LevelFilter;

static STARTED: Once = Once::new();

/// Has events written from now on. More calls change nothing.
pub(crate) fn start() {
    STARTED.call_once(|| {
        let wished = std::env::var("NIXL_LOG_LEVEL").ok();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal())
            .with_max_level(level(wished.as_deref()));
        // A program of Rust that this is linked into may have its own.
        let _ = subscriber.try_init();
    });
}

/// NIXL's names of levels. Warnings are the default, and what is no name is taken for it.
fn level(name: Option<&str>) -> LevelFilter {
    match name.map(str::to_ascii_uppercase).as_deref() {
        Some("TRACE") => LevelFilter::TRACE,
        Some("DEBUG") => LevelFilter::DEBUG,
        Some("INFO") => LevelFilter::INFO,
        Some("ERROR") => LevelFilter::ERROR,
        Some("FATAL") => LevelFilter::OFF,
        _ => LevelFilter::WARN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_nixls_names() {
        assert_eq!(level(None), LevelFilter::WARN);
        assert_eq!(level(Some("loud")), LevelFilter::WARN);
        assert_eq!(level(Some("debug")), LevelFilter::DEBUG);
        assert_eq!(level(Some("INFO")), LevelFilter::INFO);
        assert_eq!(level(Some("FATAL")), LevelFilter::OFF);
    }
}
