//! Manual pages and completions: made, read back, and driven.

use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use leasehold_testkit::{Need, skip};

use crate::harness::{Desk, Ran};
use crate::screen::on_a_screen;

const PAGES: &[&str] = &[
    "acquire",
    "bench",
    "completions",
    "config",
    "doctor",
    "extend",
    "force-release",
    "init",
    "list",
    "man",
    "nodes",
    "plan",
    "release",
    "run",
    "status",
    "watch",
];

#[test]
fn each_command_has_a_manual_page() {
    let desk = Desk::sqlite();
    let folder = desk.home().join("man");
    desk.run(&["man", folder.to_str().unwrap()]).expect(0);
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).expect(name);
    assert!(read("leasehold.1").contains("force\\-release"));
    for command in PAGES {
        let page = read(&format!("leasehold-{command}.1"));
        assert!(page.contains(".SH NAME") && page.contains(".SH SYNOPSIS"), "{page}");
        assert!(page.contains(".SH OPTIONS") && page.contains("Exit codes"), "{page}");
    }
    assert!(!folder.join("leasehold-__names.1").exists(), "hidden commands have no page");
    let main = desk.run(&["man"]).expect(0).out;
    assert!(main.contains(".TH leasehold 1"), "{main}");
    desk.run(&["man", "/proc/none"]).fails(74, &["cannot write /proc/none"]);
}

#[test]
fn completions_are_made_for_every_shell() {
    let desk = Desk::sqlite();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = desk.run(&["completions", shell]).expect(0).out;
        for word in ["force-release", "completions", "backend"] {
            assert!(script.contains(word), "{shell}: no {word}");
        }
        if ["bash", "zsh", "fish"].contains(&shell) {
            assert!(script.contains("__names"), "{shell} asks for names");
        }
    }
    let zsh = desk.run(&["completions", "zsh"]).expect(0).out;
    let names = zsh.matches(":_leasehold_names'").count();
    assert!(names >= 6, "run, acquire, status, list, watch, force-release: {names}");
    assert!(zsh.trim_end().ends_with("fi"), "what calls it when it is autoloaded comes last");
}

/// What bash offers for a line, whose last word is being typed.
fn offered(desk: &Desk, words: &[&str]) -> Vec<String> {
    let program = env!("CARGO_BIN_EXE_leasehold");
    let script = desk.home().join("completions.bash");
    std::fs::write(&script, desk.run(&["completions", "bash"]).expect(0).out).unwrap();
    assert!(Command::new("bash").arg("-n").arg(&script).status().unwrap().success());
    let drive = r#"
        source "$1"; shift
        function_name=$(complete -p leasehold | sed 's/.*-F \([^ ]*\).*/\1/')
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE}
        "$function_name" "$1" "${@: -1}" "${@: -2:1}"
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let mut bash = at_a_shell(desk, "bash");
    bash.args(["--norc", "-c", drive, "bash"]).arg(&script).arg(program).args(words);
    let output = bash.output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(err.is_empty(), "{err}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_flags_and_names_of_locks() {
    let desk = Desk::sqlite();
    for name in ["invoice/1", "invoice/2", "with space", "other"] {
        desk.acquire(name);
    }
    assert_eq!(offered(&desk, &["rel"]), ["release"]);
    assert!(offered(&desk, &["status", "--js"]).contains(&"--json".to_owned()));
    assert_eq!(offered(&desk, &["status", "invoice/"]), ["invoice/1", "invoice/2"]);
    assert_eq!(offered(&desk, &["run", "-n", "ot"]), ["other"]);
    assert_eq!(offered(&desk, &["force-release", "with"]), ["with\\ space"]);
    assert!(!offered(&desk, &["run", "-w", "ot"]).contains(&"other".to_owned()));

    assert!(!offered(&desk, &["plan", "ot"]).contains(&"other".to_owned()));
}

/// A shell in which `leasehold` is a command.
fn at_a_shell(desk: &Desk, shell: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(shell);
    for (name, value) in desk.command(&[]).get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let ours = Path::new(env!("CARGO_BIN_EXE_leasehold")).parent().unwrap().display();
    command.env("PATH", format!("{ours}:{}", std::env::var("PATH").unwrap()));
    command
}

/// Puts the completions where `completions --help` says.
fn install(desk: &Desk, shell: &str, place: &str) {
    let file = desk.home().join(place);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, desk.run(&["completions", shell]).expect(0).out).unwrap();
}

#[test]
fn fish_completes_commands_flags_and_names_of_locks() {
    if skip(Need::Fish) {
        return;
    }
    let desk = Desk::sqlite();
    for name in ["invoice/1", "invoice/2", "with space", "team:blue"] {
        desk.acquire(name);
    }
    let url = format!("sqlite:{}", desk.home().join("other.db").display());
    desk.run(&["--backend", &url, "acquire", "elsewhere", "--ttl", "20s"]).expect(0);
    install(&desk, "fish", "config/fish/completions/leasehold.fish");
    let offered = |line: &str| -> Vec<String> {
        let mut fish = at_a_shell(&desk, Need::Fish.path());
        fish.args(["-c", "complete -C $argv[1]", line]).stdin(Stdio::null());
        let ran = Ran::of(fish.current_dir(desk.home()).output().unwrap());
        assert!(ran.err.is_empty(), "{ran:?}");
        // What follows a tab is an explanation.
        ran.out.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
    };
    assert_eq!(offered("leasehold rel"), ["release"]);
    assert!(offered("leasehold ").contains(&"force-release".to_owned()));
    assert_eq!(offered("leasehold status --js"), ["--json"]);
    let all = ["invoice/1", "invoice/2", "team:blue", "with space"];
    assert_eq!(offered("leasehold status "), all);
    assert_eq!(offered("leasehold watch inv"), ["invoice/1", "invoice/2"]);
    assert!(offered("leasehold run te").contains(&"team:blue".to_owned()));
    assert_eq!(offered(&format!("leasehold --backend {url} status ")), ["elsewhere"]);
    assert_eq!(offered("leasehold plan inv"), [""; 0]);
}

#[test]
fn a_person_at_a_real_zsh_gets_commands_and_names_of_locks() {
    if skip(Need::Zsh) {
        return;
    }
    let desk = Desk::sqlite();
    desk.acquire("with space");
    desk.acquire("team:blue");
    let url = format!("sqlite:{}", desk.home().join("other.db").display());
    desk.run(&["--backend", &url, "acquire", "elsewhere", "--ttl", "20s"]).expect(0);
    install(&desk, "zsh", ".zfunc/_leasehold");
    let start = "[[ -n $ZSH_MODULES ]] && module_path=($ZSH_MODULES)\n\
                 fpath=(~/.zfunc $fpath)\nautoload -Uz compinit && compinit -u -D\n\
                 unsetopt beep prompt_sp\nprint loaded $_comps[leasehold]\n";
    std::fs::write(desk.home().join(".zshrc"), start).unwrap();
    let mut zsh = at_a_shell(&desk, Need::Zsh.path());
    zsh.args(["-d", "-i", "+m"]).env_remove("ZDOTDIR").current_dir(desk.home());
    let typed = format!(
        "leasehold stat\twi\t\nleasehold status team:b\t\n\
         leasehold --backend {url} status else\t\nexit\n"
    );
    let (code, seen) = on_a_screen(zsh, &typed);
    assert_eq!(code, 0, "{seen}");
    let plain = seen.replace("\x1b[32m", "");
    for line in ["loaded _leasehold", "with space  held", "team:blue  held", "elsewhere  held"] {
        assert!(plain.contains(line), "no `{line}` in {seen}");
    }
    for word in ["not found", "error", "_leasehold:", "_leasehold_names:"] {
        assert!(!plain.contains(word), "`{word}` in {seen}");
    }
}

#[test]
fn a_person_at_a_real_bash_gets_names_from_the_backend_on_the_line() {
    let desk = Desk::sqlite();
    desk.acquire("with space");
    desk.acquire("team:blue");
    let url = format!("sqlite:{}", desk.home().join("other.db").display());
    desk.run(&["--backend", &url, "acquire", "elsewhere", "--ttl", "20s"]).expect(0);
    let script = desk.home().join("completions.bash");
    std::fs::write(&script, desk.run(&["completions", "bash"]).expect(0).out).unwrap();
    let mut bash = at_a_shell(&desk, "bash");
    bash.args(["--norc", "--noprofile", "-i"]).env("INPUTRC", "/dev/null");
    let typed = format!(
        "source {}\nleasehold status wi\t\nleasehold status team:b\t\n\
         leasehold --backend {url} status else\t\nexit\n",
        script.display()
    );
    let (_, seen) = on_a_screen(bash, &typed);
    for line in ["with space  held", "team:blue  held", "elsewhere  held"] {
        let plain = seen.replace("\x1b[32m", "");
        assert!(plain.contains(line), "no `{line}` in {seen}");
    }
}

#[test]
fn asking_for_names_never_complains() {
    for backend in ["redis://127.0.0.1:1", "ftp://x", "sqlite:/"] {
        let ran = Desk::with(backend).run(&["__names", "a"]).expect(0);
        assert!(ran.all().trim().is_empty(), "{ran:?}");
    }
}
