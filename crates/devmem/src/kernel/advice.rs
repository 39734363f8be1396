//! Advice for each refusal of a binding.

use super::{NetlinkError, Operation};
use thiserror::Error;

/// The kernel did not bind a dmabuf to an interface.
#[derive(Debug, Error)]
#[error("{interface} does not bind a dmabuf for {}: {}", verb(*operation), self.advice())]
pub struct Refusal {
    /// The use that the dmabuf was to be bound for.
    pub operation: Operation,
    /// Name of the interface.
    pub interface: String,
    /// The kernel's answer.
    #[source]
    pub cause: NetlinkError,
}

fn verb(operation: Operation) -> &'static str {
    match operation {
        Operation::Receive => "receiving",
        Operation::Send => "sending",
    }
}

/// Parts of the kernel's messages, and the advice for each; `IF` stands for the interface. The
/// texts are those of `net/core/netdev-genl.c`, `net/core/devmem.c` and
/// `net/core/netdev_rx_queue.c`, 6.12 to 6.18. The first that fits counts.
const BY_TEXT: [(&str, &str); 9] = [
    ("AF_XDP", "the queue belongs to an AF_XDP socket: stop its program, or take another queue"),
    ("XDP", "remove the XDP program: `ip link set dev IF xdp off`"),
    ("tcp-data-split", "switch header split on: `ethtool -G IF tcp-data-split on`"),
    ("hds-thresh", "headers of all packets must be split: `ethtool -G IF hds-thresh 0`"),
    ("memory provider", "another program has bound the queue: stop it, or take another queue"),
    ("out of range", "the interface has fewer receive queues: `ethtool -l IF`, `ethtool -L IF …`"),
    ("DMA device", "the queues belong to different PCI functions: bind queues of one function"),
    ("align", "the memory must consist of whole pages: allocate a multiple of the page size"),
    (
        "netmem TX",
        "its driver cannot send from device memory: bnxt_en, gve (6.16), mlx5_core (6.17)",
    ),
];

/// The same by error number, where the kernel gave no text that is known.
const BY_NUMBER: [(i32, &str); 8] = [
    (libc::EPERM, "this needs CAP_NET_ADMIN: run it as root"),
    (libc::EACCES, "this needs CAP_NET_ADMIN: run it as root"),
    (
        libc::EOPNOTSUPP,
        "its driver cannot receive into device memory: bnxt_en (6.16), mlx5_core (6.17), gve in \
         DQO mode and fbnic (6.18) can",
    ),
    (libc::ENODEV, "there is no such interface in this network namespace: `ip link`"),
    (libc::EBADF, "the descriptor is closed: export the memory again"),
    (
        libc::EINVAL,
        "the descriptor is not a dmabuf that its device can reach, or header split is off: \
         `ethtool -G IF tcp-data-split on`",
    ),
    (libc::EBUSY, "the queue is in use: take another one"),
    (libc::EEXIST, "the queue is in use: take another one, or remove the XDP program"),
];

impl Refusal {
    /// One line with advice and the kernel's message.
    pub fn advice(&self) -> String {
        let said = self.cause.to_string();
        let hint = match &self.cause {
            NetlinkError::Refused { errno, message } => {
                let text = message.as_deref().unwrap_or_default();
                let by_text = BY_TEXT.iter().find(|(part, _)| text.contains(part));
                let by_text = by_text.map(|(_, hint)| *hint);
                by_text.or_else(|| {
                    BY_NUMBER.iter().find(|(number, _)| number == errno).map(|(_, hint)| *hint)
                })
            }
            NetlinkError::NoFamily { .. } => Some("device-memory TCP needs Linux 6.12 or newer"),
            _ => None,
        };
        match hint {
            Some(hint) => format!("{} (kernel: {said})", hint.replace("IF", &self.interface)),
            None => said,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advice(errno: i32, message: &str) -> String {
        let message = (!message.is_empty()).then(|| message.to_owned());
        let cause = NetlinkError::Refused { errno, message };
        Refusal { operation: Operation::Receive, interface: "eth7".to_owned(), cause }.advice()
    }

    #[test]
    fn every_refusal_is_one_line_with_what_helps() {
        let cases = [
            (libc::EINVAL, "tcp-data-split is disabled", "ethtool -G eth7 tcp-data-split on"),
            (libc::EINVAL, "hds-thresh is not zero", "ethtool -G eth7 hds-thresh 0"),
            (
                libc::EEXIST,
                "unable to custom memory provider to device with XDP program attached",
                "xdp off",
            ),
            (libc::EBUSY, "designated queue already used by AF_XDP", "AF_XDP socket"),
            (libc::EEXIST, "designated queue already memory provider bound", "another program"),
            (libc::ERANGE, "rx queue index out of range", "ethtool -l eth7"),
            (libc::EOPNOTSUPP, "DMA device mismatch between queue 1 and 2", "PCI functions"),
            (libc::EOPNOTSUPP, "Driver does not support netmem TX", "mlx5_core"),
            (libc::EOPNOTSUPP, "", "fbnic"),
            (libc::EPERM, "", "root"),
            (libc::ENODEV, "", "ip link"),
            (libc::EINVAL, "", "dmabuf"),
            (libc::EINVAL, "something new", "something new"),
            (libc::ENOMEM, "", "memory"),
        ];
        for (errno, message, expected) in cases {
            let line = advice(errno, message);
            assert!(line.contains(expected), "{line}");
            assert!(!line.contains('\n') && line.contains(message), "{line}");
        }
    }
}
