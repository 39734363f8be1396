//! Sentences that begin with a clause in place of a subject, such as "What a peer has sent.": the
//! reader learns only at the end what is talked about. A noun can be named first.

use super::allowed::Allowed;
use std::path::Path;

/// First words of such clauses. The first of them is a pronoun too, and found only where a message or a
/// paragraph of documentation begins.
const WORDS: [&str; 6] = ["That", "What", "Who", "Whichever", "Whoever", "Whatever"];

/// Checks the comments and the messages in a source file.
pub(super) fn check(file: &Path, text: &str, allowed: &mut Allowed) -> usize {
    if !matches!(file.extension().and_then(|e| e.to_str()), Some("rs" | "c" | "h" | "cu" | "cpp")) {
        return 0;
    }
    let found = lines(text);
    allowed.judge("sentences", file, found.len(), || {
        let lines: Vec<_> = found.iter().map(|(line, text)| format!("  {line}: {text}")).collect();
        format!("sentences that begin with a clause:\n{}", lines.join("\n"))
    })
}

/// Such lines, by their numbers.
fn lines(text: &str) -> Vec<(usize, &str)> {
    // Whether a paragraph begins with the next line, and whether the sentence before it has ended.
    let (mut found, mut begins, mut ends) = (Vec::new(), true, true);
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        let is_found = match comment(line) {
            Some((is_public, words)) => {
                let known = &WORDS[usize::from(!begins || !is_public)..];
                begins = words.is_empty();
                let may = std::mem::replace(&mut ends, begins || words.ends_with('.'));
                let mut later = words.split(". ").skip(1);
                may && is_clause(words, known) || later.any(|words| is_clause(words, &WORDS[1..]))
            }
            None => {
                (begins, ends) = (true, true);
                line.split('"').skip(1).step_by(2).any(|words| {
                    is_clause(words, &WORDS) || is_clause(words, &WORDS.map(str::to_lowercase))
                })
            }
        };
        found.extend(is_found.then_some((number, line)));
    }
    found
}

/// The words of a line that is a comment, and whether that is documentation.
fn comment(line: &str) -> Option<(bool, &str)> {
    let words = line.strip_prefix("//")?;
    let is_public = words.starts_with(['/', '!']);
    Some((is_public, words.trim_start_matches(['/', '!']).trim_start_matches([' ', '-', '*'])))
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
        lines(text).iter().map(|(line, _)| *line).collect()
    }

    #[test]
    fn clauses_are_found_where_a_sentence_begins() {
        assert_eq!(found("/// What came.\nfn a() {}\n//! Who it is.\n"), [1, 3]);
        assert_eq!(found("/// A word.\n///\n/// Whatever came.\n"), [3]);
        assert_eq!(found("// One word.\n// What came. Whoever\n// A word. What came.\n"), [2, 3]);
        assert_eq!(found("bail!(\"{}\", \"what came is none\");"), [1]);
    }

    #[test]
    fn other_sentences_are_not() {
        assert!(found("/// A word of\n/// What a page is called.").is_empty());
        assert!(found("// A word, and\n// What is it?\n// Whatsoever.").is_empty());
        assert!(found("// A loss.\n// That happens. That was rare.").is_empty());
        assert!(found("fn what() { say(\"so\", what, \"yes\") }").is_empty());
    }
}
