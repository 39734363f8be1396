//! Handles that several threads use.

use crate::bed::{Bed, INVALID_PARAM, at, call, end, made, ok, run, seeded, text};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

#[test]
fn transfers_of_several_threads_on_one_agent_move_their_own_bytes() {
    const THREADS: usize = 4;
    const LEN: usize = 1 << 16;
    let mut rng = seeded();
    let mut here = Bed::registered("t1", THREADS * LEN, &mut rng);
    let mut there = Bed::registered("t2", THREADS * LEN, &mut rng);
    here.load(&there);
    let part = |bed: &mut Bed, at: usize| bed.list(&[(at * LEN, LEN)]);
    let work: Vec<_> = (0..THREADS).map(|at| (part(&mut here, at), part(&mut there, at))).collect();
    let agent = here.agent;
    thread::scope(|scope| {
        for (local, remote) in work {
            scope.spawn(move || {
                for _ in 0..20 {
                    let mut request = 0_u64;
                    let args = [agent, 1, local, remote, text(c"t2"), at(&mut request), 0];
                    ok("nixl_capi_create_xfer_req", &args);
                    assert_eq!(run(agent, request, 0), 0);
                    end(agent, request);
                }
            });
        }
    });
    assert!(here.memory == there.memory, "not all parts were moved");
}

#[test]
fn what_one_thread_frees_another_may_be_using() {
    const ROUNDS: usize = 2000;
    let seed = seeded().next_u64();
    let shared = AtomicU64::new(made("nixl_capi_create_params", &[]));
    let refused = |seed| {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut refused = 0;
        for _ in 0..ROUNDS {
            let params = shared.load(Ordering::Relaxed);
            let status = match rng.next_u32() % 4 {
                0 => {
                    let new = made("nixl_capi_create_params", &[]);
                    let old = shared.swap(new, Ordering::Relaxed);
                    // Of those that free it, whoever they are, one does.
                    call("nixl_capi_destroy_params", &[old])
                }
                1 => call("nixl_capi_params_add", &[params, text(c"key"), text(c"value")]),
                2 => call("nixl_capi_params_is_empty", &[params, at(&mut 0_u64)]),
                _ => {
                    let mut iter = 0_u64;
                    let args = [params, at(&mut iter)];
                    let status = call("nixl_capi_params_create_iterator", &args);
                    if status == 0 {
                        ok("nixl_capi_params_destroy_iterator", &[iter]);
                    }
                    status
                }
            };
            assert!(status == 0 || status == INVALID_PARAM, "{status}");
            refused += usize::from(status != 0);
        }
        refused
    };
    let refused: usize = thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|at| scope.spawn(move || refused(seed.wrapping_add(at)))).collect();
        threads.into_iter().map(|one| one.join().unwrap()).sum()
    });
    println!("{refused} of {} calls came after the end of their handle", 4 * ROUNDS);
    ok("nixl_capi_destroy_params", &[shared.into_inner()]);
}
