//! Rank and world size, and who says them.

use super::vars::Vars;
use super::{Conflict, EnvError, Flags, Setting};
use crate::MAX_WORLD_SIZE;

/// Source of a process's rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// The command line.
    Flags,
    /// torchrun, or anybody else who sets `RANK` and `WORLD_SIZE`.
    Torchrun,
    /// Open MPI's mpirun.
    OpenMpi,
    /// A starter that speaks PMI: Hydra, which is the mpiexec of MPICH and of Intel MPI.
    Pmi,
    /// Slurm's srun.
    Slurm,
}

impl Launcher {
    /// From the innermost to the outermost.
    const IN_ENVIRONMENT: [Launcher; 4] =
        [Launcher::Torchrun, Launcher::OpenMpi, Launcher::Pmi, Launcher::Slurm];

    /// Names of its rank, world size and local rank.
    fn names(self) -> [&'static str; 3] {
        match self {
            Launcher::Flags => ["--rank", "--world-size", "--local-rank"],
            Launcher::Torchrun => ["RANK", "WORLD_SIZE", "LOCAL_RANK"],
            Launcher::OpenMpi => {
                ["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"]
            }
            Launcher::Pmi => ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"],
            Launcher::Slurm => ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"],
        }
    }

    /// Name of the number of ranks on this machine, where the launcher says it.
    fn local_size(self) -> Option<&'static str> {
        match self {
            Launcher::OpenMpi => Some("OMPI_COMM_WORLD_LOCAL_SIZE"),
            Launcher::Pmi => Some("MPI_LOCALNRANKS"),
            Launcher::Flags | Launcher::Torchrun | Launcher::Slurm => None,
        }
    }
}

impl std::fmt::Display for Launcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Launcher::Flags => "the command line",
            Launcher::Torchrun => "torchrun",
            Launcher::OpenMpi => "Open MPI",
            Launcher::Pmi => "a PMI starter",
            Launcher::Slurm => "Slurm",
        })
    }
}

/// Rank and world size from one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) launcher: Launcher,
    pub(super) rank: u32,
    pub(super) world_size: u32,
    pub(super) local_rank: Option<u32>,
    /// Ranks of this machine, where the launcher says it.
    pub(super) local_size: Option<u32>,
}

/// Settings of a launcher, as far as it gives any.
#[derive(Clone, Copy)]
struct Said {
    launcher: Launcher,
    rank: Option<u32>,
    world_size: Option<u32>,
    local_rank: Option<u32>,
}

/// The identity, and what other launchers say that differs from it.
pub(super) fn identify(
    flags: &Flags,
    vars: &Vars<'_>,
) -> Result<(Identity, Vec<Conflict>), EnvError> {
    let mut said = Vec::new();
    for launcher in Launcher::IN_ENVIRONMENT {
        let [rank, world_size, local_rank] = launcher.names();
        let found = Said {
            launcher,
            rank: vars.number(rank, 0, MAX_WORLD_SIZE - 1)?,
            world_size: vars.number(world_size, 1, MAX_WORLD_SIZE)?,
            local_rank: vars.number(local_rank, 0, MAX_WORLD_SIZE - 1)?,
        };
        // `salloc` and `sbatch` set the number of tasks for a process that is none of them.
        let outside = launcher == Launcher::Slurm && found.rank.is_none();
        if !outside && (found.rank.is_some() || found.world_size.is_some()) {
            said.push(found);
        }
    }
    // `srun --mpi=pmi2` sets both; Slurm's variables also say where rank 0 is.
    if let [.., pmi, slurm] = said[..]
        && (pmi.launcher, slurm.launcher) == (Launcher::Pmi, Launcher::Slurm)
        && (pmi.rank, pmi.world_size) == (slurm.rank, slurm.world_size)
    {
        said.remove(said.len() - 2);
    }
    let mut chosen = match (flags.rank, flags.world_size) {
        (Some(rank), Some(world_size)) => Identity {
            launcher: Launcher::Flags,
            rank,
            world_size,
            local_rank: flags.local_rank,
            local_size: None,
        },
        _ => from_environment(flags, said.first())?,
    };
    let range = |name, value: u32, limit: u32| match value < limit {
        true => Ok(()),
        false => Err(EnvError::Invalid {
            setting: Setting { name, value: value.to_string() },
            expected: format!("a rank below the world size, {limit}"),
        }),
    };
    let [rank, world_size, local_rank] = names(flags, chosen.launcher);
    if !(1..=MAX_WORLD_SIZE).contains(&chosen.world_size) {
        return Err(EnvError::Invalid {
            setting: Setting { name: world_size, value: chosen.world_size.to_string() },
            expected: format!("a number from 1 to {MAX_WORLD_SIZE}"),
        });
    }
    range(rank, chosen.rank, chosen.world_size)?;
    chosen.local_rank.map_or(Ok(()), |local| range(local_rank, local, chosen.world_size))?;
    if let Some(name) = chosen.launcher.local_size() {
        let size = vars.number(name, 1, MAX_WORLD_SIZE)?;
        let contradiction = |other, value: u32, expected| EnvError::Contradiction {
            one: Setting { name, value: size.unwrap_or_default().to_string() },
            other: Setting { name: other, value: value.to_string() },
            expected,
        };
        if size.is_some_and(|size| size > chosen.world_size) {
            let expected = "at most as many ranks on a machine as in the world";
            return Err(contradiction(world_size, chosen.world_size, expected));
        }
        if let (Some(size), Some(local)) = (size, chosen.local_rank)
            && local >= size
        {
            let expected = "a local rank below the number of local ranks";
            return Err(contradiction(local_rank, local, expected));
        }
        chosen.local_size = size;
    }
    Ok((chosen, conflicts(flags, &chosen, &said)))
}

/// The names of what was chosen: each flag that is given stands for its variable.
fn names(flags: &Flags, launcher: Launcher) -> [&'static str; 3] {
    let given = [flags.rank.is_some(), flags.world_size.is_some(), flags.local_rank.is_some()];
    let (ours, theirs) = (Launcher::Flags.names(), launcher.names());
    std::array::from_fn(|index| if given[index] { ours[index] } else { theirs[index] })
}

/// Identity by the innermost launcher, with the flags that are given in place of its variables.
fn from_environment(flags: &Flags, said: Option<&Said>) -> Result<Identity, EnvError> {
    let Some(said) = said else {
        let [rank, world_size, _] = Launcher::Flags.names();
        return Err(match (flags.rank, flags.world_size) {
            (Some(_), None) => EnvError::Incomplete { present: rank, missing: world_size },
            (None, Some(_)) => EnvError::Incomplete { present: world_size, missing: rank },
            _ => EnvError::NoRank,
        });
    };
    let [rank, world_size, _] = said.launcher.names();
    let missing = |present, missing| EnvError::Incomplete { present, missing };
    Ok(Identity {
        launcher: said.launcher,
        rank: flags.rank.or(said.rank).ok_or(missing(world_size, rank))?,
        world_size: flags.world_size.or(said.world_size).ok_or(missing(rank, world_size))?,
        local_rank: flags.local_rank.or(said.local_rank),
        local_size: None,
    })
}

/// Every variable that says something else than what was chosen.
fn conflicts(flags: &Flags, chosen: &Identity, said: &[Said]) -> Vec<Conflict> {
    let used = [Some(chosen.rank), Some(chosen.world_size), chosen.local_rank];
    let names = names(flags, chosen.launcher);
    let mut conflicts = Vec::new();
    for other in said {
        let values = [other.rank, other.world_size, other.local_rank];
        for (index, (used, ignored)) in used.into_iter().zip(values).enumerate() {
            let (Some(used), Some(ignored)) = (used, ignored) else { continue };
            if used != ignored {
                let setting = |name, value: u32| Setting { name, value: value.to_string() };
                conflicts.push(Conflict {
                    used: setting(names[index], used),
                    ignored: setting(other.launcher.names()[index], ignored),
                });
            }
        }
    }
    conflicts
}
