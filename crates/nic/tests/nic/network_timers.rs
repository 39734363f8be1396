//! Timers of connections: two NICs over a cable in virtual time.

use std::time::Duration;
use warpverbs_dev::{Net, remote, sge};
use warpverbs_mlx5::wqe::WqeBuilder;
use warpverbs_nic::QpAttrs;

#[test]
fn an_engine_that_did_not_run_hears_before_it_sends_again() {
    let mut net = Net::perfect(QpAttrs::default());
    for number in 0..100 {
        let (from, to) = (sge(&net.a.mr, 0, 64), remote(&net.b.mr, 0));
        net.a.port.post_wqe(|buf, at| WqeBuilder::write(buf, at, to).sge(from).signaled());
        net.a.nic.step();
        net.b.nic.step();
        net.b.nic.step();
        // The answer has arrived, and all timers of the sender have run out.
        net.clock.advance(Duration::from_millis(900));
        net.run();
        assert_eq!(net.a.port.sent(), [(number, None)]);
    }
    let stats = net.a.port.qp.stats();
    assert_eq!((stats.resent, stats.timeouts), (0, 0));
    assert_eq!(net.a.nic.stats().net.sent, 100);
}
