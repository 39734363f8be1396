//! Identity of this process in its job: flags, then the variables of the launcher.
//!
//! Rank and world size come from one source, never half from one and half from another. Of several
//! launchers the innermost is believed: torchrun and mpiexec may run inside `srun`, not the other
//! way round.

mod error;
mod launcher;
mod slurm;
mod vars;

use launcher::Identity;

pub use error::{Conflict, EnvError, Setting};
pub use launcher::Launcher;
pub use slurm::{NodeListError, first_host};
use vars::Vars;

/// PyTorch's own default, which torchrun and its users know.
pub const DEFAULT_PORT: u16 = 29500;

/// Settings on the command line. Each wins over the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    /// `--rank`
    pub rank: Option<u32>,
    /// `--world-size`
    pub world_size: Option<u32>,
    /// `--local-rank`
    pub local_rank: Option<u32>,
    /// `--master-addr`
    pub master_addr: Option<String>,
    /// `--master-port`
    pub master_port: Option<u16>,
    /// `--job`
    pub job: Option<String>,
    /// `--generation`
    pub generation: Option<u64>,
}

/// Identity of this process in its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankInfo {
    /// Source of the rank.
    pub launcher: Launcher,
    /// From 0 to `world_size` − 1.
    pub rank: u32,
    /// How many ranks.
    pub world_size: u32,
    /// Rank among those of this machine, where the launcher says it.
    pub local_rank: Option<u32>,
    /// Host of the store.
    pub master_addr: String,
    /// Port of the store.
    pub master_port: u16,
    /// Name of the job.
    pub job: String,
    /// Which start of the job this is.
    pub generation: u64,
    /// Whether the launcher itself runs the store, so that rank 0 must not.
    pub store_is_launchers: bool,
    /// Variables that said something else, and were not believed. They have been logged.
    pub conflicts: Vec<Conflict>,
}

impl RankInfo {
    /// From `flags` and the environment of the process.
    pub fn from_env(flags: &Flags) -> Result<RankInfo, EnvError> {
        RankInfo::from_vars(flags, &|name| std::env::var_os(name))
    }

    /// From `flags` and variables given by `lookup`.
    pub fn from_vars(
        flags: &Flags,
        lookup: &dyn Fn(&str) -> Option<std::ffi::OsString>,
    ) -> Result<RankInfo, EnvError> {
        let vars = Vars::new(lookup);
        let (identity, conflicts) = launcher::identify(flags, &vars)?;
        let Identity { launcher, rank, world_size, local_rank, local_size: _ } = identity;
        for conflict in &conflicts {
            tracing::warn!("{conflict}");
        }
        let agent = launcher == Launcher::Torchrun
            && vars.text("TORCHELASTIC_USE_AGENT_STORE")?.is_some_and(|text| text == "True");
        Ok(RankInfo {
            launcher,
            rank,
            world_size,
            local_rank,
            master_addr: master_addr(flags, &vars, &identity)?,
            master_port: match flags.master_port {
                Some(port) => port,
                None => vars.number("MASTER_PORT", 1, 65535)?.unwrap_or(DEFAULT_PORT),
            },
            job: job(flags, &vars, launcher)?,
            generation: generation(flags, &vars, launcher)?,
            store_is_launchers: agent,
            conflicts,
        })
    }
}

fn master_addr(flags: &Flags, vars: &Vars<'_>, identity: &Identity) -> Result<String, EnvError> {
    if let Some(addr) = &flags.master_addr {
        return Ok(addr.clone());
    }
    if let Some(addr) = vars.text("MASTER_ADDR")? {
        return Ok(addr);
    }
    if identity.launcher == Launcher::Slurm {
        for variable in ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"] {
            let Some(value) = vars.text(variable)? else { continue };
            return first_host(&value).map_err(|cause| EnvError::NodeList {
                variable,
                value,
                cause,
            });
        }
    }
    if identity.world_size == 1 || identity.local_size == Some(identity.world_size) {
        return Ok("127.0.0.1".into());
    }
    Err(EnvError::NoMaster { launcher: identity.launcher, world_size: identity.world_size })
}

/// The launchers' names for a job, so that two jobs at one store do not meet.
fn job(flags: &Flags, vars: &Vars<'_>, launcher: Launcher) -> Result<String, EnvError> {
    let theirs = match launcher {
        Launcher::Flags | Launcher::Pmi => &[][..],
        Launcher::Torchrun => &["TORCHELASTIC_RUN_ID"],
        Launcher::OpenMpi => &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"],
        Launcher::Slurm => &["SLURM_JOB_ID"],
    };
    let (setting, job) = match &flags.job {
        Some(job) => (Setting { name: "--job", value: job.clone() }, job.clone()),
        None => {
            let mut found = None;
            for &name in ["WARPVERBS_JOB"].iter().chain(theirs) {
                found = vars.text(name)?.map(|value| (name, value));
                if found.is_some() {
                    break;
                }
            }
            let Some((name, value)) = found else { return Ok("default".into()) };
            // A launcher's name is only made fit; one that the user chose is refused below.
            let theirs = name != "WARPVERBS_JOB";
            let job = if theirs { value.replace('/', "_") } else { value.clone() };
            (Setting { name, value }, job)
        }
    };
    if crate::job::is_job_name(&job) {
        return Ok(job);
    }
    Err(EnvError::Invalid { setting, expected: crate::job::JOB_NAME.into() })
}

fn generation(flags: &Flags, vars: &Vars<'_>, launcher: Launcher) -> Result<u64, EnvError> {
    if let Some(generation) = flags.generation {
        return Ok(generation);
    }
    let theirs = match launcher {
        Launcher::Torchrun => "TORCHELASTIC_RESTART_COUNT",
        Launcher::Slurm => "SLURM_RESTART_COUNT",
        Launcher::Flags | Launcher::OpenMpi | Launcher::Pmi => "WARPVERBS_GENERATION",
    };
    for name in ["WARPVERBS_GENERATION", theirs] {
        if let Some(generation) = vars.number(name, 0, u64::MAX)? {
            return Ok(generation);
        }
    }
    Ok(0)
}
