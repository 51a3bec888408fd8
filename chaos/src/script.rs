//! A script's calls of `leasehold acquire`, `extend` and `release`, each a process of its own.

use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use leasehold_testkit::{bound_command, spawn};
use serde_json::Value;

use crate::history::{Log, life_file};
use crate::told;

/// How a call ended.
#[derive(Debug)]
pub struct Ended {
    /// The exit code; nothing if it was killed.
    pub code: Option<i32>,
    /// What it printed.
    pub said: Value,
}

/// Whose calls they are.
#[derive(Debug)]
pub struct Scripts {
    /// The program.
    pub program: PathBuf,
    /// The nodes.
    pub url: String,
    /// Where the history is.
    pub folder: PathBuf,
    /// The number of their lives in the history.
    pub number: usize,
    /// The last of these lives.
    pub life: u64,
}

const LOOK_EVERY: Duration = Duration::from_millis(3);

impl Scripts {
    /// Calls `leasehold` and waits for its end; after `patience` it is killed.
    pub fn call(&mut self, arguments: &[&str], patience: Duration) -> io::Result<Ended> {
        self.life += 1;
        let mut command = bound_command(&self.program);
        command
            .args(["--backend", &self.url, "--json"])
            .args(arguments)
            .env("LEASEHOLD_LOG", told::FILTER)
            .env("XDG_CONFIG_HOME", &self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = spawn(command)?;
        let history = life_file(&self.folder, self.number, self.life);
        let errors = child.stderr.take().expect("a pipe");
        let teller = thread::spawn(move || tell(errors, &history));
        let mut output = child.stdout.take().expect("a pipe");
        let reader = thread::spawn(move || {
            let mut said = String::new();
            // What a killed process said is whatever came.
            let _ = output.read_to_string(&mut said);
            said
        });
        let status = wait(&mut child, patience)?;
        teller.join().map_err(|_| io::Error::other("a log could not be read"))??;
        let said = reader.join().unwrap_or_default();
        let said = serde_json::from_str(said.trim()).unwrap_or(Value::Null);
        Ok(Ended { code: status.code(), said })
    }
}

fn wait(child: &mut Child, patience: Duration) -> io::Result<ExitStatus> {
    let end = Instant::now() + patience;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() >= end {
            child.kill()?;
            return child.wait();
        }
        thread::sleep(LOOK_EVERY);
    }
}

fn tell(errors: impl io::Read, history: &Path) -> io::Result<()> {
    let mut log = Log::open(history)?;
    for event in
        BufReader::new(errors).lines().map_while(Result::ok).filter_map(|line| told::of_line(&line))
    {
        log.now(event)?;
    }
    Ok(())
}
