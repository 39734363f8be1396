use warpverbs_transport::{Endpoint, Error};

fn finish(endpoint: Endpoint) -> Result<(), Error> {
    let host = endpoint.host()?;
    endpoint.close();
    host.quiet()
}

fn main() {
    let _ = finish;
}
