//! What a watch is told, and when.

use super::*;

const OWNER: &str = "ana@db:7:00000000000000000000000000000001";

struct Bench {
    state: State,
    key: Arc<str>,
    told: Arc<Mutex<Vec<Watched>>>,
}

impl Bench {
    fn new() -> Self {
        let state = State::new(1);
        state.open(true);
        Self { state, key: "l".into(), told: Arc::default() }
    }

    /// Watches, and is shown `owner`.
    fn watch(&self, owner: &str) {
        let told = self.told.clone();
        self.state.watch(&self.key, Box::new(move |word| told.lock().unwrap().push(word)));
        self.looks(&Value::Text(owner.into()));
    }

    /// Exactly one look was sent, and is answered.
    fn looks(&self, reply: &Value) {
        assert_eq!(self.sent(), "*2\r\n$3\r\nGET\r\n$1\r\nl\r\n");
        self.state.receive(reply).unwrap();
    }

    fn sent(&self) -> String {
        let mut sent = Vec::new();
        self.state.take_outgoing(&mut sent);
        String::from_utf8(sent).unwrap()
    }

    fn change(&self) {
        let text = |text: &str| Value::Text(text.into());
        self.state
            .hear(&Value::Array(vec![text("invalidate"), Value::Array(vec![text(&self.key)])]));
    }

    fn told(&self) -> Vec<Watched> {
        std::mem::take(&mut *self.told.lock().unwrap())
    }
}

#[test]
fn a_first_change_is_told_at_once() {
    let bench = Bench::new();
    bench.watch(OWNER);
    bench.change();
    assert_eq!(bench.told(), [Watched::Free]);
    assert_eq!(bench.sent(), "");
}

#[test]
fn whoever_stayed_once_is_looked_at_before_anybody_is_woken() {
    let bench = Bench::new();
    bench.watch(OWNER);
    bench.change();
    assert_eq!(bench.told(), [Watched::Free]);
    bench.watch(OWNER);
    for _ in 0..3 {
        bench.change();
        assert_eq!(bench.told(), []);
        bench.looks(&Value::Text(OWNER.into()));
    }
    bench.change();
    bench.looks(&Value::Nil);
    assert_eq!(bench.told(), [Watched::Free]);
}
