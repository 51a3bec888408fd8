//! Leases that nobody has.

use std::io;

use leasehold::{Fence, Holder, LeaseToken, LockName};

use super::ways::{Answer, Way, id_of};
use super::{Caller, Held};
use crate::check::MADE_UP;
use crate::history::Event;

impl Caller<'_> {
    /// Hands in what was made up, while it has a lease or not.
    pub(super) fn lie(&mut self, held: &mut Held) -> io::Result<()> {
        let mut token = held.token.clone();
        let fence = token.fence.get();
        let (lie, may_release) = match self.chance.within(0..6) {
            0 => {
                token.holder = self.nobody();
                ("another holder", true)
            }
            1 => {
                (token.holder, token.ttl) = (self.nobody(), token.ttl * 2);
                let fence = number(fence + MADE_UP + self.chance.within(0..1000));
                (token.fence, token.token) = (fence, fence);
                ("another holder with a high fence", true)
            }
            // A release looks at no fence.
            2 => {
                let fence = number(fence + MADE_UP);
                (token.fence, token.token) = (fence, fence);
                ("a high fence", false)
            }
            3 => {
                let fence = number(fence - 1);
                (token.fence, token.token) = (fence, fence);
                ("a low fence", false)
            }
            4 => {
                let name = format!("{}-of-nobody", token.name);
                token.name = LockName::new(&name).expect("a longer name");
                ("another lock", true)
            }
            _ => return self.lie_about_the_past(),
        };
        let id = id_of(&token);
        let id = if self.chance.percent(10) { id[..id.len() / 3].to_owned() } else { id };
        self.tell_lie(lie, &token, id, may_release)
    }

    /// What was released or is lost is handed in as if it were there.
    fn lie_about_the_past(&mut self) -> io::Result<()> {
        if self.past.is_empty() {
            return Ok(());
        }
        let token = self.past[self.chance.index(self.past.len())].clone();
        let id = id_of(&token);
        // A release may be repeated shortly after.
        self.tell_lie("a lease that is over", &token, id, false)
    }

    fn tell_lie(
        &mut self,
        lie: &str,
        token: &LeaseToken,
        id: String,
        may_release: bool,
    ) -> io::Result<()> {
        let (answer, believed) = match self.chance.within(0..100) {
            0..10 => self.lie_as_script(token, may_release)?,
            kind => {
                let (method, path) = match kind {
                    10..50 => ("POST", format!("/v1/leases/{id}/renew")),
                    50..80 if may_release => ("DELETE", format!("/v1/leases/{id}")),
                    _ => ("GET", format!("/v1/leases/{id}")),
                };
                let Some(status) = self.hand_in(method, path) else { return Ok(()) };
                (format!("{method} {status}"), (200..300).contains(&status))
            }
        };
        let (lock, fence) = (token.name.as_str().to_owned(), token.fence.get());
        self.log.now(Event::Lied { lie: lie.into(), lock, fence, answer, believed })?;
        Ok(())
    }

    fn lie_as_script(
        &mut self,
        token: &LeaseToken,
        may_release: bool,
    ) -> io::Result<(String, bool)> {
        let answer = match may_release && self.chance.percent(50) {
            true => self.give_back(Way::Script, token)?,
            false => self.extend(Way::Script, token, None)?,
        };
        let believed = matches!(answer, Answer::Held { .. } | Answer::Free);
        Ok((format!("script: {answer:?}"), believed))
    }

    fn nobody(&mut self) -> Holder {
        let nonce = u128::from(self.chance.bits()) << 64 | u128::from(self.chance.bits());
        Holder::new("nobody", nonce).expect("a holder")
    }
}

fn number(fence: u64) -> Fence {
    Fence::new(fence).expect("a fence")
}
