//! C++ text with everything blanked that is not code.

/// Replaces comments by spaces, and what stands inside string and character literals by `_`. Every
/// line keeps its number and every remaining character its column.
pub(crate) fn blank(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut state = State::Code;
    let mut chars = source.chars().peekable();
    while let Some(c) = chars.next() {
        let next = chars.peek().copied();
        if c == '\n' {
            if state == State::LineComment {
                state = State::Code;
            }
            out.push('\n');
            continue;
        }
        match (state, c, next) {
            (State::Code, '/', Some('/')) => {
                state = State::LineComment;
                out.push(' ');
            }
            (State::Code, '/', Some('*')) => {
                chars.next();
                state = State::BlockComment;
                out.push_str("  ");
            }
            (State::BlockComment, '*', Some('/')) => {
                chars.next();
                state = State::Code;
                out.push_str("  ");
            }
            (State::Code, '"' | '\'', _) => {
                // A ' between digits is a separator, as in 1'000.
                if c == '"' || !out.ends_with(|p: char| p.is_ascii_hexdigit()) {
                    state = State::Literal(c);
                }
                out.push(c);
            }
            (State::Literal(_), '\\', Some(escaped)) if escaped != '\n' => {
                chars.next();
                out.push_str("__");
            }
            (State::Literal(quote), _, _) if c == quote => {
                state = State::Code;
                out.push(c);
            }
            (State::Literal(_), ..) => out.push('_'),
            (State::Code, ..) => out.push(c),
            (State::LineComment | State::BlockComment, ..) => out.push(' '),
        }
    }
    out
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Code,
    LineComment,
    BlockComment,
    Literal(char),
}

/// A preprocessor directive that matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Directive {
    /// `#include "path"`.
    Include(String),
    /// `#include <path>`.
    SystemInclude(String),
    /// `#if`, `#ifdef`, `#ifndef`.
    If,
    /// `#endif`.
    Endif,
    /// `#pragma once`.
    Once,
    /// Any other.
    Other,
}

/// The directive on a line, given the line as written and as [`blank`]ed.
pub(crate) fn directive(line: &str, blanked: &str) -> Option<Directive> {
    let rest = blanked.trim_start().strip_prefix('#')?.trim_start();
    let word: String = rest.chars().take_while(char::is_ascii_alphabetic).collect();
    Some(match word.as_str() {
        "if" | "ifdef" | "ifndef" => Directive::If,
        "endif" => Directive::Endif,
        "pragma" if rest[word.len()..].trim() == "once" => Directive::Once,
        "include" => include(line),
        _ => Directive::Other,
    })
}

fn include(line: &str) -> Directive {
    let quoted = |open: char, close: char| {
        let (_, rest) = line.split_once(open)?;
        rest.split_once(close).map(|(path, _)| path.to_owned())
    };
    let own = quoted('"', '"').map(Directive::Include);
    own.or_else(|| quoted('<', '>').map(Directive::SystemInclude)).unwrap_or(Directive::Other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_in_place() {
        let text = "a /* b\nc */ d \"x // \\\" y\" e // f\n'\\'' 1'000 g";
        let want = "a     \n     d \"_________\" e     \n'__' 1'000 g";
        assert_eq!(blank(text), want);
    }

    #[test]
    fn directives_are_told_apart() {
        let of = |line: &str| directive(line, &blank(line));
        assert_eq!(of(r##"  # include "a/b.h" // "c""##), Some(Directive::Include("a/b.h".into())));
        assert_eq!(of("#include <x>"), Some(Directive::SystemInclude("x".into())));
        assert_eq!(of("#ifndef X"), Some(Directive::If));
        assert_eq!(of("#pragma once"), Some(Directive::Once));
        assert_eq!(of("#pragma unroll"), Some(Directive::Other));
        assert_eq!(of(r##"// #include "a.h""##), None);
    }
}
