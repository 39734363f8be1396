//! Lists of descriptors, and the transfers between them.

use super::{Agent, checked_count, unsupported};
use crate::backend::{BackendId, Params, Plugin};
use crate::index::runs;
use crate::prepared::{Blocks, Prepared, Rows};
use crate::transfer::{Notification, Terms, Transfer, Work};
use crate::{
    Config, Error, FileInfo, FileOp, FilePiece, Files, Kind, List, RegDesc, RegList, Status,
    Strided,
};
use warpverbs_agent::{BlockList, Op};

impl Agent {
    /// Looks up a list: of this agent's side of transfers if `agent` is empty, else of that peer, which may
    /// be this agent.
    ///
    /// # Errors
    /// A descriptor is not in registered memory, or the peer is not known.
    pub fn prepare(&self, agent: &str, list: &List) -> Result<Prepared, Error> {
        self.prepare_rows(agent, list.kind, list.rows())
    }

    /// As [`Agent::prepare`], for blocks in rows of equal distances.
    ///
    /// # Errors
    /// As for [`Agent::prepare`].
    pub fn prepare_strided(
        &self,
        agent: &str,
        kind: Kind,
        rows: &[Strided],
    ) -> Result<Prepared, Error> {
        self.prepare_rows(agent, kind, rows.iter().copied())
    }

    fn prepare_rows(
        &self,
        agent: &str,
        kind: Kind,
        rows: impl ExactSizeIterator<Item = Strided> + Clone,
    ) -> Result<Prepared, Error> {
        let agent = agent.to_owned();
        if kind == Kind::File {
            let blocks = Blocks::Files(self.rows(&agent, kind, rows)?);
            return Ok(Prepared { kind, agent, blocks });
        }
        let blocks = self.blocks(&agent, kind, rows.clone())?;
        let prepared = self.agent()?.prepare(&blocks)?;
        let keeps = agent.is_empty() && self.backends.created(Plugin::Posix).is_some();
        let rows = keeps.then(|| self.rows(&agent, kind, rows)).transpose()?;
        Ok(Prepared { kind, agent, blocks: Blocks::Memory { prepared, rows } })
    }

    /// A list of this agent's memory or files, as transfers with files take it.
    fn rows(
        &self,
        agent: &str,
        kind: Kind,
        rows: impl ExactSizeIterator<Item = Strided>,
    ) -> Result<Rows, Error> {
        if !agent.is_empty() && agent != self.name {
            let why =
                format!("files of {agent}: only those of this agent, {}, are reached", self.name);
            return Err(Error::new(Status::NotSupported, why));
        }
        checked_count(rows.len())?;
        let (index, rows): (_, Vec<Strided>) = (self.memories.index(), rows.collect());
        runs(&index, kind, rows.iter().copied(), &self.owned())?;
        Ok(Rows::new(kind, index, rows))
    }

    /// The list as the agent takes it.
    pub(super) fn blocks(
        &self,
        agent: &str,
        kind: Kind,
        rows: impl ExactSizeIterator<Item = Strided>,
    ) -> Result<BlockList, Error> {
        if !matches!(kind, Kind::Dram | Kind::Vram) {
            return Err(unsupported(kind));
        }
        checked_count(rows.len())?;
        if agent.is_empty() || agent == self.name {
            let runs = runs(&self.memories.index(), kind, rows, &self.owned())?;
            return Ok(BlockList::of_runs(self.agent()?.owner(), runs)?);
        }
        let known = self.known(agent)?;
        let of = format!("as the metadata of {agent} say");
        let runs = runs(&known.index, kind, rows, &of)?;
        Ok(BlockList::of_runs(&known.owner, runs)?)
    }

    /// For errors: whose memory it is.
    fn owned(&self) -> String {
        format!("of {}", self.name)
    }

    /// A transfer between blocks of prepared lists: the block `local_index[i]` here, `remote_index[i]` there.
    ///
    /// # Errors
    /// Indices or lengths do not fit, or no path leads there.
    pub fn make(
        &self,
        op: Op,
        (local, local_index): (&Prepared, &[u32]),
        (remote, remote_index): (&Prepared, &[u32]),
        notification: Notification,
    ) -> Result<Transfer, Error> {
        match (&local.blocks, &remote.blocks) {
            (Blocks::Memory { prepared: here, .. }, Blocks::Memory { prepared: there, .. }) => {
                let agent = self.agent()?;
                let inner = agent.prepared_transfer(op, here, local_index, there, remote_index)?;
                Ok(self.transfer(inner, local_index.len(), notification))
            }
            (Blocks::Memory { rows: Some(here), .. }, Blocks::Files(there)) => {
                let pairs = local_index.iter().zip(remote_index);
                if local_index.len() != remote_index.len() {
                    let (here, there) = (local_index.len(), remote_index.len());
                    let why = format!("{here} indices here, {there} of files, expected as many");
                    return Err(Error::new(Status::InvalidParam, why));
                }
                let pairs = pairs.map(|(here, there)| (*here as usize, *there as usize));
                self.file_transfer(op, (here, there), pairs, notification)
            }
            (Blocks::Files(_), _) => Err(unsupported(Kind::File)),
            _ => {
                let why =
                    "transfers with files need a backend POSIX, created before lists are prepared";
                Err(Error::new(Status::NotFound, why))
            }
        }
    }

    /// A transfer between all blocks of two lists, in order.
    ///
    /// # Errors
    /// As for [`Agent::prepare`] and [`Agent::make`].
    pub fn create(
        &self,
        op: Op,
        local: &List,
        remote: &List,
        peer: &str,
        notification: Notification,
    ) -> Result<Transfer, Error> {
        let (here, there) = (local.descs.len(), remote.descs.len());
        if here != there {
            let why = format!("{here} descriptors here, {there} at {peer}, expected as many");
            return Err(Error::new(Status::InvalidParam, why));
        }
        if remote.kind == Kind::File {
            self.backends.check(Kind::File)?;
            let mine = self.rows("", local.kind, local.rows())?;
            let files = self.rows(peer, remote.kind, remote.rows())?;
            let pairs = (0..here).map(|at| (at, at));
            return self.file_transfer(op, (&mine, &files), pairs, notification);
        }
        let mine = self.blocks("", local.kind, local.rows())?;
        let theirs = self.blocks(peer, remote.kind, remote.rows())?;
        let inner = self.agent()?.transfer(op, &mine, &theirs)?;
        Ok(self.transfer(inner, here, notification))
    }

    fn transfer(
        &self,
        inner: warpverbs_agent::Transfer,
        descriptors: usize,
        notification: Notification,
    ) -> Transfer {
        Transfer::new(Work::Memory(inner), descriptors, notification, self.terms())
    }

    fn terms(&self) -> Terms {
        let Config { telemetry, transfer_deadline: deadline, .. } = self.config;
        Terms { deadline, telemetry }
    }

    /// A transfer between this agent's memory and its files, of blocks by their numbers.
    fn file_transfer(
        &self,
        op: Op,
        (here, there): (&Rows, &Rows),
        pairs: impl ExactSizeIterator<Item = (usize, usize)>,
        notification: Notification,
    ) -> Result<Transfer, Error> {
        let count = pairs.len();
        if count == 0 {
            let why = "no blocks, expected at least 1";
            return Err(Error::new(Status::InvalidParam, why));
        }
        let mut pieces = Vec::with_capacity(count);
        for (number, (mine, theirs)) in pairs.enumerate() {
            let (memory, at, block) = here.get(mine)?;
            let (file, _, range) = there.get(theirs)?;
            if block.len != range.len {
                let (here, there) = (block.len, range.len);
                let why = format!("descriptor {number}: {here} bytes of memory, {there} of a file");
                return Err(Error::new(Status::InvalidParam, why));
            }
            let gone = || {
                Error::new(
                    Status::NotFound,
                    format!("descriptor {number} is not registered any more"),
                )
            };
            let (region, fd) = (memory.region().ok_or_else(gone)?, file.file().ok_or_else(gone)?);
            pieces.push(FilePiece { memory: region, at, fd, offset: range.addr, len: range.len });
        }
        let op = match op {
            Op::Read => FileOp::Read,
            Op::Write => FileOp::Write,
        };
        let inner = self.files.transfer(op, pieces)?;
        Ok(Transfer::new(Work::Files(inner), count, notification, self.terms()))
    }

    /// Files, by path (the bytes of a descriptor) or by number: size, mode and time of change, or
    /// nothing if there is none.
    ///
    /// # Errors
    /// The backend is none of this agent's, or knows of no files.
    pub fn query(&self, list: &RegList, backend: BackendId) -> Result<Vec<Option<Params>>, Error> {
        let plugin = self.backends.plugin(backend)?;
        if plugin != Plugin::Posix {
            let why = format!("{} cannot be asked, expected POSIX", plugin.name());
            return Err(Error::new(Status::NotSupported, why));
        }
        let ask = |one: &RegDesc| match (&one.meta[..], i32::try_from(one.desc.dev)) {
            ([], Ok(fd)) => Files::query_descriptor(fd).ok(),
            ([], Err(_)) => None,
            (path, _) => Files::query(path),
        };
        let entries = |found: FileInfo| {
            found.entries().map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
        };
        Ok(list.descs.iter().map(|one| ask(one).map(entries)).collect())
    }
}
