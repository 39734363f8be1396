//! The examples of several processes, on this machine: worlds that do what they should, and worlds
//! of which a rank is missing, wrong or killed.

mod captures;
mod ends;
mod heaps;
mod joins;
mod ranks;
mod users;
mod worlds;
