//! What the environment says wrongly, or twice.

use super::{Launcher, NodeListError};

/// A variable or flag and its value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}={value:?}")]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// What it says.
    pub value: String,
}

/// Two settings that differ.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{ignored} is ignored: {used} is used instead")]
pub struct Conflict {
    /// The one that was believed.
    pub used: Setting,
    /// The other.
    pub ignored: Setting,
}

/// Why a process does not know who it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EnvError {
    /// A value that means nothing.
    #[error("{setting}: expected {expected}")]
    Invalid {
        /// What was set.
        setting: Setting,
        /// What would have been right.
        expected: String,
    },
    /// Two values that cannot both be true.
    #[error("{one} contradicts {other}: expected {expected}")]
    Contradiction {
        /// One of them.
        one: Setting,
        /// The other.
        other: Setting,
        /// What would have been right.
        expected: &'static str,
    },
    /// Half of what is needed.
    #[error("{present} is set and {missing} is not; both or neither are expected")]
    Incomplete {
        /// The variable or flag that is set.
        present: &'static str,
        /// Its counterpart.
        missing: &'static str,
    },
    /// No launcher, no flags.
    #[error(
        "no rank: give --rank and --world-size, or start with torchrun (RANK, WORLD_SIZE), Open \
         MPI (OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE), MPICH or Intel MPI (PMI_RANK, PMI_SIZE) \
         or Slurm (SLURM_PROCID, SLURM_NTASKS)"
    )]
    NoRank,
    /// Nobody says where the store is.
    #[error(
        "{launcher} starts {world_size} ranks, but nothing says where rank 0 is: give \
         --master-addr or set MASTER_ADDR{}",
        hint(launcher)
    )]
    NoMaster {
        /// Who said rank and world size.
        launcher: Launcher,
        /// How many ranks.
        world_size: u32,
    },
    /// Slurm's list of hosts cannot be read.
    #[error("{variable}={value:?}: {cause}")]
    NodeList {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What was wrong.
        cause: NodeListError,
    },
}

/// How the starter hands a variable to all ranks.
fn hint(launcher: &Launcher) -> &'static str {
    match launcher {
        Launcher::OpenMpi => " (mpirun -x MASTER_ADDR=HOST)",
        Launcher::Pmi => " (mpiexec -genv MASTER_ADDR HOST)",
        _ => "",
    }
}
