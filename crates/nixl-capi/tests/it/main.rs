//! The library as programs have it: loaded by its name, its functions called by what NIXL's header says
//! of them.

mod agents;
mod bed;
mod files;
mod gpu;
mod lists;
mod log;
mod misuse;
mod objects;
mod table;
mod threads;
mod transfers;
