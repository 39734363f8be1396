//! Doorbells of bnxt_re, and what its library is told: of errors, of events, of an SRQ that runs short.

use super::devices;
use super::unmapped::{compiled, passes_on};

#[test]
fn no_ring_is_lost_and_wrong_ones_harm_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("bells", folder.path()) else { return };
    if !devices().contains(&"bnxt_re") {
        return;
    }
    for case in ["noise", "threads", "errors", "limit", "events", "signals"] {
        passes_on("bnxt_re", &program, &format!("{case} {}", std::process::id()));
    }
}
