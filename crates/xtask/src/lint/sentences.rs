//! Sentences that begin with a clause in place of a subject, such as "What a peer has sent.": the
//! reader learns only at the end what is talked about. A noun can be named first.

use super::allowed::Allowed;
use std::path::Path;

/// First words of such clauses. The first of them is a pronoun too, and found only where a message or a
/// paragraph of documentation begins.
const WORDS: [&str; 6] = ["That", "What", "Who", "Whichever", "Whoever", "Whatever"];

/// Words that follow a "That" which begins a clause, never one that is a pronoun.
const AFTER_THAT: [&str; 12] =
    ["a", "an", "the", "no", "nobody", "nothing", "every", "each", "it", "they", "there", "which"];

/// Where a file has its sentences.
#[derive(Clone, Copy, PartialEq)]
enum Prose {
    /// After these characters, and in strings.
    After(&'static str),
    /// Everywhere but in blocks of code.
    Everywhere,
}

/// Checks the prose of a file: its comments and messages, or the text of a page.
pub(super) fn check(file: &Path, text: &str, allowed: &mut Allowed) -> usize {
    let prose = match file.extension().and_then(|e| e.to_str()) {
        Some("rs" | "c" | "h" | "cu" | "cpp") => Prose::After("//"),
        Some("sh" | "py") => Prose::After("#"),
        None if text.starts_with("#!") => Prose::After("#"),
        Some("md") => Prose::Everywhere,
        _ => return 0,
    };
    let found = lines(text, prose);
    allowed.judge("sentences", file, found.len(), || {
        let lines: Vec<_> = found.iter().map(|(line, text)| format!("  {line}: {text}")).collect();
        format!("sentences that begin with a clause:\n{}", lines.join("\n"))
    })
}

/// Such lines, by their numbers.
fn lines(text: &str, prose: Prose) -> Vec<(usize, &str)> {
    // Whether a paragraph begins with the next line, and whether the sentence before it has ended.
    let (mut found, mut begins, mut ends) = (Vec::new(), true, true);
    let mut is_code = false;
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        let is_fence = prose == Prose::Everywhere && line.starts_with("```");
        is_code ^= is_fence;
        if is_code || is_fence {
            continue;
        }
        let is_found = match sentence(line, prose) {
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

/// The words of a line of prose, and whether that is documentation.
fn sentence(line: &str, prose: Prose) -> Option<(bool, &str)> {
    let words = match prose {
        // The program that runs a script.
        Prose::After("#") if line.starts_with("#!") => "",
        Prose::After(mark) => line.strip_prefix(mark)?,
        // Titles and cells of tables are not sentences.
        Prose::Everywhere if line.starts_with(['#', '|']) => "",
        Prose::Everywhere => line,
    };
    let is_public = prose == Prose::Everywhere || words.starts_with(['/', '!']);
    Some((is_public, words.trim_start_matches(['/', '!']).trim_start_matches([' ', '-', '*'])))
}

/// Whether a text begins with one of these words, and is no question.
fn is_clause(text: &str, words: &[impl AsRef<str>]) -> bool {
    let follows = |word: &str| text.strip_prefix(word).is_some_and(|rest| rest.starts_with(' '));
    let after = text.strip_prefix(WORDS[0]).and_then(|rest| rest.split(' ').nth(1));
    let is_one = words.iter().any(|word| follows(word.as_ref()))
        || after.is_some_and(|word| AFTER_THAT.contains(&word));
    is_one && !text.ends_with('?')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<usize> {
        found_in(text, Prose::After("//"))
    }

    fn found_in(text: &str, prose: Prose) -> Vec<usize> {
        lines(text, prose).iter().map(|(line, _)| *line).collect()
    }

    #[test]
    fn clauses_are_found_where_a_sentence_begins() {
        assert_eq!(found("/// What came.\nfn a() {}\n//! Who it is.\n"), [1, 3]);
        assert_eq!(found("/// A word.\n///\n/// Whatever came.\n"), [3]);
        assert_eq!(found("// One word.\n// What came. Whoever\n// A word. What came.\n"), [2, 3]);
        assert_eq!(found("// A loss.\n// That a peer is lost is seen late. That which\n"), [2]);
        assert_eq!(found("bail!(\"{}\", \"what came is none\");"), [1]);
    }

    #[test]
    fn other_sentences_are_not() {
        assert!(found("/// A word of\n/// What a page is called.").is_empty());
        assert!(found("// A word, and\n// What is it?\n// Whatsoever.").is_empty());
        assert!(found("// A loss.\n// That happens. That was rare.").is_empty());
        assert!(found("fn what() { say(\"so\", what, \"yes\") }").is_empty());
    }

    #[test]
    fn scripts_and_pages_are_read_as_well() {
        let script = "#!/bin/sh\n# Whoever runs this.\necho \"what came\" # What came.\n";
        assert_eq!(found_in(script, Prose::After("#")), [2, 3]);
        let page = "## 1. What holds\n\nWhat came.\n\n- Who came.\n\n| What | came |\n\n```text\nWhat came.\n```\nA word. That is so.";
        assert_eq!(found_in(page, Prose::Everywhere), [3, 5]);
    }
}
