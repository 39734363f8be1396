//! Sends without a copy, over loopback: the kernel copies there when it delivers, and what it has not
//! delivered yet it reads from the program's memory.

use crate::sockets::{LONG, Pair, bytes_of, connect, drive, filled, pattern, plain};
use warpverbs_mem::{Access, HostBuf};
use warpverbs_tcp::{Config, Domain};

/// More than the receiver's buffer holds, less than both.
const LEN: usize = 256 << 10;

/// One socket with much room at the near end and little at the far end.
fn narrow(zerocopy: Option<u64>) -> Pair {
    let mut near = Config::default().sockets(1).zerocopy(zerocopy);
    let mut far = near.clone();
    (near.buffer, far.buffer) = (Some(4 << 20), Some(32 << 10));
    connect([near, far].map(|config| Domain::new(config).unwrap()), [None, None])
}

#[test]
fn memory_is_in_use_until_the_kernel_has_sent_it() {
    for write in [false, true] {
        for zerocopy in [None, Some(64 << 10)] {
            let Pair { ends, near, far, .. } = narrow(zerocopy);
            let bytes = pattern(3, LEN);
            let (from, to) = (filled(&bytes), HostBuf::region(LEN).unwrap());
            let remote = ends[1].register(&to, Access::REMOTE_WRITE).unwrap();
            let received = far.irecv(&to).unwrap();
            // Tells the near end of the receive.
            far.notify(b"go").unwrap();
            near.wait_notification(LONG).unwrap();
            let sent = match write {
                false => near.isend(&from).unwrap(),
                true => near.write(&from, remote.remote()).unwrap(),
            };
            if !write && zerocopy.is_none() {
                // All of it fits into the sockets.
                near.wait(sent, LONG).unwrap();
                assert_eq!(near.zerocopied(), (0, 0));
            } else {
                for _ in 0..1000 {
                    assert_eq!(near.test(sent), Ok(None), "{write} {zerocopy:?}");
                }
                assert_eq!(near.zerocopied().0 != 0, zerocopy.is_some());
                assert_eq!(drive(&near, &far, sent), Ok(LEN as u64));
            }
            if !write {
                assert_eq!(drive(&far, &near, received), Ok(LEN as u64));
            }
            assert!(bytes_of(&to) == bytes);
        }
    }
}

#[test]
fn bytes_that_change_after_the_end_of_a_link_are_not_sent() {
    for abort in [true, false] {
        let Pair { near, far, ends: _ends, .. } = narrow(Some(64 << 10));
        let bytes = pattern(5, LEN);
        let (from, to) = (filled(&bytes), filled(&vec![9; LEN]));
        let received = far.irecv(&to).unwrap();
        far.notify(b"go").unwrap();
        near.wait_notification(LONG).unwrap();
        near.isend(&from).unwrap();
        assert!(near.zerocopied().0 != 0);
        match abort {
            true => near.abort(),
            false => drop(near),
        }
        from.write(0, &vec![0xee; LEN]).unwrap();
        let lost = far.wait(received, LONG).unwrap_err();
        assert!(lost.ends_link(), "{lost}");
        let arrived = bytes_of(&to);
        let known = |(i, byte): (usize, &u8)| *byte == bytes[i] || *byte == 9;
        assert!(arrived.iter().enumerate().all(known), "{abort}");
        assert!(arrived.contains(&9), "all of it was delivered, so nothing was shown");
    }
}

#[test]
fn a_way_that_copies_is_given_copies_after_the_first_answer() {
    let Pair { near, far, .. } = plain(&Config::default().zerocopy(Some(64 << 10)));
    let mut made = 0;
    for round in 0..20 {
        let (from, to) = (filled(&pattern(round, 1 << 20)), HostBuf::region(1 << 20).unwrap());
        let received = far.irecv(&to).unwrap();
        let sent = near.isend(&from).unwrap();
        assert_eq!(drive(&far, &near, received), Ok(1 << 20));
        assert_eq!(drive(&near, &far, sent), Ok(1 << 20));
        assert!(bytes_of(&to) == pattern(round, 1 << 20));
        let (all, copied) = near.zerocopied();
        assert_eq!((all, copied), (all, all), "loopback copies, and all are complete");
        if round == 0 {
            assert!(all > 0);
            made = all;
        }
    }
    assert_eq!(near.zerocopied().0, made);
    near.abort();
}
