//! `leasehold config`: what is in force, and who said so.

use serde_json::json;

use crate::commands::serve;
use crate::context::Context;
use crate::exit::{Exit, Failure};
use crate::output::{Tone, heading};
use crate::settings::Serve;

/// Show the settings in force and where each came from
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Flags go before the environment, the environment before the file. The file is \
                  --config, LEASEHOLD_CONFIG, or the first of \
                  $XDG_CONFIG_HOME/leasehold/leasehold.toml (~/.config without it) and \
                  /etc/leasehold/leasehold.toml. Passwords are not shown.\n\n\
                  Example of a file:\n  backend = \"redis://a,b,c\"\n  ttl = \"20s\"\n\n  \
                  [serve]\n  listen = \"127.0.0.1:8000\"\n  max-wait = \"30s\"\n\n\
                  Example:\n  leasehold config\n  LEASEHOLD_TTL=1m leasehold config --json\n\n\
                  Exit codes: 0; 78 a setting is wrong."
)]
pub(crate) struct Args {}

pub(crate) fn exec(_: &Args, context: &Context) -> Result<Exit, Failure> {
    let (settings, output) = (&context.settings, context.output);
    let serve = Serve::resolve(&serve::Args::default(), settings)?;
    let of_serve = serve.shown().into_iter();
    let of_serve = of_serve.map(|(key, value, source)| (format!("serve.{key}"), value, source));
    let of_all = settings.shown().into_iter();
    let of_all = of_all.map(|(name, value, source)| (name.to_owned(), value, source));
    let shown = of_all.chain(of_serve);
    if output.json {
        for (name, value, source) in shown {
            output.object(&json!({
                "schema": "leasehold/setting/v1",
                "name": name,
                "value": value,
                "source": source.to_string(),
            }))?;
        }
        return Ok(Exit::Success);
    }
    let mut rows = vec![heading(["setting", "value", "from"])];
    for (name, value, source) in shown {
        let from = (Tone::Dim, source.to_string());
        rows.push(vec![(Tone::Plain, name), (Tone::Plain, value), from]);
    }
    output.text(&output.table(&rows))?;
    match &settings.file.path {
        Some(path) => output.note(&format!("settings file: {}", path.display())),
        None => output.note("settings file: none"),
    }
    Ok(Exit::Success)
}
