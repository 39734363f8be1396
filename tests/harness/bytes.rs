//! Payload of examples, and its comparison.

use anyhow::{Context as _, Result, bail, ensure};
use std::fs::File;
use std::path::PathBuf;

/// The file at `path`, or this program; its name and length.
pub(crate) fn open(path: Option<PathBuf>) -> Result<(File, String, u64)> {
    let path = path.map_or_else(std::env::current_exe, Ok).context("path of this program")?;
    let name = path.display().to_string();
    let file = File::open(&path).with_context(|| name.clone())?;
    let found = file.metadata().with_context(|| name.clone())?;
    ensure!(found.is_file(), "{name} is no file");
    Ok((file, name, found.len()))
}

/// Bytes that differ from their neighbours and from zero-filled memory.
pub(crate) fn sample(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251 + 1) as u8).collect()
}

/// Contents of a destination before: every byte differs from the one that is to come, so that a byte
/// that nobody wrote is seen.
pub(crate) fn poison(expected: &[u8]) -> Vec<u8> {
    expected.iter().map(|byte| !byte).collect()
}

/// Compares what arrived with what was sent.
pub(crate) fn compare(expected: &[u8], found: &[u8]) -> Result<()> {
    ensure!(expected.len() == found.len(), "{} bytes arrived of {}", found.len(), expected.len());
    let wrong = expected.iter().zip(found).position(|(e, f)| e != f);
    if let Some(at) = wrong {
        bail!("byte {at} is {:#04x}, expected {:#04x}", found[at], expected[at]);
    }
    Ok(())
}
