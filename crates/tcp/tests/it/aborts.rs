//! Links that are ended while their peer goes on.

use super::sockets::{LONG, Pair, bytes_of, filled, pairs, random};
use std::time::Instant;
use warpverbs_mem::{Access, HostBuf};
use warpverbs_tcp::{Config, TcpError};

/// Of a link that is ended while its peer writes at full speed, no byte lands after `abort` has
/// returned, whatever has arrived by then.
#[test]
fn no_byte_lands_after_an_abort() {
    for turn in 0..10 {
        for pair in pairs(&Config::default().sockets(3)) {
            let Pair { ends, near, far, .. } = pair;
            let memory = HostBuf::region(8 << 20).unwrap();
            let registered = ends[1].register(&memory, Access::REMOTE_WRITE).unwrap();
            let from = filled(&random(8 << 20));
            std::thread::scope(|scope| {
                let serving = scope.spawn(|| far.serve(LONG, || false));
                let writing = scope.spawn(|| {
                    loop {
                        let write = near.write(&from, registered.remote())?;
                        near.wait(write, LONG)?;
                    }
                    #[expect(unreachable_code, reason = "it ends by an error")]
                    Ok::<(), TcpError>(())
                });
                let mut first = [0; 8];
                let began = Instant::now();
                while first == [0; 8] {
                    memory.read(turn * 999, &mut first).unwrap();
                    assert!(began.elapsed() < LONG);
                }
                far.abort();
                memory.write(0, &vec![0xa5; 8 << 20]).unwrap();
                assert_eq!(serving.join().unwrap(), Err(TcpError::Aborted));
                assert!(writing.join().unwrap().unwrap_err().ends_link());
            });
            assert!(bytes_of(&memory).iter().all(|byte| *byte == 0xa5));
        }
    }
}
