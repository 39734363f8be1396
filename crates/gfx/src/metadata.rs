//! Arguments that the run time appends to those of a kernel's source.

/// Values that the runtime appends to the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hidden {
    Groups(usize),
    GroupSize(usize),
    Remainder(usize),
    Dimensions,
    DynamicLds,
    PrivateBase,
    SharedBase,
    /// Null pointers and zeros: host calls, heaps, queues, offsets of the grid.
    Zero,
}

/// The meaning of a kind of hidden argument, without that prefix.
pub(crate) fn hidden(rest: &str) -> Hidden {
    let axis = |prefix: &str| match rest.strip_prefix(prefix) {
        Some("x") => Some(0),
        Some("y") => Some(1),
        Some("z") => Some(2),
        _ => None,
    };
    let by_axis = (axis("block_count_").map(Hidden::Groups))
        .or(axis("group_size_").map(Hidden::GroupSize))
        .or(axis("remainder_").map(Hidden::Remainder));
    by_axis.unwrap_or(match rest {
        "grid_dims" => Hidden::Dimensions,
        "dynamic_lds_size" => Hidden::DynamicLds,
        "private_base" => Hidden::PrivateBase,
        "shared_base" => Hidden::SharedBase,
        _ => Hidden::Zero,
    })
}
