use warpverbs_transport::{Endpoint, Error, SendFlags};

fn restart(endpoint: &mut Endpoint) -> Result<(), Error> {
    let host = endpoint.host()?;
    endpoint.reset()?;
    host.post_nop(SendFlags::SIGNALED).map(drop)
}

fn main() {
    let _ = restart;
}
