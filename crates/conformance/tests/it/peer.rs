//! A peer that is asked over a connection: what goes wrong is said, whatever is asked.

use proptest::prelude::*;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use warpverbs::gpu::{self, GpuChoice};
use warpverbs::raw::nic::Config;
use warpverbs::transport::{Context, EndpointConfig, NicChoice};
use warpverbs_conformance::{
    Actor, CASES, LONGEST_REGION, Link, Peer, Reply, Request, Setup, Shape, Side, Trouble, Verdict,
};

fn side(context: &Context) -> Side {
    let gpu = gpu::open(GpuChoice::Simt).expect("host SIMT");
    Side::open(context, &NicChoice::Soft).expect("a NIC").with_gpu(gpu)
}

fn context() -> Context {
    Context::builder().soft_config(Config::default()).build().expect("a context")
}

fn actor() -> Actor {
    Actor::new(side(&context()))
}

fn refused(actor: &mut Actor, request: Request, words: &str) {
    let shown = format!("{request:?}");
    match actor.act(request) {
        Reply::Trouble(trouble) => assert!(trouble.to_string().contains(words), "{trouble}"),
        other => panic!("{shown}: {other:?}"),
    }
}

/// Everything goes through bytes, and each way through `spoil`.
struct Wire<F> {
    actor: Actor,
    spoil: F,
}

impl<F: FnMut(u32, Reply) -> Result<Reply, String> + Send> Link for Wire<F> {
    fn ask(&mut self, request: Request) -> Result<Reply, String> {
        let bytes = postcard::to_stdvec(&request).expect("bytes");
        let reply = self.actor.act(postcard::from_bytes(&bytes).expect("a request"));
        let bytes = postcard::to_stdvec(&reply).expect("bytes");
        (self.spoil)(bytes.len() as u32, postcard::from_bytes(&bytes).expect("a reply"))
    }
}

fn setup(spoil: impl FnMut(u32, Reply) -> Result<Reply, String> + Send + 'static) -> Setup {
    let context = context();
    let peer = Peer::far(Box::new(Wire { actor: Actor::new(side(&context)), spoil }));
    Setup::new(side(&context), peer.expect("a peer"))
}

#[test]
fn cases_pass_when_all_that_is_said_goes_through_bytes() {
    let longest = Arc::new(Mutex::new(0));
    let seen = longest.clone();
    let setup = setup(move |len, reply| {
        let mut longest = seen.lock().expect("a lock");
        *longest = len.max(*longest);
        Ok(reply)
    });
    assert!(setup.b.is_far());
    for case in CASES {
        let outcome = setup.run(case);
        assert!(outcome.is_right() && outcome.verdict == Verdict::Passed, "{outcome}");
    }
    let longest = *longest.lock().expect("a lock");
    assert!(u64::from(longest) < LONGEST_REGION + 100, "{longest} bytes in one reply");
}

#[test]
fn a_peer_that_is_lost_is_asked_no_more() {
    let asked = Arc::new(Mutex::new(0));
    let count = asked.clone();
    let setup = setup(move |_, reply| {
        let mut asked = count.lock().expect("a lock");
        *asked += 1;
        if *asked < 20 { Ok(reply) } else { Err("the line is dead".into()) }
    });
    let case = CASES.iter().find(|case| case.name == "send_sizes").expect("a case");
    let outcome = setup.run(case);
    assert_eq!(outcome.verdict, Verdict::Failed("the line is dead".into()));
    assert_eq!(setup.b.lost(), Some("the line is dead"));
    assert_eq!(setup.run(case).verdict, Verdict::Failed("the line is dead".into()));
    assert_eq!(*asked.lock().expect("a lock"), 20);
}

/// A peer whose replies belong to other requests fails every case and breaks nothing.
#[test]
fn replies_out_of_turn_fail_the_case() {
    let mut first = true;
    let setup = setup(move |_, reply| {
        let real = std::mem::take(&mut first);
        Ok(if real { reply } else { Reply::Posted { index: 0 } })
    });
    for case in CASES {
        let outcome = setup.run(case);
        assert!(matches!(outcome.verdict, Verdict::Failed(_)), "{outcome}");
    }
}

#[test]
fn bad_requests_are_refused_with_what_is_wrong() {
    let mut actor = actor();
    let region = |len, access| Request::Region { len, access, foreign: false };
    refused(&mut actor, region(LONGEST_REGION + 1, 1), "expected at most");
    refused(&mut actor, region(64, 1 << 20), "rights 0x100000");
    refused(&mut actor, Request::Drop { object: 1 }, "no object has number 1");
    refused(&mut actor, Request::Load { region: 7, at: 0, len: 1 }, "no region has number 7");
    refused(&mut actor, Request::Taken, "no kernel is under way");
    let made = actor.act(region(64, 1));
    let Reply::Region { object, .. } = made else { panic!("{made:?}") };
    let load = |at, len| Request::Load { region: object, at, len };
    refused(&mut actor, load(1, u64::MAX), "outside a region");
    refused(&mut actor, load(60, 5), "outside a region");
    refused(
        &mut actor,
        Request::Store { region: object, at: 63, data: vec![1; 2] },
        "outside a region",
    );
    // The number of one kind of object is none of another.
    refused(&mut actor, Request::Quiet { endpoint: object }, "no endpoint");
    refused(&mut actor, Request::Queue { depth: 3, sges: 1 }, "a power of two");
    let made = actor.act(Request::Endpoint { shape: Shape::default() });
    let Reply::Endpoint { object: endpoint, handle } = made else { panic!("{made:?}") };
    refused(&mut actor, Request::Connect { endpoint, to: vec![1, 2, 3] }, "endpoint handle");
    refused(&mut actor, Request::Connect { endpoint, to: handle }, "itself");
    refused(&mut actor, Request::Quiet { endpoint: object }, "no endpoint");
    assert_eq!(actor.act(Request::Drop { object }), Reply::Done);
    refused(&mut actor, load(0, 1), "no region");
    let most = (0..2000).map(|_| actor.act(region(64, 1)));
    let last = most.last().expect("a reply");
    assert!(matches!(&last, Reply::Trouble(Trouble::Other(why)) if why.contains("objects")));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any bytes that become requests get a reply each.
    #[test]
    fn no_request_breaks_a_peer(
        seeds in prop::collection::vec((0u8..21, prop::collection::vec(any::<u8>(), 0..40)), 1..30)
    ) {
        let hasty = |config: EndpointConfig| config.timeout(Duration::from_millis(5));
        let mut actor = Actor::new(Side { configure: hasty, ..side(&context()) });
        for (kind, rest) in seeds {
            let small: Vec<u8> = rest.iter().map(|byte| byte % 6).collect();
            for tail in [rest, small] {
                let bytes = [&[kind][..], &tail].concat();
                if let Ok((request, _)) = postcard::take_from_bytes::<Request>(&bytes) {
                    let _ = actor.act(request);
                }
            }
        }
    }
}
