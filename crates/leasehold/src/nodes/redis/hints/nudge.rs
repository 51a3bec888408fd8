//! The way of a nudge: a waiter in line says to the holder's process that it does, so that this
//! does not take the lock again past the line.

use std::sync::{Arc, OnceLock};

use leasehold_core::LockName;

use super::super::resp::Value;
use crate::node::OnNudge;

/// Stands before a holder's label: where those who go by it are nudged.
const HOLDER: &str = "leasehold:holder:";

/// The channel of those who go by `label`.
pub(super) fn channel_of(label: &str) -> String {
    format!("{HOLDER}{label}")
}

/// Where nudges of this process go.
pub(in super::super) struct Nudges {
    /// Where it listens.
    pub(in super::super) channel: Option<String>,
    prefix: Arc<str>,
    told: OnceLock<OnNudge>,
}

impl Nudges {
    /// Nudges of those who go by `label`, about locks with this prefix.
    pub(in super::super) fn at(label: Option<&str>, prefix: Arc<str>) -> Self {
        Self { channel: label.map(channel_of), prefix, told: OnceLock::new() }
    }

    /// From now on `told` hears of them. Whoever came first stays.
    pub(in super::super) fn tell(&self, told: OnNudge) {
        let _ = self.told.set(told);
    }

    /// A message of the server that nobody asked for.
    pub(in super::super) fn hear(&self, push: &Value) {
        let Value::Array(items) = push else { return };
        let texts: Vec<_> = items.iter().map(|item| item.str()).collect();
        let [Some("message"), channel, Some(key)] = texts[..] else { return };
        if channel != self.channel.as_deref() {
            return;
        }
        let name = key.strip_prefix(&*self.prefix).and_then(|name| LockName::new(name).ok());
        if let (Some(lock), Some(told)) = (name, self.told.get()) {
            told(&lock);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn only_nudges_at_us_about_our_locks_are_heard() {
        let nudges = Nudges::at(Some("me@here:1"), "p:".into());
        let heard = Arc::new(Mutex::new(Vec::new()));
        let sink = heard.clone();
        nudges.tell(Box::new(move |lock| sink.lock().unwrap().push(lock.as_str().to_owned())));
        let push = |words: [&str; 3]| {
            Value::Array(words.iter().map(|word| Value::Text((*word).into())).collect())
        };
        nudges.hear(&push(["message", "leasehold:holder:me@here:1", "p:a"]));
        nudges.hear(&push(["message", "leasehold:holder:other", "p:b"]));
        nudges.hear(&push(["message", "leasehold:holder:me@here:1", "q:c"]));
        nudges.hear(&push(["subscribe", "leasehold:holder:me@here:1", "p:d"]));
        nudges.hear(&Value::Nil);
        assert_eq!(*heard.lock().unwrap(), ["a"]);
    }
}
