//! Findings that a rule came too late for: `allowed.txt` has how many each file or crate still has.
//! The numbers can only shrink.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

const FILE: &str = "crates/xtask/src/lint/allowed.txt";
const HEAD: &str = "\
# Findings of `cargo xtask lint` that are older than their rule: rule, place, number. Numbers only
# shrink; `cargo xtask lint --shrink` writes those of today.
";

/// Numbers of findings, by rule and place.
#[derive(Default)]
pub(super) struct Allowed {
    listed: BTreeMap<(String, PathBuf), usize>,
    today: BTreeMap<(String, PathBuf), usize>,
    /// The number of a place that is not listed.
    unlisted: usize,
    /// The list is written anew instead of being compared.
    shrink: bool,
}

impl Allowed {
    /// The list of the workspace at `root`. Where there is none, one can be written of all there is.
    pub(super) fn read(root: &Path, shrink: bool) -> io::Result<Self> {
        match std::fs::read_to_string(root.join(FILE)) {
            Ok(text) => Ok(Self { shrink, ..Self::parse(&text)? }),
            Err(error) if error.kind() == io::ErrorKind::NotFound && shrink => {
                Ok(Self { shrink, unlisted: usize::MAX, ..Self::default() })
            }
            Err(error) => Err(error),
        }
    }

    fn parse(text: &str) -> io::Result<Self> {
        let mut listed = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<_> = line.split(' ').collect();
            let entry = match words[..] {
                [rule, place, count] => count.parse().ok().map(|count| (rule, place, count)),
                _ => None,
            };
            let Some((rule, place, count)) = entry else {
                return Err(io::Error::other(format!(
                    "{FILE}: {line:?} is not an entry, expected `RULE PLACE COUNT`"
                )));
            };
            listed.insert((rule.to_owned(), place.into()), count);
        }
        Ok(Self { listed, ..Self::default() })
    }

    /// Takes what a rule has found somewhere. More than is listed is a finding, with `message`.
    pub(super) fn judge(
        &mut self,
        rule: &str,
        place: &Path,
        found: usize,
        message: impl FnOnce() -> String,
    ) -> usize {
        let key = (rule.to_owned(), place.to_path_buf());
        let most = self.listed.get(&key).copied().unwrap_or(self.unlisted);
        let today = found.min(most);
        if today > 0 {
            self.today.insert(key, today);
        }
        if found <= most {
            return 0;
        }
        println!("{}: {found}, {most} allowed: {}", place.display(), message());
        1
    }

    /// Compares the whole list with what was found, or writes it.
    pub(super) fn end(self, root: &Path) -> io::Result<usize> {
        if self.shrink {
            std::fs::write(root.join(FILE), text(&self.today))?;
            return Ok(0);
        }
        if self.today == self.listed {
            return Ok(0);
        }
        println!(
            "{FILE}: some numbers are smaller today; write them by `cargo xtask lint --shrink`"
        );
        Ok(1)
    }
}

fn text(counts: &BTreeMap<(String, PathBuf), usize>) -> String {
    let line = |((rule, place), count): (&(String, PathBuf), &usize)| {
        format!("{rule} {} {count}\n", place.display())
    };
    HEAD.to_owned() + &counts.iter().map(line).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_can_only_shrink() {
        let list = format!("{HEAD}circle crates/a 9\ncircle crates/b 12\n");
        let mut allowed = Allowed::parse(&list).expect("a list");
        assert_eq!(allowed.judge("circle", Path::new("crates/a"), 10, String::new), 1);
        assert_eq!(allowed.judge("circle", Path::new("crates/b"), 11, String::new), 0);
        assert_eq!(allowed.judge("circle", Path::new("crates/c"), 9, String::new), 1);
        assert_eq!(
            text(&allowed.today).replace(HEAD, ""),
            "circle crates/a 9\ncircle crates/b 11\n"
        );
        assert_ne!(allowed.today, allowed.listed, "11 must be written in place of 12");
        assert!(Allowed::parse("circle crates/a").is_err());
    }
}
