//! warpverbs
