//! What peers ask of this agent by a connection.

use super::frame::Service;
use super::link::Link;
use crate::AgentError;
use crate::inner::Inner;
use crate::list::Owner;
use std::sync::Arc;

pub(super) fn answer(
    inner: &Arc<Inner>,
    link: &Arc<Link>,
    from: &Owner,
    service: Service,
    bytes: &[u8],
) -> Result<Vec<u8>, String> {
    let say = |error: AgentError| error.to_string();
    match service {
        Service::Fetch => inner.full_metadata().map_err(say),
        Service::Load => inner.load(bytes, Some(from)).map(|_| Vec::new()).map_err(say),
        Service::Pairs => inner.answering.accept(inner, link, from, bytes),
        Service::Tcp => inner.serving.invite(inner, link),
        Service::TcpKey => {
            let id =
                bytes.try_into().map_err(|_| format!("{} bytes name no memory", bytes.len()))?;
            inner.memory(u32::from_le_bytes(id)).map_err(say)?.tcp_key(&inner.serving)
        }
        Service::Stream => inner.streams.open(inner, link, from, bytes),
    }
}
