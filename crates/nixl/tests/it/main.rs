//! NIXL's calls over agents of this process.

mod bed;
mod exchange;
mod files;
mod lists;
mod transfers;
