//! NIXL's calls over agents of this process.

mod bed;
mod environment;
mod exchange;
mod files;
mod lists;
mod transfers;
