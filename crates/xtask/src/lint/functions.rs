//! Lengths of functions in C and C++; those in Rust are clippy's `too_many_lines`.

use super::allowed::Allowed;
use std::path::Path;

/// Lines of a body, as for Rust: without empty ones and comments.
const MOST: usize = 70;
/// Words before a body that is no function.
const OTHERS: [&str; 8] = ["if", "for", "while", "switch", "else", "}", "namespace", "extern"];

pub(super) fn check(file: &Path, text: &str, allowed: &mut Allowed) -> usize {
    let found = long(text);
    allowed.judge("functions", file, found.len(), || {
        let each = found.iter().map(|(line, length)| format!("line {line} has {length}"));
        let each: Vec<_> = each.collect();
        format!("functions of at most {MOST} lines: {}", each.join(", "))
    })
}

/// Functions that are too long: first line and length. The line that ends with `{` and has a parenthesis
/// begins one, or the line where those parentheses begin; it ends with the `}` below that line's first
/// character, as clang-format puts it.
fn long(text: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if !(line.ends_with('{') && line.contains(')')) {
            continue;
        }
        let (mut start, mut open) = (at, parentheses(line));
        while open < 0 && start > 0 {
            start -= 1;
            open += parentheses(lines[start]);
        }
        let words = lines[start].trim_start();
        let end = format!("{:1$}}}", "", lines[start].len() - words.len());
        let rest = &lines[at + 1..];
        let length = rest.iter().position(|line| line.starts_with(&end));
        let body = rest[..length.unwrap_or(0)].iter().map(|line| line.trim());
        let length = body.filter(|line| !line.is_empty() && !line.starts_with("//")).count();
        if length > MOST && !OTHERS.iter().any(|word| words.starts_with(word)) {
            found.push((start + 1, length));
        }
    }
    found
}

/// How many more parentheses a line opens than it closes.
fn parentheses(line: &str) -> i64 {
    line.chars().map(|c| i64::from(c == '(') - i64::from(c == ')')).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_function_is_found_and_a_long_loop_is_part_of_it() {
        let body = |lines: usize| format!("int f(int a) {{\n{}}}\n", "  a++;\n".repeat(lines));
        assert!(long(&body(MOST)).is_empty());
        assert_eq!(long(&body(MOST + 1)), [(1, MOST + 1)]);
        let split = body(MOST + 1).replace("f(int a)", "f(\n    int a)");
        assert_eq!(long(&split), [(1, MOST + 1)]);
        let parts = format!("int g() {{\n  for (;;) {{\n{}  }}\n}}\n", "    a++;\n".repeat(MOST));
        assert_eq!(long(&parts), [(1, MOST + 2)]);
    }
}
