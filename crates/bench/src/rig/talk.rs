//! The conversation of the two ends of a family.

pub(crate) use warpverbs_meet::{Connection as Talk, Message as Words};

/// The value of the one message that comes at this time.
macro_rules! only {
    ($talk:expr, $found:expr, $awaited:literal, $wanted:pat => $value:expr) => {
        match $found {
            $wanted => $value,
            other => return Err($talk.out_of_turn(other, $awaited).into()),
        }
    };
}
pub(crate) use only;
