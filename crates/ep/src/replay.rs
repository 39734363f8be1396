//! Whole calls as one launch that can be made again and again.

use crate::buffers::{Packed, Tokens};
use crate::ep::{Ep, RECV, SEND};
use crate::{EpError, Failed};
use warpverbs_gpu::{Buffer, DeviceEp, Graph, KernelPtr, Step};
use warpverbs_shmem::Heap;

/// A dispatch, the kernels behind it, and the combine, as one graph. Its buffers are those that it was
/// recorded with; what is in them may be other tokens each time, and another number of them with
/// [`Tokens::counted`].
pub struct Replay {
    channel: usize,
    /// On the heap's tables of then.
    ep: KernelPtr<DeviceEp>,
    graph: Graph,
}

impl Ep {
    /// Prepares a call of a channel: a dispatch of `tokens` to `packed`, `between`, which makes `rows` of what is
    /// there, and the combine of `rows` to `sums`. Nothing is launched.
    ///
    /// # Errors
    /// Sizes that cannot be, or a device without graphs.
    pub fn record(
        &self,
        channel: usize,
        (tokens, packed): (&Tokens<'_>, &Packed),
        between: Vec<Step>,
        (rows, sums): (&Buffer, &Buffer),
    ) -> Result<Replay, EpError> {
        let (gpu, dim) = self.launches();
        let dispatch = self.dispatch_kernel(channel, SEND | RECV, Some(tokens), packed)?;
        let combine = self.combine_kernel(channel, SEND | RECV, tokens.count, (rows, sums))?;
        let mut steps = vec![Step::new(dispatch, dim).resident()];
        steps.extend(between);
        steps.push(Step::new(combine, dim).resident());
        Ok(Replay { channel, ep: self.device(channel)?, graph: gpu.graph(steps)? })
    }

    /// Makes the call, and waits for its end. Calls of the channel may be made in between by other means.
    ///
    /// # Errors
    /// As [`Ep::dispatch`] and [`Ep::combine`]. The channel's last call has not ended, or ranks have left or
    /// come back since the call was recorded.
    pub fn replay(&mut self, heap: &Heap, replay: &Replay) -> Result<(), Failed<()>> {
        let channel = replay.channel;
        self.check_idle(channel)?;
        if self.device(channel)?.addr() != replay.ep.addr() {
            return Err(EpError::Recorded { channel }.into());
        }
        self.run_graph(heap, replay.channel, &replay.graph)
    }
}
