//! A file that is carried in parts, with digests of what was sent and of what arrived.

use crate::common::{Session, compare};
use anyhow::{Context as _, Result, ensure};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::Read as _;
use std::path::PathBuf;

/// Bytes that are in memory at a time, unless one message is longer.
const PART: u64 = 4 << 20;

pub(crate) struct Carried {
    path: PathBuf,
    file: File,
    pub(crate) len: u64,
    /// Bytes of a part: whole messages.
    part: u64,
    at: u64,
    begun: bool,
    digests: [Sha256; 2],
}

impl Carried {
    /// The file at `path`, or this program, for messages of `chunk` bytes.
    pub(crate) fn open(path: Option<PathBuf>, chunk: u64) -> Result<Self> {
        let path = match path {
            Some(path) => path,
            None => std::env::current_exe().context("path of this program")?,
        };
        let named = || path.display().to_string();
        let file = File::open(&path).with_context(named)?;
        let found = file.metadata().with_context(named)?;
        ensure!(found.is_file(), "{} is no file", path.display());
        let (len, digests) = (found.len(), [Sha256::new(), Sha256::new()]);
        let part = (PART / chunk).max(1) * chunk;
        Ok(Self { path, file, len, part, at: 0, begun: false, digests })
    }

    pub(crate) fn name(&self) -> String {
        self.path.display().to_string()
    }

    /// Bytes of the largest part, at least one.
    pub(crate) fn room(&self) -> Result<usize> {
        Ok(usize::try_from(self.part.min(self.len).max(1))?)
    }

    /// The next part. An empty file has one, of no bytes.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>> {
        if self.at == self.len && self.begun {
            return Ok(None);
        }
        self.begun = true;
        let mut data = vec![0; usize::try_from(self.part.min(self.len - self.at))?];
        self.file.read_exact(&mut data).with_context(|| self.name())?;
        Ok(Some(data))
    }

    /// Compares a part with what arrived.
    pub(crate) fn arrived(&mut self, data: &[u8], found: &[u8]) -> Result<()> {
        self.digests[0].update(data);
        self.digests[1].update(found);
        compare(data, found).with_context(|| format!("from byte {} on", self.at))?;
        self.at += data.len() as u64;
        Ok(())
    }

    /// Compares the digests of the whole, and tells them.
    pub(crate) fn end(self, session: &mut Session) -> Result<()> {
        let name = self.name();
        let [sent, received] = self.digests.map(|digest| {
            digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        });
        session.say(&format!("  SHA-256 before  {sent}\n  SHA-256 after   {received}"))?;
        ensure!(sent == received, "SHA-256 is {received}, expected {sent}");
        session.fact("file", name);
        session.fact("bytes", self.len);
        session.fact("sha256_sent", sent);
        session.fact("sha256_received", received);
        Ok(())
    }
}
