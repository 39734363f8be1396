//! One condition of the direct way, and how it is met.

use super::root::Root;
use serde::Serialize;

/// One condition.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) what: &'static str,
    pub(crate) found: String,
    /// Advice; absent if all is well.
    pub(crate) remedy: Option<String>,
    /// As it is, the direct way is not possible.
    pub(crate) stops: bool,
}

impl Check {
    pub(super) fn good(what: &'static str, found: impl Into<String>) -> Self {
        Self { what, found: found.into(), remedy: None, stops: false }
    }

    /// It works without, but less well.
    pub(super) fn less(
        what: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { remedy: Some(remedy.into()), ..Self::good(what, found) }
    }

    pub(super) fn stop(
        what: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { stops: true, ..Self::less(what, found, remedy) }
    }
}

/// Whether a module of the kernel is seen.
pub(super) fn loaded(root: &Root, module: &str) -> bool {
    root.exists(&format!("sys/module/{module}"))
}
