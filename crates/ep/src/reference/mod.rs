//! Dispatch and combine in plain Rust: for tests, and as a description.
//!
//! Kernels on any device give the same bits.

mod combine;
mod dispatch;
mod fp8;
mod number;

pub use combine::combine;
pub use dispatch::{Batch, Dispatched, Row, dispatch};
pub use fp8::{cast, e4m3_of, float_of_e4m3};
pub use number::{bf16_of, float_of};

use crate::{EpConfig, EpError};

/// The routing of a rank's tokens is one that a dispatch takes as it is: experts that there are, or -1,
/// and none twice in a token.
///
/// # Errors
/// The first choice that is wrong.
pub fn check_routing(config: &EpConfig, experts: &[i32]) -> Result<(), EpError> {
    let top_k = config.top_k as usize;
    if !experts.len().is_multiple_of(top_k) {
        return Err(EpError::Choices { found: experts.len(), top_k: config.top_k });
    }
    for (token, choices) in experts.chunks(top_k).enumerate() {
        for (j, &expert) in choices.iter().enumerate() {
            if expert == -1 {
                continue;
            }
            if u32::try_from(expert).is_ok_and(|expert| expert < config.experts) {
                if choices[..j].contains(&expert) {
                    return Err(EpError::Twice { token, expert });
                }
            } else {
                return Err(EpError::Expert { token, expert, experts: config.experts });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_routing_that_is_wrong_is_named() {
        let config = EpConfig::new(4, 8, 2, 3);
        check_routing(&config, &[0, 2, -1, -1, 1, -1]).unwrap();
        let said = |experts: &[i32]| check_routing(&config, experts).unwrap_err().to_string();
        assert_eq!(said(&[0, 1, 3, 0]), "token 1 names expert 3, expected -1 or less than 3");
        assert_eq!(said(&[-2, 0]), "token 0 names expert -2, expected -1 or less than 3");
        assert_eq!(said(&[2, 2]), "token 0 names expert 2 twice");
        assert_eq!(said(&[0]), "1 choices of experts, expected a multiple of 2");
    }
}
