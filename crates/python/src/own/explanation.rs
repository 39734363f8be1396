//! Which path was chosen, as Python sees it.

use pyo3::prelude::*;
use warpverbs_agent::Explanation;

/// Which path was chosen, how fast it is, and why no better one was. `str()` of it is a sentence.
#[pyclass(frozen, get_all, module = "warpverbs", name = "Explanation")]
pub(crate) struct PyExplanation {
    /// The path's name.
    path: String,
    /// Bytes per second, if it was measured.
    rate: Option<f64>,
    /// The better paths, each with the reason against it.
    not_better: Vec<(String, String)>,
    text: String,
}

#[pymethods]
impl PyExplanation {
    fn __str__(&self) -> &str {
        &self.text
    }

    fn __repr__(&self) -> String {
        format!("<Explanation: {}>", self.text)
    }
}

impl PyExplanation {
    pub(super) fn of(found: &Explanation) -> Self {
        let reason = |one: &warpverbs_agent::Reason| (one.what.clone(), one.why.clone());
        Self {
            path: found.how.route.to_string(),
            rate: found.rate,
            not_better: found.how.not_better.iter().map(reason).collect(),
            text: found.to_string(),
        }
    }
}
