//! `Display` of an error is the whole story in one line, so that `{error}` is enough everywhere. A
//! cause that is part of it is not given by `source()` as well: whoever prints the chain would say
//! it twice. So a cause is either `transparent`, or a field that `thiserror` does not take for one.

use std::path::Path;

/// Errors that say what their `source()` says.
pub(super) fn check(file: &Path, text: &str) -> usize {
    let (mut found, mut line) = (0, 1);
    for (index, piece) in text.split("#[error(").enumerate() {
        if index > 0
            && let Some((words, variant)) = piece.split_once(")]")
            && let Some(field) = causes(variant).find(|field| names(words, field))
        {
            println!("{}:{line}: says {{{field}}}, which is its source as well", file.display());
            found += 1;
        }
        line += piece.matches('\n').count();
    }
    found
}

/// The fields that are given by `source()`, as a format string names them.
fn causes(variant: &str) -> impl Iterator<Item = &str> {
    let marked = ["#[from] ", "#[source] "].into_iter().flat_map(|mark| {
        variant.split(mark).skip(1).map(|field| match field.split_once(": ") {
            Some((name, _)) if name.chars().all(|c| c.is_ascii_lowercase() || c == '_') => name,
            _ => "0",
        })
    });
    marked.chain(variant.contains(" source: ").then_some("source"))
}

fn names(words: &str, field: &str) -> bool {
    ["}", ":"].iter().any(|end| words.contains(&format!("{{{field}{end}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        check(Path::new("error.rs"), &text.replace('@', "#"))
    }

    #[test]
    fn what_would_be_said_twice_is_found() {
        assert_eq!(found("@[error(\"NIC: {0}\")]\n    Nic(@[from] NicError),"), 1);
        assert_eq!(found("@[error(\"NIC: {0}\")]\n    Nic(@[source] NicError),"), 1);
        assert_eq!(found("@[error(\"{path}: {source}\")]\nIo { path: P, source: io::Error },"), 1);
        assert_eq!(found("@[error(\"is {why:?}\")]\nIo {\n @[source] why: io::Error },"), 1);
    }

    #[test]
    fn what_is_said_once_is_not() {
        assert_eq!(found("@[error(transparent)]\n    Nic(@[from] NicError),"), 0);
        assert_eq!(found("@[error(\"store: {0}\")]\n    Bind(BindError),"), 0);
        assert_eq!(found("@[error(\"cannot listen\")]\nIo { source: io::Error },"), 0);
        assert_eq!(found("@[error(\"{path}: {cause}\")]\nIo { path: P, cause: io::Error },"), 0);
    }
}
