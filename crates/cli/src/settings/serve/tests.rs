use clap::CommandFactory as _;

use super::*;
use crate::args::Global;

/// What is in force with a file of this text and these flags.
fn resolve(text: &str, flags: &Args) -> Result<Serve, Failure> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("leasehold.toml");
    std::fs::write(&path, text).unwrap();
    let global = Global { config: Some(path), ..Global::default() };
    let settings = Settings::resolve(&global, |_| None)?;
    Serve::resolve(flags, &settings)
}

fn of_file(text: &str) -> Serve {
    resolve(text, &Args::default()).unwrap()
}

fn error(text: &str) -> String {
    resolve(text, &Args::default()).unwrap_err().to_string()
}

#[test]
fn every_key_is_read_and_a_flag_goes_before_it() {
    let text = "ttl = \"5s\"\n[serve]\nlisten = \"0.0.0.0:1\"\ntokens = \"t\"\ntls-cert = \"c\"\n\
                tls-key = \"k\"\nclient-ca = \"a\"\ninsecure = true\nlog-format = \"json\"\n\
                max-wait = 5\nmax-connections = 1\nmax-waiters = 2_000\nmax-waiters-per-token = 3\n\
                max-requests-per-token = 4\nmetrics-lock = [\"x\", \"y\"]\ntrusted-proxies = [\"10.0.0.0/8\"]\ndrain-notice = 2\ndrain = \"1m\"\n";
    let serve = of_file(text);
    let shown = serve.shown();
    let values: Vec<_> = shown.iter().map(|(_, value, _)| value.as_str()).collect();
    let expected = "0.0.0.0:1 t c k a true json 5.0s 1 2000 3 4 x,·y 10.0.0.0/8 2.0s 1m";
    assert_eq!(values.join(" "), expected.replace('·', " "));
    for (number, (key, _, source)) in shown.iter().enumerate() {
        let expected = format!("line {}", number + 3);
        assert!(source.to_string().ends_with(&expected), "{key}: {source}");
    }
    let mut flags = Args::default();
    (flags.max_waiters, flags.insecure) = (Some(7), true);
    flags.metrics_lock.push("z".into());
    let serve = resolve("[serve]\nmax-waiters = 9\nmetrics-lock = \"x\"", &flags).unwrap();
    assert_eq!((serve.max_waiters.value, serve.max_waiters.source), (7, Source::Flag));
    assert_eq!(
        (serve.metrics_lock.value, serve.metrics_lock.source),
        (flags.metrics_lock, Source::Flag)
    );
    assert_eq!((serve.insecure.value, serve.insecure.source), (true, Source::Flag));
}

#[test]
fn what_cannot_be_a_setting_is_named_with_its_line() {
    for (text, expected) in [
        (
            "[serve]\n\nmax-wiat = 5",
            "line 3: unknown setting `serve.max-wiat`; did you mean `serve.max-wait`?",
        ),
        ("[serve]\ntrust-new-nodes = true", "line 2: unknown setting `serve.trust-new-nodes`"),
        ("max-wait = 5", "line 1: unknown setting `max-wait`; it belongs below [serve]"),
        ("sevre = 5", "did you mean `serve`?"),
        ("serve = 5", "line 1: `serve` must be a table"),
        ("[[serve]]", "line 1: `serve` must be a table"),
        ("[serve]\nmax-wait = \"soon\"", "line 2: `serve.max-wait`: `soon` is not a duration"),
        ("[serve]\nmax-waiters = 0", "`serve.max-waiters`: `0` is not a number above zero"),
        ("[serve]\nlisten = \"here\"", "`here` is not an address; write it like 127.0.0.1:7717"),
        ("[serve]\ntokens = \"\"", "`serve.tokens`: it is empty"),
        ("[serve]\nlog-format = \"xml\"", "`xml` is not one of text, json"),
        ("[serve]\ninsecure = \"yes\"", "`serve.insecure` must be true or false, without quotes"),
        ("[serve]\ndrain = [\"5s\"]", "`serve.drain` must be a text in quotes, like drain = "),
        ("[serve]\nmetrics-lock = [true]", "must be a list of texts, like metrics-lock = ["),
    ] {
        let said = error(text);
        assert!(said.contains("leasehold.toml, line "), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn help_tells_the_defaults_that_are_in_force() {
    let command = crate::args::Args::command();
    let command = command.find_subcommand("serve").unwrap();
    let defaults = of_file("");
    let mut told = 0;
    for (key, value, source) in defaults.shown() {
        assert_eq!(source, &Source::Default);
        let flag = command.get_arguments().find(|flag| flag.get_long() == Some(key));
        let help = flag.expect(key).get_help().unwrap().to_string();
        let Some((_, rest)) = help.split_once("[default: ") else { continue };
        let default = rest.strip_suffix(']').unwrap();
        let serve = of_file(&format!("[serve]\n{key} = \"{default}\""));
        let shown = serve.shown();
        let (_, found, _) = shown.iter().find(|(name, ..)| *name == key).unwrap();
        assert_eq!(*found, value, "{key}");
        told += 1;
    }
    assert_eq!(told, 9, "all that are not off");
}

#[test]
fn beyond_this_machine_tokens_and_tls_are_wanted_and_a_certificate_wants_its_key() {
    let check = |text: &str| of_file(&format!("[serve]\n{text}")).check();
    let both = "tokens = \"t\"\ntls-cert = \"c\"\ntls-key = \"k\"\n";
    let outside = "listen = \"0.0.0.0:1\"\n";
    for good in ["", both, &format!("{outside}{both}"), &format!("{outside}insecure = true")] {
        check(good).unwrap();
    }
    for (text, expected) in [
        (outside, "--tokens, --tls-cert and --tls-key are missing"),
        ("tls-cert = \"c\"", "--tls-cert needs --tls-key"),
        ("tls-key = \"c\"", "--tls-key needs --tls-cert"),
        ("client-ca = \"c\"", "--client-ca needs --tls-cert and --tls-key"),
    ] {
        let said = check(text).unwrap_err().to_string();
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn what_a_running_server_cannot_change_stays_and_is_named() {
    let running = of_file("[serve]\nlisten = \"127.0.0.1:1\"\n");
    let mut same = of_file("[serve]\nlisten = \"127.0.0.1:1\"\nmax-wait = 1\ntokens = \"t\"\n");
    assert!(same.keep_what_cannot_change(&running).is_empty());
    assert_eq!(same.max_wait.value, Duration::from_secs(1));
    let mut other = of_file(
        "[serve]\nlisten = \"127.0.0.1:2\"\nlog-format = \"json\"\ntls-cert = \"c\"\n\
         tls-key = \"k\"\nmax-wait = 1\n",
    );
    let differs = other.keep_what_cannot_change(&running);
    for (said, (key, line)) in
        differs.iter().zip([("listen", 2), ("log-format", 3), ("tls-cert", 4)])
    {
        let expected = format!("`serve.{key}` (");
        assert!(said.starts_with(&expected) && said.ends_with(&format!("line {line})")), "{said}");
    }
    assert_eq!(differs.len(), 3);
    assert_eq!((other.listen.value, &other.tls_cert.value), (running.listen.value, &None));
    other.check().unwrap();
    assert_eq!(other.max_wait.value, Duration::from_secs(1));
    let running = of_file("[serve]\ntls-cert = \"c\"\ntls-key = \"k\"\ntokens = \"t\"\n");
    let mut renewed = of_file("[serve]\ntls-cert = \"c2\"\ntls-key = \"k2\"\ntokens = \"t2\"\n");
    assert!(renewed.keep_what_cannot_change(&running).is_empty(), "other certificates can be read");
    assert_eq!(renewed.tls().unwrap().cert, PathBuf::from("c2"));
    let mut without = of_file("");
    let differs = without.keep_what_cannot_change(&running);
    assert_eq!(differs, ["`serve.tokens` (default)", "`serve.tls-cert` (default)"]);
    assert_eq!((without.tls(), without.tokens.value), (running.tls(), running.tokens.value));
}
