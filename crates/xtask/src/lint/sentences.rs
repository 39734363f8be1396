//! Sentences that begin with a clause in place of a subject, such as "What a peer has sent.": the
//! reader learns only at the end what is talked about. A noun can be named first.

use super::allowed::Allowed;
use std::path::Path;

/// First words of such clauses.
const WORDS: [&str; 6] = ["What", "Who", "That", "Whichever", "Whoever", "Whatever"];

/// Checks the documentation and the messages in a source file.
pub(super) fn check(file: &Path, text: &str, allowed: &mut Allowed) -> usize {
    let marks: &[&str] = match file.extension().and_then(|e| e.to_str()) {
        Some("rs") => &["///", "//!"],
        _ if file.starts_with("kernels/include") => &["///", "//"],
        _ => return 0,
    };
    let found = lines(marks, text);
    allowed.judge("sentences", file, found.len(), || {
        let lines: Vec<_> = found.iter().map(|(line, text)| format!("  {line}: {text}")).collect();
        format!("sentences that begin with a clause:\n{}", lines.join("\n"))
    })
}

/// Such lines, by their numbers.
fn lines<'a>(marks: &[&str], text: &'a str) -> Vec<(usize, &'a str)> {
    let (mut found, mut begins) = (Vec::new(), true);
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        let comment = marks.iter().find_map(|mark| line.strip_prefix(mark));
        let comment = comment.map(str::trim_start);
        let is_found = match comment {
            Some(words) => begins && is_clause(words, &WORDS),
            None => line.split('"').skip(1).step_by(2).any(|words| {
                is_clause(words, &WORDS) || is_clause(words, &WORDS.map(str::to_lowercase))
            }),
        };
        // A paragraph begins after anything else, and after an empty line.
        begins = comment.is_none_or(str::is_empty);
        found.extend(is_found.then_some((number, line)));
    }
    found
}

/// Whether a text begins with one of these words, and is no question.
fn is_clause(text: &str, words: &[impl AsRef<str>]) -> bool {
    let follows = |word: &str| text.strip_prefix(word).is_some_and(|rest| rest.starts_with(' '));
    words.iter().any(|word| follows(word.as_ref())) && !text.ends_with('?')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<usize> {
        lines(&["///", "//!"], text).iter().map(|(line, _)| *line).collect()
    }

    #[test]
    fn clauses_are_found_where_a_sentence_begins() {
        assert_eq!(found("/// What came.\nfn a() {}\n//! Who it is.\n"), [1, 3]);
        assert_eq!(found("/// A word.\n///\n/// Whatever came.\n"), [3]);
        assert_eq!(found("bail!(\"{}\", \"what came is none\");"), [1]);
    }

    #[test]
    fn other_sentences_are_not() {
        assert!(found("/// A word of\n/// What a page is called.").is_empty());
        assert!(found("// What is plain.\n/// What is it?\n/// Whatsoever.").is_empty());
        assert!(found("fn what() { say(\"so\", what, \"yes\") }").is_empty());
    }
}
