//! Slurm's compressed lists of hosts: `node[01-04,07],rack[1-2]gpu[3,5]`.

/// Why a list of hosts cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "fields are named by what they are")]
pub enum NodeListError {
    /// No first host.
    #[error("the list begins without a host")]
    Empty,
    /// A bracket without its counterpart, or one inside another.
    #[error("bracket at byte {at} has no counterpart")]
    Bracket { at: usize },
    /// Not a number or a range of numbers.
    #[error("{range:?} in brackets is not a number or a range such as 01-04")]
    Range { range: String },
    /// Not a host's name.
    #[error("{host:?} is not the name of a host")]
    Host { host: String },
}

/// The first host of a list, its brackets replaced by the first number of each.
pub fn first_host(list: &str) -> Result<String, NodeListError> {
    let mut host = String::new();
    let mut open: Option<usize> = None;
    for (at, character) in list.char_indices() {
        match (character, open) {
            ('[', None) => open = Some(at),
            (']', Some(start)) => {
                host.push_str(first_number(&list[start + 1..at])?);
                open = None;
            }
            ('[', Some(_)) | (']', None) => return Err(NodeListError::Bracket { at }),
            (',', None) => break,
            (_, None) => host.push(character),
            (_, Some(_)) => {}
        }
    }
    if let Some(at) = open {
        return Err(NodeListError::Bracket { at });
    }
    let named = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    match host.len() {
        0 => Err(NodeListError::Empty),
        1..=255 if host.chars().all(named) => Ok(host),
        _ => Err(NodeListError::Host { host: host.chars().take(80).collect() }),
    }
}

/// The first number of `01-04,07`, with its leading zeros, which belong to the name.
fn first_number(ranges: &str) -> Result<&str, NodeListError> {
    let first = ranges.split(',').next().unwrap_or_default();
    let (low, high) = first.split_once('-').unwrap_or((first, first));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if digits(low) && digits(high) {
        return Ok(low);
    }
    Err(NodeListError::Range { range: first.chars().take(80).collect() })
}
