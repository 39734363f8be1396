//! The memory model by litmus tests; the device library's headers and the host's protocol over
//! small configurations; weakenings and faults, which these must notice.

mod cases;
mod cost;
mod ep;
mod litmus;
mod mutants;
mod protocol;
