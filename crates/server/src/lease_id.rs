//! A lease as one word of a URL: the library's lease token, which carries what any instance needs to
//! renew or release it. Having it is enough; it is shown to nobody but the holder. It proves nothing:
//! the nodes do not do what it says unless they have just this holder, whose random part nobody guesses.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use leasehold::LeaseToken;

use crate::problem::{Kind, Problem};

/// The longest there is: a name of 512 bytes and a label of 200, every byte of them escaped, and some
/// numbers, in base 64.
const LONGEST: usize = 4096;

pub(crate) fn encode(token: &LeaseToken) -> String {
    URL_SAFE_NO_PAD.encode(token.to_string())
}

pub(crate) fn decode(text: &str) -> Result<LeaseToken, Problem> {
    let wrong = || {
        Problem::new(
            Kind::LeaseUnknown,
            "this is no lease id, or not all of one: take `lease_id` from the answer to the acquire, unchanged",
        )
    };
    if text.len() > LONGEST {
        return Err(wrong());
    }
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| wrong())?;
    String::from_utf8(bytes).ok().and_then(|text| text.parse().ok()).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_and_needs_no_escapes() {
        let text = format!("lease1:1763245803123456:30000:ana@db:{:032x}/a%2Fb%20%E2%98%82", 7);
        let token: LeaseToken = text.parse().unwrap();
        let id = encode(&token);
        assert!(id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)), "{id}");
        assert_eq!(decode(&id).unwrap(), token);
        assert_eq!(token.name.as_str(), "a/b ☂");
    }

    #[test]
    fn what_is_no_id_is_a_problem() {
        for text in ["", "x", "====", "bGVhc2Ux", &"A".repeat(LONGEST + 1), "☂"] {
            assert_eq!(decode(text).unwrap_err().kind, Kind::LeaseUnknown, "{text}");
        }
    }
}
