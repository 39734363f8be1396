//! The largest work requests of the host.

/// Bytes of inline data of one work request.
pub(crate) const MAX_INLINE: u32 = 220;
/// Scatter/gather entries of one send.
pub(crate) const MAX_SEND_SGES: usize = 14;
/// Scatter/gather entries of one receive.
pub(crate) const MAX_RECV_SGES: usize = 64;
/// Slots of a WQE of bnxt_re's format, of which all WQEs of kernels and host are: two of headers, and one of
/// payload.
pub(crate) const BNXT_SLOTS: u32 = 3;
