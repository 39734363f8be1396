//! Operations that begin together.

use crate::sockets::{Pair, bytes_of, drive, filled, pattern, plain};
use warpverbs_mem::{Access, HostBuf};
use warpverbs_tcp::protocol::PostError;
use warpverbs_tcp::{Config, TcpError};

const LEN: usize = 4096;

/// More short writes and reads than the sockets hold: headers and payload of many are gathered, and the
/// sockets take parts of what was gathered.
#[test]
fn many_short_writes_and_reads_begin_together() {
    for buffer in [None, Some(16 << 10)] {
        let mut config = Config::default();
        config.buffer = buffer;
        let Pair { ends, near, far, .. } = plain(&config);
        let count = near.agreed().open as usize;
        let bytes = pattern(1, LEN * count);
        let (from, to) = (filled(&bytes), HostBuf::region(LEN * count).unwrap());
        let back = HostBuf::region(LEN * count).unwrap();
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let registered = ends[1].register(&to, access).unwrap();
        let part = |n: usize| (n * LEN) as u64;
        let mut posting = near.posting();
        let mut writes = Vec::new();
        for n in 0..count {
            let piece = from.slice(part(n), LEN).unwrap();
            writes.push(posting.write(piece, registered.remote().at(part(n))).unwrap());
        }
        let more = posting.write(from.slice(0, LEN).unwrap(), registered.remote());
        assert!(matches!(more, Err(TcpError::Post(PostError::TooMany { .. }))), "{more:?}");
        drop(posting);
        for write in writes {
            assert_eq!(drive(&near, &far, write), Ok(LEN as u64), "{buffer:?}");
        }
        assert!(bytes_of(&to) == bytes);
        let mut posting = near.posting();
        let read = |n| {
            let into = back.slice(part(n), LEN).unwrap();
            posting.read(into, registered.remote().at(part(n))).unwrap()
        };
        let reads: Vec<_> = (0..count).map(read).collect();
        drop(posting);
        for read in reads {
            assert_eq!(drive(&near, &far, read), Ok(LEN as u64), "{buffer:?}");
        }
        assert!(bytes_of(&back) == bytes);
    }
}
