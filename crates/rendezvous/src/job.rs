//! Bounds on a job: its ranks and its name.

/// Most ranks of a world.
pub const MAX_WORLD_SIZE: u32 = 65536;

/// The names that a job may have.
pub(crate) const JOB_NAME: &str = "1 to 128 bytes without '/'";

/// Whether it is one of [`JOB_NAME`].
pub(crate) fn is_job_name(job: &str) -> bool {
    (1..=128).contains(&job.len()) && !job.contains('/')
}
