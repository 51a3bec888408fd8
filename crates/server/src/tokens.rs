//! The file of tokens: names, hashes and scopes. A token is 256 random bits, so one round of SHA-256 is
//! as good as any slow hash; what stands in the file cannot be used as a token.

use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::ServerError;
use crate::view::hex;

/// Stands first in each token, so that people and scanners know it when they see it.
const PREFIX: &str = "lh_";

/// What a token allows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Look at everything.
    Read,
    /// Acquire, renew and release locks whose names match.
    Lock(String),
    /// Take locks away from their holders, and look at everything.
    Admin,
}

impl FromStr for Scope {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "read" => Ok(Self::Read),
            "admin" => Ok(Self::Admin),
            _ => match text.strip_prefix("lock:") {
                Some(glob) if !glob.is_empty() => Ok(Self::Lock(glob.to_owned())),
                _ => Err(format!(
                    "`{text}` is not a scope: write read, admin, or lock:<glob> like lock:billing/*"
                )),
            },
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read => f.write_str("read"),
            Self::Admin => f.write_str("admin"),
            Self::Lock(glob) => write!(f, "lock:{glob}"),
        }
    }
}

/// Whether `name` matches: `*` stands for any characters, `?` for one.
fn matches(glob: &str, name: &str) -> bool {
    let (glob, name): (Vec<char>, Vec<char>) = (glob.chars().collect(), name.chars().collect());
    let (mut at, mut seen) = (0, 0);
    // Where the last star was, and how far it reaches.
    let mut star = None;
    while seen < name.len() {
        match glob.get(at) {
            Some('*') => {
                star = Some((at, seen));
                at += 1;
            }
            Some(c) if *c == '?' || *c == name[seen] => (at, seen) = (at + 1, seen + 1),
            _ => {
                let Some((from, reach)) = star else { return false };
                star = Some((from, reach + 1));
                (at, seen) = (from + 1, reach + 1);
            }
        }
    }
    glob[at..].iter().all(|c| *c == '*')
}

/// One who may call.
#[derive(Debug, Clone)]
pub struct Token {
    /// Who it is, for logs.
    pub name: Arc<str>,
    digest: [u8; 32],
    /// What is allowed.
    pub scopes: Vec<Scope>,
    /// Until when.
    pub expires: Option<SystemTime>,
}

impl Token {
    /// Whether locks called `name` may be taken.
    pub fn may_lock(&self, name: &str) -> bool {
        self.scopes.iter().any(|scope| matches!(scope, Scope::Lock(glob) if matches(glob, name)))
    }

    /// Whether everything may be looked at.
    pub fn may_read(&self) -> bool {
        self.scopes.iter().any(|scope| matches!(scope, Scope::Read | Scope::Admin))
    }

    /// Whether locks may be taken away.
    pub fn is_admin(&self) -> bool {
        self.scopes.contains(&Scope::Admin)
    }
}

/// Everybody who may call.
#[derive(Debug, Default)]
pub struct Tokens(Vec<Arc<Token>>);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    token: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    sha256: String,
    scopes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires: Option<String>,
}

impl Tokens {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, ServerError> {
        let wrong = |reason| ServerError::Tokens { path: path.display().to_string(), reason };
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        Self::parse(&text).map_err(wrong)
    }

    /// Reads the text of a file. Errors name no secret: there is none in the file.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: File = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        let mut tokens = Vec::<Arc<Token>>::new();
        for entry in file.token {
            let name = entry.name;
            if tokens.iter().any(|token| *token.name == *name) {
                return Err(format!("token `{name}` is there twice"));
            }
            let digest = unhex(&entry.sha256)
                .ok_or_else(|| format!("token `{name}`: sha256 must have 64 hexadecimal digits"))?;
            let scopes = entry.scopes.iter().map(|scope| scope.parse());
            let scopes =
                scopes.collect::<Result<_, _>>().map_err(|e| format!("token `{name}`: {e}"))?;
            let expires = match entry.expires {
                None => None,
                Some(text) => Some(
                    humantime::parse_rfc3339_weak(&text)
                        .map_err(|e| format!("token `{name}`: expires `{text}`: {e}"))?,
                ),
            };
            tokens.push(Arc::new(Token { name: name.into(), digest, scopes, expires }));
        }
        Ok(Self(tokens))
    }

    /// The text of the file.
    pub fn to_text(&self) -> String {
        let entry = |token: &Arc<Token>| Entry {
            name: token.name.to_string(),
            sha256: hex(&token.digest),
            scopes: token.scopes.iter().map(Scope::to_string).collect(),
            expires: token.expires.map(|at| humantime::format_rfc3339_seconds(at).to_string()),
        };
        let file = File { token: self.0.iter().map(entry).collect() };
        toml::to_string(&file).unwrap_or_default()
    }

    /// Adds one, and says what it is: the only time that anybody sees it.
    pub fn create(
        &mut self,
        name: &str,
        scopes: Vec<Scope>,
        expires: Option<Duration>,
    ) -> Result<String, String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.@/".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_plain) {
            return Err(format!(
                "`{name}` cannot be a token's name: up to 64 letters, digits and -_.@/"
            ));
        }
        if self.0.iter().any(|token| *token.name == *name) {
            return Err(format!("there is a token `{name}` already; revoke it first"));
        }
        let mut secret = [0; 32];
        getrandom::fill(&mut secret).map_err(|error| format!("no random bits: {error}"))?;
        let text = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(secret));
        let expires = expires.and_then(|left| SystemTime::now().checked_add(left));
        let digest = Sha256::digest(&text).into();
        self.0.push(Arc::new(Token { name: name.into(), digest, scopes, expires }));
        Ok(text)
    }

    /// Removes one, and says whether it was there.
    pub fn revoke(&mut self, name: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|token| *token.name != *name);
        self.0.len() < before
    }

    /// The names of those that are here and not there, or that are others there.
    pub(crate) fn missing_in(&self, others: &Self) -> String {
        let is_there = |token: &&Arc<Token>| {
            let same = |other: &&Arc<Token>| {
                (&other.name, other.digest, &other.scopes, other.expires)
                    == (&token.name, token.digest, &token.scopes, token.expires)
            };
            others.0.iter().any(|other| same(&other))
        };
        let missing = self.0.iter().filter(|token| !is_there(token));
        missing.map(|token| &*token.name).collect::<Vec<_>>().join(", ")
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Token> {
        self.0.iter().map(|token| &**token)
    }

    /// The same token as it is now, unless it is gone or has expired.
    pub(crate) fn same(&self, before: &Token, now: SystemTime) -> Option<&Token> {
        let same = self.0.iter().find(|token| token.digest == before.digest)?;
        same.expires.is_none_or(|end| end > now).then_some(&**same)
    }

    /// Who sent this. Every entry is compared, and each in constant time.
    pub(crate) fn find(&self, presented: &str, now: SystemTime) -> Option<&Arc<Token>> {
        let digest: [u8; 32] = Sha256::digest(presented).into();
        let mut found = None;
        for token in &self.0 {
            if bool::from(token.digest.ct_eq(&digest)) {
                found = Some(token);
            }
        }
        found.filter(|token| token.expires.is_none_or(|expires| now < expires))
    }
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_as_people_expect() {
        let cases = [
            ("*", "", true),
            ("*", "a/b", true),
            ("billing/*", "billing/42", true),
            ("billing/*", "billing", false),
            ("billing/*", "xbilling/42", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b", "ba", false),
            ("é*", "émile", true),
            ("a", "ab", false),
        ];
        for (glob, name, expected) in cases {
            assert_eq!(matches(glob, name), expected, "{glob} {name}");
        }
    }

    #[test]
    fn a_new_token_is_found_by_its_text_alone_until_it_expires_or_is_revoked() {
        let mut tokens = Tokens::default();
        let scopes = vec![Scope::Read, Scope::Lock("a/*".into())];
        let text = tokens.create("ana", scopes, Some(Duration::from_secs(60))).unwrap();
        let other = tokens.create("bo", vec![Scope::Admin], None).unwrap();
        assert_ne!(text, other);
        let tokens = Tokens::parse(&tokens.to_text()).unwrap();
        assert!(!tokens.to_text().contains(&text), "the file holds no token");
        let now = SystemTime::now();
        let ana = tokens.find(&text, now).unwrap();
        assert_eq!(&*ana.name, "ana");
        assert!(ana.may_lock("a/b") && !ana.may_lock("b") && ana.may_read() && !ana.is_admin());
        let later = now + Duration::from_secs(61);
        assert!(tokens.find(&text, later).is_none(), "expired");
        assert_eq!(&*tokens.find(&other, later).unwrap().name, "bo");
        for wrong in ["", "lh_", &text[..text.len() - 1], &text.to_uppercase()] {
            assert!(tokens.find(wrong, now).is_none(), "{wrong}");
        }
        let mut tokens = tokens;
        assert!(tokens.revoke("ana") && !tokens.revoke("ana"));
        assert!(tokens.find(&text, now).is_none());
    }

    #[test]
    fn a_broken_file_is_refused_with_a_sentence() {
        let digest = "0".repeat(64);
        let entry = |name: &str, digest: &str, scope: &str| {
            format!("[[token]]\nname = \"{name}\"\nsha256 = \"{digest}\"\nscopes = [\"{scope}\"]\n")
        };
        let good = entry("a", &digest, "read");
        assert!(Tokens::parse(&good).is_ok());
        let twice = format!("{good}{good}");
        for (text, expected) in [
            ("[[token]]\nname = 1\n", "string"),
            ("tokens = []", "unknown field"),
            (&entry("a", "12", "read"), "64 hexadecimal"),
            (&entry("a", &digest, "write"), "not a scope"),
            (&entry("a", &digest, "lock:"), "not a scope"),
            (&twice, "twice"),
        ] {
            let error = Tokens::parse(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
