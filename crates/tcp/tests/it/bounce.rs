//! Bounce buffers of a link: how many there are, whichever engines copy.

use crate::sockets::{bytes_of, drive, filled, plain, random};
use std::sync::Arc;
use warpverbs_mem::testing::{LazyCopier, LazyMemory};
use warpverbs_tcp::Config;

/// Messages whose memory is that of two devices in turn, whose engines do nothing at first: the link
/// pins no more host memory than for one device.
#[test]
fn engines_that_take_turns_get_no_further_buffers() {
    const CHUNK: usize = 64 << 10;
    const MESSAGES: usize = 24;
    for sockets in [1, 2] {
        let pair = plain(&Config::default().sockets(sockets).chunk(CHUNK as u32));
        let copiers = [(); 2].map(|()| Arc::new(LazyCopier::default()));
        let bytes = random(MESSAGES * CHUNK);
        let mut posted = Vec::new();
        for (at, part) in bytes.chunks(CHUNK).enumerate() {
            let device = at % 2;
            let (to, seen) = LazyMemory::regions(CHUNK, device as u32, &copiers[device]).unwrap();
            posted.push((pair.far.irecv(&to).unwrap(), seen, part));
            pair.near.isend(&filled(part)).unwrap();
        }
        for _ in 0..2000 {
            pair.near.progress().unwrap();
            pair.far.progress().unwrap();
        }
        copiers.iter().for_each(|copier| copier.pace(1));
        for (received, seen, part) in posted {
            assert_eq!(drive(&pair.far, &pair.near, received), Ok(CHUNK as u64));
            assert!(bytes_of(&seen) == part);
        }
        // Two for each socket that receives.
        let buffers: u64 = copiers.iter().map(|copier| copier.buffers()).sum();
        assert!(buffers <= 2 * u64::from(sockets), "{buffers} buffers, {sockets} sockets");
    }
}
