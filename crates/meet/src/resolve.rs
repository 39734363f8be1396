//! Host names to addresses, with a deadline, which the resolver of the operating system lacks.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::Deadline;

/// Why a host name gave no address.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum ResolveError {
    /// The resolver returned an error.
    #[error("host {host:?} has no address: {cause}")]
    Failed { host: String, cause: std::io::Error },
    /// The resolver did not answer in time.
    #[error("host {host:?} was not resolved within {waited:.1?}")]
    TimedOut { host: String, waited: Duration },
}

/// The addresses of `host`, at least one. A resolver that outlives `deadline` is left to its thread.
///
/// # Errors
/// The name has no address, or the resolver does not answer in time.
pub fn resolve(host: &str, port: u16, deadline: Deadline) -> Result<Vec<SocketAddr>, ResolveError> {
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    if let Ok(ip) = bare.parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, port)]);
    }
    let failed = |cause| ResolveError::Failed { host: host.into(), cause };
    let (sender, receiver) = mpsc::channel();
    let name = bare.to_owned();
    thread::Builder::new()
        .name("resolve".into())
        .spawn(move || {
            let found = (name.as_str(), port).to_socket_addrs().map(Vec::from_iter);
            // The receiver is gone once the deadline has passed.
            let _ = sender.send(found);
        })
        .map_err(failed)?;
    match receiver.recv_timeout(deadline.remaining().unwrap_or_default()) {
        Ok(Ok(found)) if found.is_empty() => Err(failed(std::io::ErrorKind::NotFound.into())),
        Ok(Ok(found)) => Ok(found),
        Ok(Err(cause)) => Err(failed(cause)),
        Err(_) => Err(ResolveError::TimedOut { host: host.into(), waited: deadline.waited() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_are_no_part_of_an_address_nor_of_its_scope() {
        let soon = || Deadline::after(Duration::from_secs(30));
        let found = |host| resolve(host, 7, soon()).unwrap();
        for (host, shown) in [("10.0.0.1", "10.0.0.1:7"), ("[fd00::1]", "[fd00::1]:7")] {
            assert_eq!(found(host), [shown.parse().unwrap()]);
        }
        // The loopback interface is always the first.
        for host in ["fe80::1%lo", "[fe80::1%lo]"] {
            assert_eq!(found(host)[0], "[fe80::1%1]:7".parse().unwrap());
        }
    }
}
