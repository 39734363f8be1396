//! A reason why nothing can be tried on this machine.

use std::fmt;

/// The reason why guests cannot be booted here, through no fault of the code under test.
#[derive(Debug)]
pub(crate) struct Skip(pub(crate) String);

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Skip {}
