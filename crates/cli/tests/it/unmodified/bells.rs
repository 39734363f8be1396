//! Doorbells without records, and what their libraries are told: of errors, of events, of an SRQ that runs short.

use super::unmapped::{compiled, passes_on};
use super::{built, devices, has_srqs};

#[test]
fn no_ring_is_lost_and_wrong_ones_harm_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = compiled("bells", folder.path()) else { return };
    for device in devices().iter().filter(|device| **device != "mlx5") {
        for case in ["noise", "threads", "errors", "limit", "events", "solicited", "signals"] {
            if case != "limit" || has_srqs(device) {
                passes_on(device, &program, &format!("{case} {}", std::process::id()));
            }
        }
        // Debian's libbnxt_re does not have it, nor has any libionic.
        if *device == "bnxt_re" && built().is_some() {
            passes_on(device, &program, &format!("resize {}", std::process::id()));
        }
    }
}
