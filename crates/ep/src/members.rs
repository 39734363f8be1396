//! The members of a generation.

/// How the members go on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Regrouped {
    /// Number of this set of members, 1 to 255, after which it is 1 again.
    pub generation: u8,
    /// The ranks that take part, in order.
    pub members: Vec<u32>,
    /// For each channel the last call, counted from 1 modulo 2^24, that all of them had ended with rows and
    /// results of all. The next call is the one behind it: a member that had ended more makes those again.
    pub done: Vec<u32>,
}
