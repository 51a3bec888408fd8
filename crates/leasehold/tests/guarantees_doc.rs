//! `docs/guarantees.md` promises nothing that no test shows: every scenario is there, and every test
//! that it names exists where it says.

use std::fs;
use std::path::{Path, PathBuf};

const SCENARIOS: usize = 51;

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn page() -> String {
    fs::read_to_string(docs().join("guarantees.md")).expect("docs/guarantees.md")
}

/// A link: what it shows, and where it leads.
#[derive(Debug)]
struct Link<'a> {
    text: &'a str,
    target: &'a str,
}

fn links(page: &str) -> Vec<Link<'_>> {
    let mut links = Vec::new();
    for (at, _) in page.match_indices("](") {
        let Some(open) = page[..at].rfind('[') else { continue };
        let Some(close) = page[at..].find(')') else { continue };
        links.push(Link { text: &page[open + 1..at], target: &page[at + 2..at + close] });
    }
    links
}

impl Link<'_> {
    /// The file or folder it leads to, if it is one of ours.
    fn path(&self) -> Option<PathBuf> {
        let file = self.target.split('#').next().unwrap_or_default();
        (!self.target.contains("://") && !file.is_empty()).then(|| docs().join(file))
    }

    /// The heading of this page it leads to.
    fn heading(&self) -> Option<&str> {
        self.target.strip_prefix('#')
    }

    /// The test it names: `` [`like_this`](file.rs) ``.
    fn test(&self) -> Option<&str> {
        let name = self.text.strip_prefix('`')?.strip_suffix('`')?;
        let is_name =
            name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        (is_name && self.path()?.extension()? == "rs").then_some(name)
    }
}

/// The entries of the scenarios by number, each up to the next heading or entry.
fn scenario(page: &str, number: usize) -> &str {
    let start = format!("\n**{number}. ");
    let starts: Vec<_> = page.match_indices(&start).collect();
    assert_eq!(starts.len(), 1, "scenario {number} must have one entry that begins `**{number}. `");
    let rest = &page[starts[0].0 + 1..];
    let end = ["\n**", "\n#"].iter().filter_map(|mark| rest.find(mark)).min();
    &rest[..end.unwrap_or(rest.len())]
}

fn slug(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

#[test]
fn every_scenario_says_what_happens_who_notices_and_which_test_shows_it() {
    let page = page();
    for number in 1..=SCENARIOS {
        let entry = scenario(&page, number);
        for word in ["*Noticed:*", "*Fence:*", "*Shown by:*"] {
            assert_eq!(entry.matches(word).count(), 1, "scenario {number}, {word}: {entry}");
        }
        let shown = entry.split("*Shown by:*").nth(1).unwrap_or_default();
        let is_shown = links(shown).iter().any(|link| link.test().is_some());
        assert!(is_shown || shown.contains("no test"), "scenario {number}: {shown}");
    }
    assert!(!page.contains(&format!("\n**{}. ", SCENARIOS + 1)), "and no others");
}

#[test]
fn every_link_leads_somewhere() {
    let page = page();
    let headings: Vec<_> = page.lines().filter(|line| line.starts_with('#')).map(slug).collect();
    let links = links(&page);
    assert!(links.len() > 2 * SCENARIOS, "only {} links were found", links.len());
    for link in links {
        if let Some(path) = link.path() {
            assert!(path.exists(), "{link:?}");
        }
        if let Some(heading) = link.heading() {
            assert!(headings.iter().any(|known| known == heading), "{link:?}: {headings:?}");
        }
    }
}

#[test]
fn every_test_that_is_named_is_where_it_is_said_to_be() {
    let page = page();
    let links = links(&page);
    let named: Vec<_> =
        links.iter().filter_map(|link| Some((link.test()?, link.path()?))).collect();
    assert!(named.len() > SCENARIOS, "only {} tests are named", named.len());
    for (test, path) in named {
        let code = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        assert!(code.contains(&format!("fn {test}(")), "no `fn {test}` in {}", path.display());
    }
}
