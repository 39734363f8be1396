//! Transitions, and what a refusal says.

use crate::pair::{ALL, End, pair};
use nix::errno::Errno;
use std::time::Duration;
use warpverbs_verbs::testing::fake;
use warpverbs_verbs::{
    AsyncEvent, AttrMask, Finding, ModifyError, Mtu, Path, QpAttrs, QpState, TransitionError,
    VerbsError,
};

fn refusal(end: &End, state: QpState, attrs: &QpAttrs) -> ModifyError {
    match end.qp.modify(state, attrs) {
        Err(VerbsError::Modify(error)) => *error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_qp_goes_through_all_its_states() {
    let Some(fake) = fake() else { return };
    let (a, b) = pair(&fake);
    let (state, attrs) = a.qp.query(AttrMask::DEST_QPN | AttrMask::MTU | AttrMask::ACCESS).unwrap();
    assert_eq!((state, attrs.dest_qpn), (QpState::Rts, Some(b.qp.qpn())));
    assert_eq!((attrs.mtu, attrs.timeout), (Some(Mtu::B1024), None));
    assert_eq!(attrs.access, Some(ALL - warpverbs_mem::Access::LOCAL_WRITE));
    let notify = QpAttrs { sqd_notify: Some(true), ..QpAttrs::default() };
    a.qp.modify(QpState::Sqd, &notify).unwrap();
    let drained = AsyncEvent::SqDrained { qpn: a.qp.qpn() };
    let context = a.pd.context();
    assert_eq!(context.next_event(Duration::from_secs(30)).unwrap(), Some(drained));
    for state in [QpState::Rts, QpState::Err, QpState::Reset] {
        a.qp.modify(state, &QpAttrs::default()).unwrap();
        assert_eq!(a.qp.state().unwrap(), state);
    }
    a.connect(&b);
    assert_eq!(a.qp.state().unwrap(), QpState::Rts);
}

#[test]
fn a_refusal_names_what_is_wrong() {
    let Some(fake) = fake() else { return };
    let context = fake.verbs().device("fake0").unwrap().open().unwrap();
    let end = End::new(&context, |_| None);
    let error = refusal(&end, QpState::Rts, &QpAttrs::rts(0));
    let (from, to) = (QpState::Reset, QpState::Rts);
    let none = Finding::Transition(TransitionError::NoTransition { from, to });
    assert_eq!((error.from, error.findings), (Some(from), vec![none]));
    let partial = QpAttrs { port: None, ..QpAttrs::init(1, ALL) };
    let error = refusal(&end, QpState::Init, &partial);
    let (to, missing) = (QpState::Init, AttrMask::PORT);
    let missing = Finding::Transition(TransitionError::Missing { from, to, missing });
    assert_eq!(error.findings, [missing]);
    end.qp.modify(QpState::Init, &QpAttrs::init(1, ALL)).unwrap();
    let gid = context.choose_gid(1).unwrap().entry.gid;
    let attrs = QpAttrs {
        max_dest_rd_atomic: Some(99),
        timeout: Some(14),
        ..QpAttrs::rtr(Path::roce(1, 7, gid), Mtu::B4096, 3, 0)
    };
    let error = refusal(&end, QpState::Rtr, &attrs);
    assert_eq!(error.source.errno, Errno::EINVAL);
    let text = error.to_string();
    for words in [
        "INIT → RTR",
        "fake0",
        "EINVAL",
        "does not take TIMEOUT",
        "MTU is 4096, at most 1024",
        "MAX_DEST_RD_ATOMIC is 99, at most 16",
        "GID 7 of the port is not in use",
    ] {
        assert!(text.contains(words), "{words:?} is not in {text}");
    }
}

#[test]
fn a_refusal_without_a_reason_says_so() {
    let Some(fake) = fake() else { return };
    let context = fake.verbs().device("fake0").unwrap().open().unwrap();
    let end = End::new(&context, |_| None);
    fake.fail_next("ibv_modify_qp", libc::EPERM);
    let error = refusal(&end, QpState::Init, &QpAttrs::init(1, ALL));
    assert_eq!(error.findings, []);
    assert!(error.to_string().contains("EPERM"), "{error}");
    assert!(error.to_string().contains("nothing is wrong with"), "{error}");
}

#[test]
fn an_unreachable_peer_is_named() {
    let Some(fake) = fake() else { return };
    let context = fake.verbs().device("fake0").unwrap().open().unwrap();
    let end = End::new(&context, |_| None);
    end.qp.modify(QpState::Init, &QpAttrs::init(1, ALL)).unwrap();
    let gid = context.choose_gid(1).unwrap().entry;
    fake.fail_next("ibv_modify_qp", libc::EHOSTUNREACH);
    let rtr = QpAttrs::rtr(Path::roce(1, gid.index as u8, gid.gid), Mtu::B1024, 3, 0);
    let text = refusal(&end, QpState::Rtr, &rtr).to_string();
    assert!(text.contains("no way to ::ffff:127.0.0.1") && text.contains("ARP"), "{text}");
}
