//! Any sequence of what posters and owners do to a NIC: the body of the fuzz target `nic_ops`, also
//! run over its corpus.
//!
//! Bytes become a [`Script`]: a setup, then operations on three QPs, an SRQ and eight memory keys,
//! any of which may be destroyed and made anew at any point.

mod poster;
mod script;
mod shared;
mod world;
mod wqe;

use arbitrary::{Arbitrary, Unstructured};
use script::Script;
pub(crate) use world::Outcome;
use world::World;

/// Operations carried out at most, so that one input is over in milliseconds.
const OPERATIONS: usize = 256;

/// Panics if the NIC does, does not come to rest, reports an error without a violation, or touches
/// what is not registered.
pub(crate) fn exercise(input: &[u8]) -> Outcome {
    let Ok(script) = Script::arbitrary_take_rest(Unstructured::new(input)) else {
        return Outcome::default();
    };
    let mut world = World::new(&script.setup);
    for op in script.ops.iter().take(OPERATIONS) {
        world.carry_out(op);
    }
    world.finish(script.setup.farewell)
}
