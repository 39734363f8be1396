//! The Rust side's numbers are those of the C++ side.

use std::path::Path;
use warpverbs_kernel_build::Mirror;
use warpverbs_shmem::layout::mail_block_bytes;

#[test]
fn values_are_the_same() {
    let mut mirror = Mirror::new("#include \"warpverbs/mail.h\"\nusing namespace wv;");
    mirror.equal("alarm_of_peer(0)", 1);
    for (bytes, log_slots) in [(0, 1), (1, 1), (8, 3), (9, 3), (65_537, 4), (u32::MAX, 16)] {
        let mailbox = format!("mail_block_bytes(Mailbox{{0, {bytes}u, {log_slots}, 30, 0}})");
        mirror.equal(&mailbox, format!("{}ull", mail_block_bytes(bytes, log_slots)));
    }
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels/include");
    mirror.compile(&include).unwrap();
}
