//! Settings that are wrong, or given twice.

use super::{Launcher, NodeListError};

/// A variable or flag and its value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name}={value:?}")]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// Its value.
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

/// Why a process does not know its rank and world.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum EnvError {
    /// A value that means nothing.
    #[error("{setting}: expected {expected}")]
    Invalid { setting: Setting, expected: String },
    /// Two values that cannot both be true.
    #[error("{one} contradicts {other}: expected {expected}")]
    Contradiction { one: Setting, other: Setting, expected: &'static str },
    /// Half of what is needed.
    #[error("{present} is set and {missing} is not; both or neither are expected")]
    Incomplete { present: &'static str, missing: &'static str },
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
    NoMaster { launcher: Launcher, world_size: u32 },
    /// Slurm's list of hosts cannot be read.
    #[error("{variable}={value:?}: {cause}")]
    NodeList { variable: &'static str, value: String, cause: NodeListError },
}

/// How the starter hands a variable to all ranks.
fn hint(launcher: &Launcher) -> &'static str {
    match launcher {
        Launcher::OpenMpi => " (mpirun -x MASTER_ADDR=HOST)",
        Launcher::Pmi => " (mpiexec -genv MASTER_ADDR HOST)",
        _ => "",
    }
}
