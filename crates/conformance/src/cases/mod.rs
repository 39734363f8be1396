//! All cases, by subject.

mod atomics;
mod kernel_errors;
mod kernel_messages;
mod kernels;
mod messages;
mod one_sided;
mod order;
mod recovery;
mod refusals;
mod shared;
mod silence;

use crate::case::{Case, Poster};

const fn makes_work_fail(module: &str) -> bool {
    matches!(module.as_bytes(), b"refusals" | b"silence" | b"recovery" | b"kernel_errors")
}

macro_rules! cases {
    ($($poster:ident $module:ident :: $name:ident, $about:literal;)*) => {
        /// Every case.
        pub const CASES: &[Case] = &[$(Case {
            name: stringify!($name),
            poster: Poster::$poster,
            about: $about,
            fails: makes_work_fail(stringify!($module)),
            run: $module::$name,
        },)*];
    };
}

cases! {
    Host messages::send_sizes, "SEND of every length about the path MTU arrives whole";
    Host messages::send_imm, "an immediate arrives with its message, in the writer's byte order";
    Host messages::send_inline, "a message inside the work request may change after posting";
    Host messages::send_scatter, "a message is gathered from pieces and scattered into pieces";
    Host messages::send_nothing, "a message of no bytes takes a receive and no memory";
    Host messages::send_invalidate, "SEND with invalidate takes the peer's key back, and says which";
    Host messages::receive_order, "receives are taken in order, through many laps of their ring";
    Host shared::shared_receives, "endpoints that share a receive queue each get their messages";
    Host shared::shared_receives_return, "a shared queue's receives come back for reuse";
    Host one_sided::write_sizes, "WRITE of every length about the path MTU, and nothing beside it";
    Host one_sided::write_gather, "WRITE gathers pieces, an empty one among them";
    Host one_sided::write_inline, "inline WRITE of every length";
    Host one_sided::write_imm, "WRITE with immediate places the data and takes a receive";
    Host one_sided::read_sizes, "READ of every length about the path MTU, and nothing beside it";
    Host one_sided::read_scatter, "READ scatters into pieces";
    Host one_sided::many_reads, "more READs than may be under way at a time";
    Host one_sided::no_bytes, "WRITE and READ of no bytes succeed under any key";
    Host one_sided::large, "a WRITE and a READ of more than a megabyte";
    Host one_sided::small_mtu, "a path MTU of 256";
    Host one_sided::unsignalled, "unsignalled work completes, through many laps of the ring";
    Host one_sided::both_ways, "data goes both ways at the same time";
    Host atomics::fetch_add, "fetch-and-add gives the old value and stores the sum";
    Host atomics::compare_swap, "compare-and-swap stores only over what was expected";
    Host atomics::contended, "atomics of several endpoints on one word: each old value once";
    Host atomics::masked_atomics, "masked fetch-and-add and compare-and-swap, 4 and 8 bytes";
    Host refusals::bad_lkey, "an unknown local key: local protection error";
    Host refusals::local_bounds, "local memory beyond its region: local protection error";
    Host refusals::read_needs_local_write, "READ into memory without LOCAL_WRITE: local protection error";
    Host refusals::foreign_lkey, "a local key of another protection domain: local protection error";
    Host refusals::local_invalidate, "an own key that was taken back: local protection error";
    Host refusals::bad_rkey, "an unknown remote key: remote access error";
    Host refusals::remote_bounds, "remote memory beyond its region: remote access error, nothing written";
    Host refusals::missing_right, "a remote right that the region lacks: remote access error";
    Host refusals::foreign_rkey, "a remote key of another protection domain: remote access error";
    Host refusals::stale_rkey, "the key of a region that is gone: remote access error";
    Host refusals::queue_pair_denies, "an operation that the peer's QP does not allow: remote invalid request";
    Host refusals::receive_too_small, "a message longer than its receive fails on both sides";
    Host refusals::receive_without_right, "a receive into memory without LOCAL_WRITE fails on both sides";
    Host silence::no_receive, "no receive for the retries allowed: receiver-not-ready retries exceeded";
    Host silence::late_receive, "a receive that comes late takes the message that waited";
    Host silence::peer_gone, "a peer that is gone: transport retries exceeded";
    Host silence::peer_failed, "a peer in the error state: transport retries exceeded";
    Host order::write_then_send, "a message arrives behind the WRITEs before it";
    Host order::last_write_wins, "WRITEs to one word take effect in order";
    Host order::fenced, "fenced work sees what READs before it brought";
    Host order::reads_and_writes, "a READ behind a WRITE sees it";
    Host recovery::first_cause_stays, "every later call returns the first error";
    Host recovery::nothing_behind_an_error, "work behind a failed work request is not carried out";
    Host recovery::receives_are_flushed, "receives of a failed QP complete as flushed";
    Host recovery::reset_and_reconnect, "after an error both ends are reset, connected, and as good as new";
    Host recovery::others_go_on, "the failure of one pair leaves another alone";
    Host recovery::destroyed_under_load, "endpoints and regions may go in any order with work under way";
    Kernel kernels::kernel_write, "WRITEs of many lanes on one QP";
    Kernel kernels::kernel_write_inline, "inline WRITEs of many lanes, of one to four WQEBBs";
    Kernel kernels::kernel_read, "READs of many lanes";
    Kernel kernels::kernel_atomics, "fetch-and-adds of many lanes, each old value once";
    Kernel kernels::kernel_fenced, "fenced WRITEs of what READs before them brought";
    Kernel kernels::kernel_masked_atomics, "masked fetch-and-adds of many lanes, 4 and 8 bytes";
    Kernel kernel_messages::kernel_write_imm, "WRITE with immediate and its receive, both by kernels";
    Kernel kernel_messages::kernel_messages, "messages between two kernels, in order, their bytes whole";
    Kernel kernel_messages::kernel_send_imm, "messages with immediates between two kernels";
    Kernel kernel_messages::kernel_receives, "a kernel takes messages of every kind";
    Kernel kernel_messages::kernel_receives_invalidate, "a kernel takes a SEND with invalidate";
    Kernel kernel_messages::kernel_shared_receives, "kernels of two endpoints take from one queue";
    Kernel kernel_errors::kernel_bad_rkey, "every lane learns of a remote access error";
    Kernel kernel_errors::kernel_bad_lkey, "every lane learns of a local protection error";
    Kernel kernel_errors::kernel_no_receive, "a kernel learns of receiver-not-ready retries exceeded";
    Kernel kernel_errors::kernel_peer_gone, "a kernel learns of transport retries exceeded";
    Kernel kernel_errors::kernel_reconnect, "after an error of a kernel, reset and connected, it posts again";
}
