//! The file system that facts are read from: `/`, or a made-up tree in tests.

use std::path::{Path, PathBuf};

/// Prefix of every path looked at.
pub(crate) struct Root(PathBuf);

impl Root {
    pub(crate) fn machine() -> Self {
        Self(PathBuf::from("/"))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        self.0.join(path)
    }

    /// Trimmed text of a file, if it can be read.
    pub(crate) fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        std::fs::read_to_string(self.join(path)).ok().map(|text| text.trim().to_owned())
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.join(path).exists()
    }

    /// Sorted names in a folder; none if there is no such folder.
    pub(crate) fn list(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = std::fs::read_dir(self.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

/// A tree with these files; gone when the first value is dropped.
#[cfg(test)]
pub(crate) fn fake(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let root = Root(dir.path().to_owned());
    for (path, text) in files {
        add(&root, path, text);
    }
    (dir, root)
}

/// One more file.
#[cfg(test)]
pub(crate) fn add(root: &Root, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
    std::fs::write(path, text).expect("a file");
}

/// A link to something in the tree.
#[cfg(test)]
pub(crate) fn link(root: &Root, path: &str, to: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
    std::os::unix::fs::symlink(root.join(to), path).expect("a link");
}

/// Adds the machine of the tests to a tree.
#[cfg(test)]
pub(crate) fn add_machine(root: &Root) {
    warpverbs_dev::machine::add_machine(root.path());
}
