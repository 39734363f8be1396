//! Plugins and backends, by the names that programs give them.

use crate::{Error, Kind, Status};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Parameters of a backend, by name.
pub type Params = BTreeMap<String, String>;

/// A mover of bytes, by the name under which programs ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plugin {
    /// The agent's paths between memories of processes. The name is that of NIXL's default, which
    /// programs ask for; UCX is not used.
    Ucx,
    /// Files.
    Posix,
}

impl Plugin {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Ucx, Self::Posix];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ucx => "UCX",
            Self::Posix => "POSIX",
        }
    }

    /// The plugin of this name.
    ///
    /// # Errors
    /// There is none; the error lists those that there are.
    pub fn named(name: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|plugin| plugin.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::new(Status::NotFound, format!("no plugin {name:?}, expected one of {names}"))
        })
    }

    /// The kinds of memory that it takes.
    pub fn kinds(self) -> &'static [Kind] {
        match self {
            Self::Ucx => &[Kind::Dram, Kind::Vram],
            Self::Posix => &[Kind::Dram, Kind::File],
        }
    }

    /// Its parameters with their defaults. Others are accepted and have no effect, so that programs
    /// that tune UCX run.
    pub fn params(self) -> Params {
        let params: &[(&str, &str)] = match self {
            Self::Ucx => &[("num_threads", "0"), ("num_workers", "1"), ("device_list", "")],
            Self::Posix => &[("use_uring", "true")],
        };
        params.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }
}

/// A backend of an agent: its place in the order of creation, from 1.
pub type BackendId = u64;

struct Backend {
    plugin: Plugin,
    params: Params,
}

/// The backends that a program has created.
#[derive(Default)]
pub(crate) struct Backends(Mutex<Vec<Backend>>);

impl Backends {
    fn look<T>(&self, id: BackendId, look: impl FnOnce(&Backend) -> T) -> Result<T, Error> {
        let all = crate::lock(&self.0);
        let at = usize::try_from(id).ok().and_then(|id| id.checked_sub(1));
        at.and_then(|at| all.get(at)).map(look).ok_or_else(|| {
            let why = format!("backend {id}: this agent has created {}", all.len());
            Error::new(Status::InvalidParam, why)
        })
    }

    pub(crate) fn create(&self, name: &str, params: &Params) -> Result<BackendId, Error> {
        let plugin = Plugin::named(name)?;
        let mut all = crate::lock(&self.0);
        if all.iter().any(|one| one.plugin == plugin) {
            let why = format!("backend {name} exists, an agent has one of a plugin");
            return Err(Error::new(Status::InvalidParam, why));
        }
        let mut merged = plugin.params();
        merged.extend(params.clone());
        all.push(Backend { plugin, params: merged });
        Ok(all.len() as BackendId)
    }

    pub(crate) fn plugin(&self, id: BackendId) -> Result<Plugin, Error> {
        self.look(id, |one| one.plugin)
    }

    pub(crate) fn params(&self, id: BackendId) -> Result<Params, Error> {
        self.look(id, |one| one.params.clone())
    }

    /// The parameters of the backend of a plugin, if it was created.
    pub(crate) fn created(&self, plugin: Plugin) -> Option<Params> {
        let all = crate::lock(&self.0);
        all.iter().find(|one| one.plugin == plugin).map(|one| one.params.clone())
    }

    /// Whether one of them takes memory of this kind.
    pub(crate) fn check(&self, kind: Kind) -> Result<(), Error> {
        let all = crate::lock(&self.0);
        if all.iter().any(|one| one.plugin.kinds().contains(&kind)) {
            return Ok(());
        }
        let names: Vec<_> = all.iter().map(|one| one.plugin.name()).collect();
        let why = match names.is_empty() {
            true => format!("no backend was created, so none takes {kind}"),
            false => format!("no backend takes {kind}; created: {}", names.join(", ")),
        };
        Err(Error::new(Status::NotFound, why))
    }
}
