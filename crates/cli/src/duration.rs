//! Lengths of time as people type and read them.

use std::time::Duration;

/// Reads `30s`, `5m`, `1h30m`, `250ms`; a plain number counts seconds, as with flock.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let explain = || format!("`{text}` is not a duration; write it like 250ms, 30s, 5m or 1h30m");
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).map_err(|_| explain());
    }
    humantime::parse_duration(text).map_err(|_| explain())
}

/// As short as it stays useful: `3ms`, `9.8s`, `3m 20s`.
pub(crate) fn short(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 0.000_999_5 {
        format!("{}µs", duration.as_micros())
    } else if seconds < 0.1 {
        format!("{:.1}ms", seconds * 1e3)
    } else if seconds < 0.999_5 {
        format!("{:.0}ms", seconds * 1e3)
    } else if seconds < 59.95 {
        format!("{seconds:.1}s")
    } else {
        humantime::format_duration(Duration::from_secs(seconds.round() as u64)).to_string()
    }
}

/// As it can be typed into a command or a URL.
pub(crate) fn typed(duration: Duration) -> String {
    match duration.subsec_nanos() {
        0 => format!("{}s", duration.as_secs()),
        _ => format!("{}ms", duration.as_millis() + 1),
    }
}

/// Whole milliseconds, for JSON.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_may_write_seconds_plainly_and_get_a_sentence_otherwise() {
        assert_eq!(parse("5"), Ok(Duration::from_secs(5)));
        assert_eq!(parse("0.25"), Ok(Duration::from_millis(250)));
        assert_eq!(parse("1h30m"), Ok(Duration::from_secs(5400)));
        for bad in ["", "5x", "-1", "soon", "NaN", "inf", "1e300"] {
            let error = parse(bad).unwrap_err();
            assert!(error.contains("like 250ms"), "{bad}: {error}");
        }
    }

    #[test]
    fn any_text_is_a_length_of_time_or_is_not_and_any_length_can_be_typed() {
        leasehold_testkit::fuzz(4000, &[b"\x051h30m", b"\x040.25", b"\x051e300"], |input| {
            if let Ok(duration) = parse(&input.text()) {
                assert!(!short(duration).is_empty());
                millis(duration);
            }
            // A century: longer than anything that is typed here.
            let seconds = input.number() % (100 * 365 * 24 * 3600);
            let any = Duration::new(seconds, input.number() as u32 % 1_000_000_000);
            let typed = parse(&typed(any)).unwrap();
            assert!(typed >= any && typed - any <= Duration::from_millis(1), "{any:?}");
        });
    }

    #[test]
    fn times_are_short() {
        for (micros, text) in [
            (40, "40µs"),
            (2_340, "2.3ms"),
            (250_000, "250ms"),
            (9_840_000, "9.8s"),
            (200_000_000, "3m 20s"),
        ] {
            assert_eq!(short(Duration::from_micros(micros)), text);
        }
        for (micros, text) in [(30_000_000, "30s"), (1_250_400, "1251ms"), (80, "1ms")] {
            assert_eq!(typed(Duration::from_micros(micros)), text);
            assert!(parse(text).is_ok());
        }
    }
}
