//! Which metrics a PromQL expression names, and by which labels it picks them. Enough of the language
//! for our own expressions; Prometheus itself judges whether they are well formed.

use std::collections::BTreeSet;

/// What stands before a list of labels.
const GROUPINGS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
const OPERATORS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];

/// A metric and the labels by which it is picked or grouped.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Selector {
    pub(crate) metric: String,
    pub(crate) labels: BTreeSet<String>,
}

pub(crate) fn selectors(expression: &str) -> Vec<Selector> {
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        rest = match first {
            '"' | '\'' => after_text(rest),
            '[' => after(rest, ']'),
            first if first.is_ascii_digit() => {
                rest.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '.')
            }
            first if is_of_name(first) => {
                let (word, next) = split_name(rest);
                named(word, next, &mut found)
            }
            _ => &rest[first.len_utf8()..],
        };
    }
    found
}

/// Looks at a word, and goes on behind what belongs to it.
fn named<'a>(word: &str, next: &'a str, found: &mut Vec<Selector>) -> &'a str {
    let next = next.trim_start();
    if GROUPINGS.contains(&word) {
        return after(next, ')');
    }
    let is_function = next.starts_with('(') || GROUPINGS.contains(&split_name(next).0);
    let is_vector_before_on = split_name(next).0 == "on";
    if OPERATORS.contains(&word) || (is_function && !is_vector_before_on) {
        return next;
    }
    let (inside, next) = match next.strip_prefix('{') {
        Some(inside) => {
            let end = inside.find('}').expect("a brace that closes");
            (&inside[..end], &inside[end + 1..])
        }
        None => ("", next),
    };
    found.push(Selector { metric: word.to_owned(), labels: label_names(inside) });
    next
}

/// The names in `a="x",b=~"y"`.
fn label_names(mut inside: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    while !inside.is_empty() {
        let (name, next) = split_name(inside);
        if name.is_empty() {
            inside = match inside.starts_with('"') {
                true => after_text(inside),
                false => &inside[1..],
            };
        } else {
            names.insert(name.to_owned());
            inside = next;
        }
    }
    names
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

fn split_name(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c| !is_of_name(c)).unwrap_or(text.len()))
}

fn after(text: &str, end: char) -> &str {
    text.split_once(end).map_or("", |(_, rest)| rest)
}

fn after_text(text: &str) -> &str {
    let quote = text.chars().next().expect("a quote");
    after(&text[1..], quote)
}

#[test]
fn metrics_and_labels_are_found_and_nothing_else() {
    let found = |expression: &str| -> Vec<(String, String)> {
        let selectors = selectors(expression).into_iter();
        selectors.map(|found| (found.metric, Vec::from_iter(found.labels).join(","))).collect()
    };
    let pair = |metric: &str, labels: &str| (metric.to_owned(), labels.to_owned());
    assert_eq!(found("a_total > 0.1"), [pair("a_total", "")]);
    assert_eq!(
        found(r#"sum by (job, le) (rate(a_bucket{x="y{",z!~"w"}[5m])) / on (job) group_left () b"#),
        [pair("a_bucket", "x,z"), pair("b", "")],
    );
    assert_eq!(
        found("up == 0 and on (job, instance) present_over_time(a[1d]) unless max(b) by (c) == 1"),
        [pair("up", ""), pair("a", ""), pair("b", "")],
    );
    assert_eq!(found(r#"job:x:rate5m{job=~".+"} offset 5m"#), [pair("job:x:rate5m", "job")]);
    assert_eq!(found("a - on (i) b < on (i) c"), [pair("a", ""), pair("b", ""), pair("c", "")]);
}
