//! The files of the dashboard, built into the program: one binary is all there is to install.

/// A file: its name, type and content.
pub(crate) type File = (&'static str, &'static str, &'static [u8]);

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

macro_rules! file {
    ($name:literal, $media_type:expr) => {
        ($name, $media_type, include_bytes!(concat!("../dashboard/", $name)))
    };
}

/// All of them; `index.html` is the page at `/`.
pub(crate) const FILES: [File; 20] = [
    file!("index.html", HTML),
    file!("style.css", STYLE),
    file!("theme.js", SCRIPT),
    file!("app.js", SCRIPT),
    file!("api.js", SCRIPT),
    file!("cluster.js", SCRIPT),
    file!("dom.js", SCRIPT),
    file!("events.js", SCRIPT),
    file!("first_lock.js", SCRIPT),
    file!("force.js", SCRIPT),
    file!("format.js", SCRIPT),
    file!("lock_page.js", SCRIPT),
    file!("lock_row.js", SCRIPT),
    file!("locks.js", SCRIPT),
    file!("model.js", SCRIPT),
    file!("nodes.js", SCRIPT),
    file!("sparks.js", SCRIPT),
    file!("stream.js", SCRIPT),
    file!("time_left.js", SCRIPT),
    file!("votes.js", SCRIPT),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;

    fn text(file: &str) -> &'static str {
        let (.., content) = FILES.iter().find(|(name, ..)| *name == file).expect("such a file");
        std::str::from_utf8(content).expect("text")
    }

    #[test]
    fn every_file_of_the_folder_is_built_in() {
        let folder = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/dashboard"));
        let there = folder.expect("the folder").map(|file| file.expect("a file").file_name());
        let there: BTreeSet<_> = there.map(|name| name.into_string().expect("a name")).collect();
        let built_in: BTreeSet<_> = FILES.iter().map(|(name, ..)| (*name).to_owned()).collect();
        assert_eq!(there, built_in);
    }

    #[test]
    fn the_page_asks_for_nothing_that_is_not_built_in() {
        let links = text("index.html").split("\"/assets/").skip(1);
        let links = links.map(|rest| rest.split('"').next().expect("a name"));
        let imports = FILES.iter().flat_map(|(name, ..)| text(name).split("from \"./").skip(1));
        let imports = imports.map(|rest| rest.split('"').next().expect("a name"));
        let wanted: BTreeSet<_> = links.chain(imports).collect();
        assert!(wanted.len() > 10, "{wanted:?}");
        for file in wanted {
            assert!(FILES.iter().any(|(name, ..)| *name == file), "{file}");
        }
    }

    #[test]
    fn data_never_becomes_markup() {
        let risks = [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
        ];
        for (name, ..) in FILES {
            for risk in risks {
                assert!(!text(name).contains(risk), "{name} has {risk}");
            }
        }
    }
}
