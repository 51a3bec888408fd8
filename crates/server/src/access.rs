//! Who may call: the tokens, which are replaced as a whole, and how many requests of each caller are under
//! way.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use tokio_util::sync::CancellationToken;

use crate::problem::{Kind, Problem};
use crate::tokens::Tokens;

/// Who may call, and who does.
pub(crate) struct Access {
    rules: RwLock<Arc<Rules>>,
    under_way: Arc<Mutex<HashMap<Arc<str>, usize>>>,
}

/// Who may call, until that is replaced.
pub(crate) struct Rules {
    /// None where no tokens are asked for.
    pub(crate) tokens: Option<Tokens>,
    /// Cancelled when these rules are replaced: streams end, so that whoever was let in has to ask again.
    pub(crate) replaced: CancellationToken,
}

impl Rules {
    fn new(tokens: Option<Tokens>) -> Arc<Self> {
        Arc::new(Self { tokens, replaced: CancellationToken::new() })
    }
}

impl Access {
    pub(crate) fn new(tokens: Option<Tokens>) -> Self {
        Self { rules: RwLock::new(Rules::new(tokens)), under_way: Arc::default() }
    }

    pub(crate) fn rules(&self) -> Arc<Rules> {
        self.rules.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Other tokens from now on.
    pub(crate) fn replace(&self, tokens: Option<Tokens>) {
        let mut current = self.rules.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *current, Rules::new(tokens)).replaced.cancel();
    }

    /// One more request of this caller is under way, unless there are `most`.
    pub(crate) fn begin(&self, name: &Arc<str>, most: usize) -> Result<UnderWay, Problem> {
        let mut counts = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(name.clone()).or_default();
        if *count >= most {
            let detail = format!("{count} requests of `{name}` are under way already");
            return Err(Problem::new(Kind::TooManyRequests, detail));
        }
        *count += 1;
        Ok(UnderWay { counts: self.under_way.clone(), name: name.clone() })
    }
}

/// Counts a request until it is dropped.
pub(crate) struct UnderWay {
    counts: Arc<Mutex<HashMap<Arc<str>, usize>>>,
    name: Arc<str>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.name);
            }
        }
    }
}
