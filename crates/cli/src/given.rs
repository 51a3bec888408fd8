//! A lease token from the command line, from standard input or from a file. Every user of the machine who can list processes reads
//! what stands on a command line, and the token is enough to release the lease.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::str::FromStr;

use leasehold::LeaseToken;

use crate::exit::Failure;
use crate::output::Output;

/// No token is longer.
const BYTES_MAX: u64 = 4096;

/// Where a token is.
#[derive(Debug, Clone)]
pub(crate) enum Given {
    Here(String),
    Input,
    File(PathBuf),
}

impl FromStr for Given {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text.strip_prefix('@') {
            _ if text == "-" => Self::Input,
            Some(path) => Self::File(path.into()),
            None => Self::Here(text.to_owned()),
        })
    }
}

impl Given {
    /// The token. Warns of one that stands on the command line.
    pub(crate) fn token(&self, output: Output) -> Result<LeaseToken, Failure> {
        let (text, from) = match self {
            Self::Here(text) => {
                let token = text.parse().map_err(|error| Failure::Usage(format!("{error}")))?;
                output.note(
                    "warning: everybody on this machine can read the lease token with ps, and \
                     release the lease; give `-` and the token on standard input, or `@FILE`",
                );
                return Ok(token);
            }
            Self::Input => (read(io::stdin().lock()), "the standard input".to_owned()),
            Self::File(path) => (File::open(path).and_then(read), path.display().to_string()),
        };
        let text = text.map_err(|error| Failure::System { what: from.clone(), error })?;
        let token = text.trim().parse();
        // Without its words: it may be a token that is only cut off.
        token.map_err(|_| {
            Failure::Usage(format!("{from}: not a lease token as `acquire` prints it"))
        })
    }
}

fn read(from: impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}
