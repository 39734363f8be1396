//! For services whose peers come and go: register memory, exchange metadata, move lists of blocks by
//! the best path there is.
//!
//! ```
//! use std::time::Duration;
//! use warpverbs::agent::{Agent, AgentConfig, Op, PostOptions, State};
//!
//! # fn main() -> Result<(), warpverbs::agent::AgentError> {
//! let target = Agent::new("target", AgentConfig::default())?;
//! let theirs = target.register(vec![7; 4096], "cache")?;
//!
//! let agent = Agent::new("initiator", AgentConfig::default())?;
//! let ours = agent.register(vec![0; 4096], "cache")?;
//! // Metadata are bytes, which travel by any means.
//! let peer = agent.load_metadata(&target.metadata()?)?;
//! let from = agent.remote(&peer, "cache")?.blocks(0, 1024, 4)?;
//! let read = agent.transfer(Op::Read, &ours.blocks(0, 1024, 4)?, &from)?;
//! read.post(PostOptions::new().notify("read"))?;
//! assert_eq!(read.wait(Duration::from_secs(10))?, State::Done);
//! assert_eq!(ours.to_vec()?, [7; 4096]);
//! # drop(theirs);
//! # Ok(())
//! # }
//! ```

#[doc(inline)]
pub use warpverbs_agent::{
    Agent, AgentConfig, AgentError, BlockList, Completion, CopyBy, Decision, EncodingError,
    ErrorKind, Estimate, Exchange, Explanation, Generation, KernelAccess, LocalExchange, Memory,
    Message, Notification, Op, Owner, PathKind, PostOptions, Prepared, Reason, Registration,
    RemoteMemory, Run, State, StreamConfig, StreamReceiver, StreamSender, StreamStats, StreamStop,
    Telemetry, Transfer, Views, WaitRecord,
};
