//! A NIC whose engine panicked.

use crate::common::{Pair, all_access};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use warpverbs_nic::link::{Arrival, Link, Sent};
use warpverbs_nic::{Config, ModifyError, NicError, SoftNic};
use warpverbs_transport::{
    EndpointConfig, EndpointHandle, Mtu, QpState, SendFlags, TransportError,
};

fn addr(host: u8) -> SocketAddr {
    (Ipv4Addr::new(192, 0, 2, host), 4791).into()
}

/// A network without peers, whose driver panics once it is armed.
#[derive(Debug)]
struct Fuse(Arc<AtomicBool>);

impl Link for Fuse {
    fn local(&self) -> SocketAddr {
        addr(1)
    }

    fn max_mtu(&self) -> Mtu {
        Mtu::B1024
    }

    fn send(&mut self, _: Duration, _: SocketAddr, _: &[u8], _: usize) -> Sent {
        Sent::Taken
    }

    fn receive(&mut self, _: Duration, _: &mut dyn FnMut(Arrival<'_>)) -> usize {
        assert!(!self.0.load(Ordering::Acquire), "the fuse has blown");
        0
    }
}

fn is_stopped(error: &TransportError) -> bool {
    matches!(error, TransportError::Nic(NicError::Stopped { panic, .. }) if panic.contains("fuse has blown"))
}

#[test]
fn a_panic_of_the_engine_ends_every_wait_and_is_the_first_cause() {
    let armed = Arc::new(AtomicBool::new(false));
    let nic = SoftNic::with_link(Config::default(), Box::new(Fuse(armed.clone()))).unwrap();
    let _engine = nic.spawn().unwrap();
    // No answer is missed: the work stays in flight.
    let config = EndpointConfig::host().timers(0, 0);
    let mut pair = Pair::stepped(&nic, &config);
    let away = pair.device.endpoint(&config).unwrap();
    away.connect(&EndpointHandle::foreign(addr(2), 77, 0, Mtu::B1024, 1).unwrap()).unwrap();

    let hour = Duration::from_secs(3600);
    let [a, b, to_away] =
        [&pair.a, &pair.b, &away].map(|end| end.host().unwrap().with_timeout(hour));
    let (from, to) = (pair.src.local(), pair.dst.remote());
    let posted = to_away.post_write(from, to, SendFlags::SIGNALED).unwrap();
    std::thread::scope(|scope| {
        let waiters = [
            scope.spawn(|| to_away.wait(posted)),
            scope.spawn(|| a.wait_recv().map(drop)),
            scope.spawn(|| b.wait_recv().map(drop)),
        ];
        armed.store(true, Ordering::Release);
        for waiter in waiters {
            let error = waiter.join().unwrap().unwrap_err();
            assert!(is_stopped(&error), "{error}");
        }
    });

    for end in [&pair.a, &pair.b, &away] {
        let health = end.health().unwrap();
        assert!(!health.is_ok() && !health.aborted && health.state == QpState::Err, "{health}");
        assert!(health.to_string().contains("the fuse has blown"), "{health}");
        let polled = end.host().unwrap().poll_recv().unwrap_err();
        assert!(is_stopped(&polled), "{polled}");
    }
    let refused = [
        pair.device.endpoint(&config).map(drop).unwrap_err(),
        pair.device.alloc_host(64, all_access()).map(drop).unwrap_err(),
    ];
    assert!(refused.iter().all(is_stopped), "{refused:?}");
    let refused = pair.a.reset().unwrap_err();
    assert!(matches!(refused, TransportError::Modify(ModifyError::Stopped)), "{refused}");
}
