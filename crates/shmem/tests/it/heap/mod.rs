//! Heaps of several ranks: how they are made, how they grow, and what is refused.

mod bad;
mod cut;
mod killed;
mod limits;
mod made;
mod matrix;
mod processes;
mod ranks;
mod registered;
