//! The list of cases on software NICs and on a libibverbs without hardware, and a peer's requests.

mod inline;
mod peer;
mod soft;
