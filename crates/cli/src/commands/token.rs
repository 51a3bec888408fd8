//! `leasehold token new|list|revoke`: the file of tokens that a lock server checks.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use leasehold_server::{Scope, Token, Tokens};
use serde_json::json;

use crate::context::Context;
use crate::duration;
use crate::exit::{Exit, Failure};
use crate::output::{Tone, heading};
use crate::shown::time;

/// Reading and writing a file of tokens takes milliseconds.
const LOCK_WITHIN: Duration = Duration::from_secs(5);

/// Make, list and revoke the tokens of a lock server
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The file holds names, scopes and hashes, never a token. A running server reads it \
                  again on SIGHUP. Two commands that change it at once wait for each other (FILE.lock).\n\n\
                  Example:\n  leasehold token new --file tokens.toml --name billing --scope 'lock:billing/*' --scope read\n\n\
                  Exit codes: 0; 74 cannot write; 78 the file cannot be read; 64 usage."
)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Add a token to the file and print it: it is shown only once
    New {
        /// The file; made if it is not there
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
        /// Who will use it, for logs
        #[arg(long, value_name = "NAME")]
        name: String,
        /// read, admin, or lock:GLOB like lock:billing/*; repeat it for more
        #[arg(long, value_name = "SCOPE", required = true)]
        scope: Vec<Scope>,
        /// For how long it is good; for ever if nothing is said
        #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
        expires: Option<Duration>,
    },
    /// Show names, scopes and ends
    List {
        /// The file
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
    },
    /// Remove a token
    Revoke {
        /// The file
        #[arg(long, value_name = "FILE")]
        file: PathBuf,
        /// Whose
        name: String,
    },
}

pub(crate) fn exec(args: &Args, context: &Context) -> Result<Exit, Failure> {
    let output = context.output;
    match &args.what {
        What::New { file, name, scope, expires } => {
            let _locked = lock(file)?;
            let mut tokens = if file.exists() { Tokens::read(file)? } else { Tokens::default() };
            let token = tokens.create(name, scope.clone(), *expires).map_err(Failure::Usage)?;
            write(file, &tokens)?;
            if output.json {
                let scopes: Vec<_> = scope.iter().map(Scope::to_string).collect();
                output.object(&json!({
                    "schema": "leasehold/token/v1", "name": name, "scopes": scopes, "token": token,
                }))?;
            } else {
                output.text(&token)?;
            }
            output.note("this is the only time it is shown; the file has its hash");
        }
        What::List { file } => list(&Tokens::read(file)?, context)?,
        What::Revoke { file, name } => {
            let _locked = lock(file)?;
            let mut tokens = Tokens::read(file)?;
            if !tokens.revoke(name) {
                let text = format!("there is no token `{name}` in {}", file.display());
                return Err(Failure::Usage(text));
            }
            write(file, &tokens)?;
            output.note(&format!("token `{name}` is gone; send the server SIGHUP"));
        }
    }
    Ok(Exit::Success)
}

fn list(tokens: &Tokens, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    let scopes = |token: &Token| token.scopes.iter().map(Scope::to_string).collect::<Vec<_>>();
    if output.json {
        for token in tokens.iter() {
            output.object(&json!({
                "schema": "leasehold/token/v1",
                "name": &*token.name,
                "scopes": scopes(token),
                "expires": token.expires.map(time),
            }))?;
        }
        return Ok(());
    }
    let mut rows = vec![heading(["name", "scopes", "expires"])];
    for token in tokens.iter() {
        let expires = token.expires.map_or_else(|| "never".to_owned(), time);
        rows.push(vec![
            (Tone::Plain, token.name.to_string()),
            (Tone::Plain, scopes(token).join(" ")),
            (Tone::Dim, expires),
        ]);
    }
    output.text(&output.table(&rows))
}

/// Two that change the file at once would undo each other: a revoked token would come back. Ends when
/// dropped. It is no lock on the file itself, which is another file after each change.
fn lock(path: &Path) -> Result<File, Failure> {
    let beside = beside(path, ".lock");
    let failed = |error| Failure::Write { path: beside.clone(), error };
    let file =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&beside);
    let file = file.map_err(failed)?;
    if let Ok(tokens) = fs::metadata(path) {
        // Whoever may write the tokens may lock them. Only root can give a file away, or needs to.
        let _ = fchown(&file, Some(tokens.uid()), Some(tokens.gid()));
    }
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) if begun.elapsed() < LOCK_WITHIN => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Err(TryLockError::WouldBlock) => {
                let text = format!(
                    "another `leasehold token` has had it locked for {LOCK_WITHIN:?}; nothing was changed"
                );
                return Err(failed(io::Error::new(io::ErrorKind::WouldBlock, text)));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
    }
}

/// A file of that folder, named after the file.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(ending);
    path.with_file_name(name)
}

/// Written beside it and moved into its place: a server that reads it meanwhile sees one or the other. It
/// stays whose it was: a server that cannot read it would go on with tokens that were revoked.
fn write(path: &Path, tokens: &Tokens) -> Result<(), Failure> {
    let failed = |error| Failure::Write { path: path.to_owned(), error };
    let beside = beside(path, &format!(".{}.new", std::process::id()));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)
        .and_then(|mut file: File| {
            if let Ok(before) = fs::metadata(path) {
                fchown(&file, Some(before.uid()), Some(before.gid()))?;
                file.set_permissions(before.permissions())?;
            }
            file.write_all(tokens.to_text().as_bytes())?;
            file.sync_all()
        })
        .and_then(|()| fs::rename(&beside, path))
        .and_then(|()| sync_folder(path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written.map_err(failed)
}

/// The new name of the file is on disk only then: after a power cut a revoked token would be back.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}
