//! NIXL's calls over agents of this process.

mod bed;
mod calls;
mod environment;
mod exchange;
mod files;
mod lists;
mod random;
mod transfers;
