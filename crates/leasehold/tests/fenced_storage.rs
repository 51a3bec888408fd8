//! What the fence is for: storage that refuses a holder that is too late, whatever that holder
//! believes. With the statements that `docs/guarantees.md` tells people to use.

#![cfg(feature = "sqlite")]

use std::time::Duration;

use leasehold::{Guard, Locks};
use rusqlite::{Connection, named_params};

const TTL: Duration = Duration::from_millis(300);

const TABLE: &str = "\
CREATE TABLE fences (resource TEXT PRIMARY KEY, fence INTEGER NOT NULL, holder TEXT NOT NULL);";

/// One row if this holder may go on, none if a later one was here.
const REGISTER: &str = "\
INSERT INTO fences VALUES (:resource, :fence, :holder)
ON CONFLICT (resource) DO UPDATE SET fence = :fence, holder = :holder
WHERE fences.fence < :fence OR (fences.fence = :fence AND fences.holder = :holder);";

/// A storage with one thing in it that must not be written by two.
struct Storage(Connection);

/// What a holder sends to the storage. It may be long on its way.
struct Write {
    fence: u64,
    holder: String,
    text: &'static str,
}

impl Write {
    fn of(guard: &Guard, text: &'static str) -> Self {
        Self { fence: guard.fence().get(), holder: guard.holder().to_string(), text }
    }
}

impl Storage {
    fn new() -> Self {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(TABLE).unwrap();
        connection
            .execute_batch("CREATE TABLE thing (text TEXT); INSERT INTO thing VALUES ('');")
            .unwrap();
        Self(connection)
    }

    fn register(&self, guard: &Guard) -> bool {
        self.admits(&Write::of(guard, ""))
    }

    fn admits(&self, write: &Write) -> bool {
        let fence = i64::try_from(write.fence).unwrap();
        let holder = &write.holder;
        let row = named_params! { ":resource": "thing", ":fence": fence, ":holder": holder };
        self.0.execute(REGISTER, row).unwrap() == 1
    }

    /// The check and the write are one transaction.
    fn write(&self, write: &Write) -> bool {
        let transaction = self.0.unchecked_transaction().unwrap();
        let is_admitted = self.admits(write);
        if is_admitted {
            self.put(write);
        }
        transaction.commit().unwrap();
        is_admitted
    }

    fn put(&self, write: &Write) {
        self.0.execute("UPDATE thing SET text = ?1", [write.text]).unwrap();
    }

    fn read(&self) -> String {
        self.0.query_row("SELECT text FROM thing", [], |row| row.get(0)).unwrap()
    }
}

/// One that held the lock and does not know that it is over, and the next one.
async fn two_in_a_row() -> (Guard, Guard) {
    let locks = Locks::open("memory:?nodes=3&max_ttl=300ms&max_clock_skew=1ms").await.unwrap();
    let late = locks.lock("thing").ttl(TTL).manual().acquire().await.unwrap();
    let next = locks.lock("thing").ttl(TTL).acquire().await.unwrap();
    (late, next)
}

#[tokio::test]
async fn a_holder_that_missed_the_end_of_its_lease_is_refused() {
    let (late, next) = two_in_a_row().await;
    let storage = Storage::new();
    assert!(storage.register(&next));
    assert_eq!(storage.read(), "");
    // It was paused, and does not ask whether its lease is still good.
    assert!(!storage.write(&Write::of(&late, "late")));
    assert!(storage.write(&Write::of(&next, "next")));
    assert!(storage.write(&Write::of(&next, "again")), "as often as it likes");
    assert!(!storage.register(&late));
    assert_eq!(storage.read(), "again");
}

#[tokio::test]
async fn a_write_that_was_long_on_its_way_is_refused_once_the_next_holder_has_registered() {
    let (late, next) = two_in_a_row().await;
    let under_way = || Write::of(&late, "late");
    let storage = Storage::new();
    assert!(storage.register(&next));
    let read = storage.read();
    assert!(!storage.write(&under_way()));
    assert_eq!(storage.read(), read, "what it read is what is there");

    // Whoever reads first and registers later builds on what may change under its hands.
    let storage = Storage::new();
    let read = storage.read();
    assert!(storage.write(&under_way()), "nothing tells the storage of a later holder");
    assert!(storage.register(&next));
    assert_ne!(storage.read(), read);
}

#[tokio::test]
async fn a_check_that_stands_apart_from_the_write_protects_nothing() {
    let (late, next) = two_in_a_row().await;
    let storage = Storage::new();
    assert!(storage.register(&late), "while nobody else was there");
    assert!(storage.write(&Write::of(&next, "next")));
    storage.put(&Write::of(&late, "late"));
    assert_eq!(storage.read(), "late", "checked once, written for ever after");
    assert!(!storage.write(&Write::of(&late, "late")), "checked with the write");
}

#[test]
fn the_documentation_shows_these_statements() {
    let page = include_str!("../../../docs/guarantees.md");
    for statement in [TABLE, REGISTER] {
        for line in statement.lines() {
            assert!(page.contains(line), "{line}");
        }
    }
}
