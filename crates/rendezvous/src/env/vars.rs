//! Variables as text and numbers.

use std::ffi::OsString;
use std::str::FromStr;

use super::{EnvError, Setting};

/// An environment. A variable that is empty counts as absent.
pub(super) struct Vars<'a> {
    lookup: &'a dyn Fn(&str) -> Option<OsString>,
}

impl<'a> Vars<'a> {
    pub(super) fn new(lookup: &'a dyn Fn(&str) -> Option<OsString>) -> Vars<'a> {
        Vars { lookup }
    }

    pub(super) fn text(&self, name: &'static str) -> Result<Option<String>, EnvError> {
        let Some(value) = (self.lookup)(name).filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        value.into_string().map(Some).map_err(|value| EnvError::Invalid {
            setting: Setting { name, value: value.to_string_lossy().into_owned() },
            expected: "text in UTF-8".into(),
        })
    }

    pub(super) fn number<N>(
        &self,
        name: &'static str,
        least: N,
        most: N,
    ) -> Result<Option<N>, EnvError>
    where
        N: FromStr + PartialOrd + std::fmt::Display,
    {
        let Some(value) = self.text(name)? else { return Ok(None) };
        match value.trim().parse::<N>() {
            Ok(number) if (&least..=&most).contains(&&number) => Ok(Some(number)),
            _ => Err(EnvError::Invalid {
                setting: Setting { name, value },
                expected: format!("a number from {least} to {most}"),
            }),
        }
    }
}
