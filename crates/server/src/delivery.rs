//! Grants on their way to whoever asked. A grant counts as delivered when the connection took the whole
//! answer; what is left when the connection ends is given back, because nobody knows of it.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// What becomes of a grant that cannot be delivered.
pub(crate) type GiveBack = Box<dyn FnOnce() + Send>;

/// The grants of one connection that are not delivered yet.
#[derive(Default)]
pub(crate) struct Delivery(Mutex<Vec<Pending>>);

struct Pending {
    /// The answer was taken from us, and is delivered with the next flush.
    taken: Arc<std::sync::atomic::AtomicBool>,
    give_back: GiveBack,
}

impl Delivery {
    fn pending(&self) -> MutexGuard<'_, Vec<Pending>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The body of an answer that tells of a grant.
    pub(crate) fn answer(&self, text: String, give_back: GiveBack) -> GrantBody {
        let taken = Arc::default();
        self.pending().push(Pending { taken: Arc::clone(&taken), give_back });
        GrantBody { text: Some(text.into()), taken }
    }

    /// Everything that was taken went out.
    pub(crate) fn flushed(&self) {
        let mut pending = self.pending();
        if !pending.is_empty() {
            pending.retain(|grant| !grant.taken.load(std::sync::atomic::Ordering::Relaxed));
        }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        for grant in self.pending().drain(..) {
            (grant.give_back)();
        }
    }
}

/// The answer that tells of a grant: one frame.
pub(crate) struct GrantBody {
    text: Option<Bytes>,
    taken: Arc<std::sync::atomic::AtomicBool>,
}

impl Body for GrantBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.taken.store(true, std::sync::atomic::Ordering::Relaxed);
        Poll::Ready(self.text.take().map(|text| Ok(Frame::data(text))))
    }

    fn is_end_stream(&self) -> bool {
        self.text.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.text.as_ref().map_or(0, |text| text.len() as u64))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use leasehold::Locks;
    use leasehold_testkit::{Fault, Need, Proxy, RedisServer, skip};

    use super::*;
    use crate::{Server, Settings};

    #[test]
    fn only_what_was_taken_and_went_out_is_delivered() {
        let given_back = Arc::new(Mutex::new(Vec::new()));
        let delivery = Delivery::default();
        let mut answers = ["told", "taken", "waiting"].map(|grant| {
            let given_back = given_back.clone();
            delivery.answer(grant.into(), Box::new(move || given_back.lock().unwrap().push(grant)))
        });
        let mut take = |at: usize| {
            let mut context = Context::from_waker(std::task::Waker::noop());
            assert!(Pin::new(&mut answers[at]).poll_frame(&mut context).is_ready());
        };
        take(0);
        delivery.flushed();
        take(1);
        drop(delivery);
        assert_eq!(*given_back.lock().unwrap(), ["taken", "waiting"]);
    }

    #[tokio::test]
    async fn the_server_does_not_end_before_it_gave_back_what_it_could_not_tell() {
        if skip(Need::Redis) {
            return;
        }
        let node = RedisServer::redis().start();
        let proxy = Proxy::to(node.addr());
        let url = |addr: &str| format!("redis://{addr}?timeout=10s");
        let locks = Locks::open(&url(&proxy.addr())).await.unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Server::start(locks.clone(), Settings::default(), listener).unwrap();
        let token = locks.lock("l").ttl(Duration::from_secs(25)).acquire().await.unwrap().detach();
        let (delivery, app) = (Delivery::default(), server.front.app.clone());
        let told = app.ledger.answer(&token);
        let answer =
            delivery.answer("a grant".into(), Box::new(move || app.give_back(token, told)));
        // A release is longer on its way than the nodes are given to settle.
        proxy.set(Fault::Delay(Duration::from_millis(1500)));
        drop((answer, delivery));
        assert!(server.stop().await, "in time");
        let direct = Locks::open(&url(&node.addr())).await.unwrap();
        let status = direct.inspect("l").await.unwrap();
        assert!(status.owner().is_none(), "still held: {status:?}");
    }
}
