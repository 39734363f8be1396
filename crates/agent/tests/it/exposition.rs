//! An independent reader of Prometheus' text format 0.0.4, as strict as its description.

use std::collections::BTreeMap;

type Labels = BTreeMap<String, String>;

/// The content of a page.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// By name: its type.
    pub(crate) kinds: BTreeMap<String, String>,
    samples: Vec<(String, Labels, f64)>,
}

fn is_name(text: &str) -> bool {
    let first = text.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    first && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Labels between braces, and what follows them.
fn labels(mut rest: &str) -> (Labels, &str) {
    let mut labels = Labels::new();
    loop {
        let (name, after) = rest.split_once("=\"").expect("a label has a value in quotes");
        assert!(is_name(name), "label {name:?}");
        let (mut value, mut chars) = (String::new(), after.chars());
        loop {
            match chars.next().expect("a quote ends the value") {
                '"' => break,
                '\\' => value.push(match chars.next() {
                    Some('\\') => '\\',
                    Some('"') => '"',
                    Some('n') => '\n',
                    other => panic!("no escape: {other:?}"),
                }),
                other => value.push(other),
            }
        }
        assert!(labels.insert(name.to_owned(), value).is_none(), "{name} comes twice");
        match chars.next() {
            Some(',') => rest = chars.as_str(),
            Some('}') => return (labels, chars.as_str()),
            other => panic!("after a label: {other:?}"),
        }
    }
}

impl Page {
    pub(crate) fn read(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line ends");
        let (mut page, mut helped, mut family) = (Self::default(), Vec::new(), String::new());
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, text) = help.split_once(' ').expect(line);
                assert!(is_name(name) && !text.is_empty(), "{line}");
                assert!(!helped.contains(&name.to_owned()), "{name} is explained twice");
                helped.push(name.to_owned());
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').expect(line);
                assert_eq!(helped.last().map(String::as_str), Some(name), "HELP comes before");
                assert!(["counter", "gauge"].contains(&kind), "{line}");
                assert_eq!(name.ends_with("_total"), kind == "counter", "{line}");
                assert!(page.kinds.insert(name.to_owned(), kind.to_owned()).is_none(), "{line}");
                family = name.to_owned();
            } else {
                let (name, rest) = line.split_once('{').expect(line);
                assert_eq!(name, family, "samples stand below their type: {line}");
                let (labels, rest) = labels(rest);
                let value: f64 = rest.strip_prefix(' ').expect(line).parse().expect(line);
                let same =
                    |(other, its, _): &&(String, Labels, f64)| other == name && *its == labels;
                assert!(page.samples.iter().find(same).is_none(), "{line} comes twice");
                page.samples.push((name.to_owned(), labels, value));
            }
        }
        page
    }

    /// The sum of the samples that have these labels among theirs; there is one at least.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let name = format!("warpverbs_agent_{name}");
        let has = |its: &Labels| {
            labels.iter().all(|(key, value)| its.get(*key).is_some_and(|its| its == value))
        };
        let fit = self.samples.iter().filter(|(other, its, _)| *other == name && has(its));
        let values: Vec<f64> = fit.map(|(_, _, value)| *value).collect();
        assert!(!values.is_empty(), "no {name} with {labels:?}");
        values.iter().sum()
    }
}
