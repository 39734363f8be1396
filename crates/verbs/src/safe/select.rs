//! Which devices are used: `WARPVERBS_NICS`.

use std::str::FromStr;
use thiserror::Error;

/// Selects devices: `mlx5_0,mlx5_1` takes these two in this order, `^mlx5_2` all but this one,
/// `mlx5_*,^mlx5_2` both. A `*` at the end stands for any rest of a name.
pub const NICS_ENV: &str = "WARPVERBS_NICS";

/// A list of devices to take and to leave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    take: Vec<String>,
    leave: Vec<String>,
}

/// Why a selection cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SelectionError {
    /// An item between commas is empty or has a `*` elsewhere than at its end.
    #[error("{NICS_ENV}={text:?}: {item:?} is not a device name, expected a,b or ^a or mlx5_*")]
    Malformed {
        /// The whole selection.
        text: String,
        /// The item.
        item: String,
    },
    /// A device that is to be taken does not exist.
    #[error("{NICS_ENV} names {item:?}, which is not here; there are: {found}")]
    Unknown {
        /// The item.
        item: String,
        /// The names of all devices.
        found: String,
    },
    /// The environment variable is not text.
    #[error("{NICS_ENV} is not valid UTF-8")]
    NotText,
}

impl FromStr for Selection {
    type Err = SelectionError;

    fn from_str(text: &str) -> Result<Self, SelectionError> {
        let mut selection = Self::default();
        for item in text.split(',').map(str::trim).filter(|_| !text.trim().is_empty()) {
            let (list, name) = match item.strip_prefix('^') {
                Some(name) => (&mut selection.leave, name.trim()),
                None => (&mut selection.take, item),
            };
            let stem = name.strip_suffix('*').unwrap_or(name);
            if name.is_empty() || stem.contains(['*', '^', ' ']) {
                let (text, item) = (text.to_owned(), item.to_owned());
                return Err(SelectionError::Malformed { text, item });
            }
            list.push(name.to_owned());
        }
        Ok(selection)
    }
}

impl Selection {
    /// The selection in [`NICS_ENV`]; everything if it is not set or empty.
    pub fn from_env() -> Result<Self, SelectionError> {
        match std::env::var(NICS_ENV) {
            Ok(text) => text.parse(),
            Err(std::env::VarError::NotPresent) => Ok(Self::default()),
            Err(std::env::VarError::NotUnicode(_)) => Err(SelectionError::NotText),
        }
    }

    /// The selected ones of `all`, in the order in which they are named, each once.
    pub fn apply<T>(
        &self,
        all: Vec<T>,
        name: impl Fn(&T) -> &str,
    ) -> Result<Vec<T>, SelectionError> {
        let mut rest: Vec<Option<T>> = all.into_iter().map(Some).collect();
        let names: Vec<String> = rest.iter().flatten().map(|d| name(d).to_owned()).collect();
        let left = |name: &str| self.leave.iter().any(|item| matches(item, name));
        let everything = ["*".to_owned()];
        let take = if self.take.is_empty() { &everything[..] } else { &self.take };
        let mut out = Vec::new();
        for item in take {
            let hits: Vec<_> = (0..names.len()).filter(|&i| matches(item, &names[i])).collect();
            if hits.is_empty() && !item.ends_with('*') {
                let found = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                return Err(SelectionError::Unknown { item: item.clone(), found });
            }
            let wanted = hits.into_iter().filter(|&i| !left(&names[i]));
            out.extend(wanted.filter_map(|i| rest[i].take()));
        }
        Ok(out)
    }
}

fn matches(item: &str, name: &str) -> bool {
    match item.strip_suffix('*') {
        Some(stem) => name.starts_with(stem),
        None => item == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(text: &str) -> Result<Vec<&'static str>, SelectionError> {
        let all = vec!["mlx5_0", "mlx5_1", "mlx5_10", "rxe0"];
        text.parse::<Selection>()?.apply(all, |name| name)
    }

    #[test]
    fn names_are_taken_and_left() {
        let rows: [(&str, &[&str]); 9] = [
            ("", &["mlx5_0", "mlx5_1", "mlx5_10", "rxe0"]),
            ("rxe0,mlx5_0", &["rxe0", "mlx5_0"]),
            ("^mlx5_1", &["mlx5_0", "mlx5_10", "rxe0"]),
            ("mlx5_1", &["mlx5_1"]),
            ("mlx5_*, ^mlx5_10", &["mlx5_0", "mlx5_1"]),
            ("rxe0,mlx5_0,rxe0", &["rxe0", "mlx5_0"]),
            ("^mlx5_*,^rxe0", &[]),
            ("hfi1_*", &[]),
            ("^no_such", &["mlx5_0", "mlx5_1", "mlx5_10", "rxe0"]),
        ];
        for (text, expected) in rows {
            assert_eq!(select(text).as_deref(), Ok(expected), "{text:?}");
        }
    }

    #[test]
    fn what_cannot_be_followed_is_named() {
        for text in ["mlx5_0,,rxe0", "^", "mlx5*_0", "a b", "^^a", ","] {
            let refused = select(text);
            assert!(
                matches!(refused, Err(SelectionError::Malformed { .. })),
                "{text}: {refused:?}"
            );
        }
        let error = select("mlx5_0,mlx5_7").unwrap_err().to_string();
        assert!(error.contains("mlx5_7") && error.contains("mlx5_10, rxe0"), "{error}");
    }
}
