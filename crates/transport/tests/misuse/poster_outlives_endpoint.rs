use warpverbs_transport::{Device, EndpointConfig, Error, Poster};

fn poster<'e>(device: &Device) -> Result<Poster<'e>, Error> {
    let endpoint = device.endpoint(&EndpointConfig::host())?;
    Ok(endpoint.host()?)
}

fn main() {
    let _ = poster;
}
