//! Ends that receive into device memory, with the model of the kernel below them: what is particular
//! to them. The tests of all ends run on them too.

use crate::modelled::Model;
use crate::sockets::{Pair, bytes_of, connect, drive, filled, pattern};
use std::sync::Arc;
use warpverbs_devmem::QueueChoice;
use warpverbs_devmem::UnpackWay;
use warpverbs_devmem::unpack::UnpackConfig;
use warpverbs_gpu::Gpu;
use warpverbs_mem::HostBuf;
use warpverbs_tcp::protocol::Framing;
use warpverbs_tcp::{Config, Domain, Receive, TcpError};

fn pair(config: &Config, model: Model, way: UnpackWay) -> Pair {
    let receive = Receive::Device(model.device(way));
    let far = Domain::receiving(config.clone(), receive).unwrap();
    connect([Domain::new(config.clone()).unwrap(), far], [None, Some(model)])
}

#[test]
fn payload_is_in_device_memory_and_both_ends_say_so() {
    // One socket is asked for; headers need another one.
    let model = Model::new(1);
    let pair = pair(&Config::default().sockets(1), model.clone(), UnpackWay::Auto);
    let agreed = pair.far.agreed();
    assert_eq!(
        (agreed.sockets, agreed.receive, agreed.send),
        (2, Framing::Separate, Framing::Inline)
    );
    let (near, far) = (pair.near.explain(), pair.far.explain());
    assert!(far.contains("this end receives into device memory (headers on a socket"), "{far}");
    assert!(far.contains("a model of the kernel; the peer into host memory"), "{far}");
    assert!(near.contains("the fallback") && near.contains("peer into device memory"), "{near}");
    let len = 3 << 20;
    let (from, to) = (filled(&pattern(1, len)), HostBuf::region(len).unwrap());
    let received = pair.far.irecv(&to).unwrap();
    pair.near.isend(&from).unwrap();
    assert_eq!(drive(&pair.far, &pair.near, received), Ok(len as u64));
    assert!(bytes_of(&to) == pattern(1, len));
    // Most packets of the model are in the dmabuf, in fragments of at most a page.
    assert!(model.fragments() > (len / 4096 / 2) as u64, "{}", model.fragments());
    pair.settle();
}

/// A kernel that announces nonsense: either every byte is right, or the link ends with an error
/// that says what was wrong. Nothing outside of the receive is touched, and no token is lost.
#[test]
fn nonsense_of_the_kernel_ends_the_link_only() {
    let mut ended = 0;
    for seed in 0..20 {
        println!("seed {seed}");
        let model = Model::new(seed * 10).spoilt(20);
        let pair = pair(&Config::default().sockets(3), model.clone(), UnpackWay::Kernel);
        let (len, guard) = (1 << 20, 4096);
        let memory = filled(&vec![0xee; len + 2 * guard]);
        let to = memory.slice(guard as u64, len).unwrap();
        let received = pair.far.irecv(&to).unwrap();
        let sent = pair.near.isend(&filled(&pattern(7, len))).unwrap();
        match drive(&pair.far, &pair.near, received) {
            Ok(count) => assert_eq!(count, len as u64),
            Err(error) => {
                ended += 1;
                assert!(matches!(error, TcpError::Device(_)), "{error}");
                assert_eq!(pair.far.isend(&to).unwrap_err(), error);
                let near = drive(&pair.near, &pair.far, sent).err();
                assert!(near.is_none_or(|near| near.ends_link()));
            }
        }
        let outside = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0xee);
        let bytes = bytes_of(&memory);
        assert!(outside(&bytes[..guard]) && outside(&bytes[guard + len..]), "seed {seed}");
    }
    assert!(ended > 6, "{ended} of 20 links ended");
}

/// Device memory that cannot be bound is not an error: the domain falls back, and says why.
#[test]
fn what_cannot_be_bound_is_a_fallback_with_its_reason() {
    let gpu: Arc<dyn Gpu> = crate::modelled::simt();
    let choose = |queues: Option<&str>| {
        let queues: Option<QueueChoice> = queues.map(|queues| queues.parse().unwrap());
        let receive = Receive::choose(queues.as_ref(), 1 << 20, &gpu, UnpackConfig::default());
        Domain::receiving(Config::default(), receive).unwrap()
    };
    assert_eq!(choose(None).why(), "the fallback: no receive queue was named");
    let none = choose(Some("wv-none0:1")).why().to_owned();
    assert!(none.starts_with("the fallback: no interface wv-none0"), "{none}");
    // Without /dev/udmabuf, privileges, or a kernel that can do it, the reason is another one.
    let lo = choose(Some("lo:0")).why().to_owned();
    assert!(lo.starts_with("the fallback: ") && lo.len() > 40 && !lo.contains('\n'), "{lo}");
    // No interface of a machine that runs tests has queues to spare, or the test is not root.
    let auto = choose(Some("auto")).why().to_owned();
    assert!(auto.starts_with("the fallback: ") && !auto.contains("lo:"), "{auto}");
    println!("{auto}");
    let pair = connect([choose(Some("lo:0")), choose(None)], [None, None]);
    assert!(pair.near.explain().contains(&lo), "{}", pair.near.explain());
}
