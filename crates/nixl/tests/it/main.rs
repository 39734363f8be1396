//! NIXL's calls over agents of this process.

mod bed;
mod exchange;
mod lists;
mod transfers;
