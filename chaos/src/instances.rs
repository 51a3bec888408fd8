//! The lock servers: `leasehold serve`, each a process of its own at an address that stays. What its
//! library tells in its log goes into the history as that of one more client.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use leasehold_testkit::{ReservedPort, bound_command, spawn};
use rustix::process::{Pid, Signal, kill_process};

use crate::caller::Through;
use crate::history::{INSTANCES_LOG, Log, life_file};
use crate::holder::NODE_LIMIT;
use crate::schedule::{Backend, INSTANCES, MAX_SKEW, MAX_TTL, Plan};
use crate::told;

/// One that ended by itself, as it does if nobody lets it open the file, is started again after this.
const AGAIN_AFTER: Duration = Duration::from_millis(300);

/// The program, which lies beside this one.
pub fn program() -> io::Result<PathBuf> {
    let here = std::env::current_exe()?;
    let program = here.with_file_name("leasehold");
    if program.exists() {
        return Ok(program);
    }
    let beside = here.parent().unwrap_or(&here).display();
    let what =
        format!("there is no `leasehold` in {beside}: build it, cargo build -p leasehold-cli");
    Err(io::Error::other(what))
}

/// Starts the lock servers, if there are to be some, and says how callers ask.
pub fn before(
    plan: &Plan,
    url: &str,
    folder: &Path,
) -> io::Result<(Option<Instances>, Option<Through>)> {
    if !plan.through_servers {
        return Ok((None, None));
    }
    let url = url_of_programs(plan, url);
    // The numbers of lives: the holders, the guests, the lock servers, and the callers' calls.
    let first = plan.holders + 1;
    let instances = Instances::start(&url, folder, first)?;
    let through = Through {
        servers: instances.addrs(),
        program: program()?,
        url,
        folder: folder.to_owned(),
        scripts: first + INSTANCES,
    };
    Ok((Some(instances), Some(through)))
}

/// As [`crate::holder::builder`] does it, in words of a URL.
fn url_of_programs(plan: &Plan, url: &str) -> String {
    let [ttl, skew, limit] =
        [MAX_TTL, MAX_SKEW, NODE_LIMIT].map(|time| format!("{}ms", time.as_millis()));
    let mut words = format!("max_ttl={ttl}&max_clock_skew={skew}");
    if plan.backend != Backend::Sqlite {
        words += &format!("&timeout={limit}&quarantine=on");
    }
    format!("{url}{}{words}", if url.contains('?') { '&' } else { '?' })
}

/// All of them.
#[derive(Debug)]
pub struct Instances {
    program: PathBuf,
    url: String,
    folder: PathBuf,
    /// The number of the first one's lives in the history.
    first: usize,
    all: Vec<Instance>,
}

#[derive(Debug)]
struct Instance {
    port: ReservedPort,
    life: u64,
    process: Option<Child>,
    reader: Option<JoinHandle<()>>,
    /// Whether the schedule wants it to be dead now.
    is_killed: bool,
    ended: Option<Instant>,
}

impl Instances {
    /// Starts them before the nodes of `url`. Their lives have the numbers from `first` on.
    pub fn start(url: &str, folder: &Path, first: usize) -> io::Result<Self> {
        let instance = |_| Instance {
            port: ReservedPort::take(),
            life: 0,
            process: None,
            reader: None,
            is_killed: false,
            ended: None,
        };
        let all = (0..INSTANCES).map(instance).collect();
        let (url, folder) = (url.to_owned(), folder.to_owned());
        let mut instances = Self { program: program()?, url, folder, first, all };
        (0..INSTANCES).try_for_each(|index| instances.begin_life(index))?;
        Ok(instances)
    }

    /// Where they listen.
    pub fn addrs(&self) -> Vec<String> {
        self.all.iter().map(|instance| instance.port.addr()).collect()
    }

    fn begin_life(&mut self, index: usize) -> io::Result<()> {
        let instance = &mut self.all[index];
        instance.life += 1;
        (instance.is_killed, instance.ended) = (false, None);
        let mut command: Command = bound_command(&self.program);
        command
            .args(["--backend", &self.url, "serve", "--listen", &instance.port.addr()])
            .env("LEASEHOLD_LOG", format!("warn,{}", told::FILTER))
            .env("XDG_CONFIG_HOME", &self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut process = spawn(command)?;
        let errors = process.stderr.take().expect("a pipe");
        let history = Log::open(&life_file(&self.folder, self.first + index, instance.life))?;
        let path = self.folder.join(INSTANCES_LOG);
        let rest = std::fs::File::options().create(true).append(true).open(path)?;
        instance.reader = Some(thread::spawn(move || read(errors, history, rest)));
        instance.process = Some(process);
        Ok(())
    }

    /// Kills one, or stops it where it stands.
    pub fn hurt(&mut self, index: usize, killed: bool) {
        let instance = &mut self.all[index];
        if killed {
            instance.is_killed = true;
            instance.end();
        } else {
            instance.signal(Signal::STOP);
        }
    }

    /// Ends what [`Self::hurt`] began.
    pub fn heal(&mut self, index: usize, killed: bool) -> io::Result<()> {
        if killed {
            return self.begin_life(index);
        }
        self.all[index].signal(Signal::CONT);
        Ok(())
    }

    /// Starts those again that ended by themselves, and says which. To be called often.
    pub fn tend(&mut self) -> io::Result<Vec<usize>> {
        let mut again = Vec::new();
        for (index, instance) in self.all.iter_mut().enumerate() {
            let Some(process) = &mut instance.process else { continue };
            if instance.is_killed || process.try_wait()?.is_none() {
                continue;
            }
            let ended = *instance.ended.get_or_insert_with(Instant::now);
            if ended.elapsed() >= AGAIN_AFTER {
                again.push(index);
            }
        }
        again.iter().try_for_each(|index| self.begin_life(*index))?;
        Ok(again)
    }
}

impl Instance {
    fn signal(&self, signal: Signal) {
        if let Some(process) = &self.process {
            // It has not been waited for, so its pid is still its own.
            let _ = kill_process(Pid::from_child(process), signal);
        }
    }

    fn end(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
        // What it told before is in the pipe.
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.end();
    }
}

fn read(errors: impl io::Read, mut history: Log, mut rest: std::fs::File) {
    for line in BufReader::new(errors).lines().map_while(Result::ok) {
        match told::of_line(&line) {
            Some(event) => drop(history.now(event).expect("the history can be written")),
            None => writeln!(rest, "{line}").expect("the log can be written"),
        }
    }
}
