//! The contestants that are written in Rust, behind one face.

mod beside;
pub(crate) mod http;
mod leasehold;
mod rslock;
mod sqlite;

use std::sync::atomic::{AtomicU64, Ordering};

use self::http::Http;
use self::leasehold::Leasehold;
pub(crate) use self::leasehold::all_vote;
use self::rslock::Rslock;
use crate::contestants::IDEAL;
use crate::floor::{self, Floor, Mode};
use crate::order::{Outcome, Role};

/// One contestant at work.
#[derive(Debug)]
pub(crate) enum Client {
    Floor(Floor, AtomicU64),
    /// No lock at all: what is left is the holding.
    Ideal,
    Leasehold(Leasehold),
    Http(Http),
    Rslock(Rslock),
    Sqlite(sqlite::Bare),
}

/// What it holds.
#[derive(Debug)]
pub(crate) enum Held {
    Floor(floor::Held),
    Ideal,
    Leasehold(::leasehold::Guard),
    /// The lease's id.
    Http(String),
    Rslock(::rslock::LockGuard),
    Sqlite(sqlite::Held),
}

impl Client {
    /// Connects; background work runs in the current runtime unless the contestant is about that.
    pub(crate) async fn connect(role: &Role) -> Result<Client, String> {
        let native_release = role.native_release;
        let mode = match role.contestant.as_str() {
            IDEAL => return Ok(Client::Ideal),
            "floor" => Mode::Plain,
            "floor-native" => Mode::Native,
            "floor-script" => Mode::Script { native_release },
            "floor-p2" => Mode::Transaction { native_release },
            "leasehold-http" => return Http::open(&role.addrs).map(Client::Http),
            name if name.starts_with("leasehold") => {
                return Ok(Client::Leasehold(Leasehold::open(role).await?));
            }
            "sqlite-floor" => {
                let bare = sqlite::Bare::open(&role.addrs.concat(), role.process);
                return bare.map(Client::Sqlite).map_err(|error| error.to_string());
            }
            "rslock" | "rslock-5ms" => return Ok(Client::Rslock(Rslock::open(role))),
            other => return Err(format!("no such contestant: {other}")),
        };
        let floor = Floor::connect(&role.addrs, mode).await.map_err(|error| error.to_string())?;
        Ok(Client::Floor(floor, AtomicU64::new(0)))
    }

    /// Takes the lock called `name`, for as long as that takes; an error is worth reporting.
    pub(crate) async fn acquire(&self, name: &str) -> Result<Held, String> {
        match self {
            Client::Floor(floor, turn) => {
                // 32 digits, as long as a random value, and never the same.
                let value = format!("{:032x}", turn.fetch_add(1, Ordering::Relaxed));
                let held = floor.try_acquire(name, value).await;
                held.map(Held::Floor).ok_or_else(|| "no quorum".to_owned())
            }
            Client::Ideal => Ok(Held::Ideal),
            Client::Leasehold(client) => client.acquire(name).await.map(Held::Leasehold),
            Client::Http(client) => client.acquire(name).await.map(Held::Http),
            Client::Rslock(client) => client.acquire(name).await.map(Held::Rslock),
            Client::Sqlite(bare) => bare.acquire(name).map(Held::Sqlite),
        }
    }

    /// Gives back what `acquire` took.
    pub(crate) async fn release(&self, held: Held) -> Result<(), String> {
        match (self, held) {
            (Client::Floor(floor, _), Held::Floor(held)) => {
                floor.release(held).await.then_some(()).ok_or_else(|| "not released".to_owned())
            }
            (_, Held::Ideal) => Ok(()),
            (_, Held::Leasehold(guard)) => match guard.release().await {
                ::leasehold::ReleaseOutcome::Released | ::leasehold::ReleaseOutcome::HandedOver => {
                    Ok(())
                }
                ::leasehold::ReleaseOutcome::Unknown { nodes } => {
                    Err(format!("a release was not confirmed: {nodes}"))
                }
                outcome => Err(format!("a release found {outcome:?}")),
            },
            (_, Held::Rslock(guard)) => {
                guard.release().await;
                Ok(())
            }
            (Client::Http(client), Held::Http(id)) => client.release(&id).await,
            (Client::Sqlite(bare), Held::Sqlite(held)) => bare.release(&held),
            (_, Held::Floor(_) | Held::Http(_) | Held::Sqlite(_)) => {
                Err("held by another client".to_owned())
            }
        }
    }

    /// Gives free what tasks wait for besides, and tells how they were served.
    pub(crate) async fn serve(&self) -> Result<Outcome, String> {
        match self {
            Client::Leasehold(client) => Ok(client.company.lock().await.serve().await),
            _ => Err("nobody waits".to_owned()),
        }
    }

    /// How many leases kept besides are lost, and what the first of them was told.
    pub(crate) async fn lost(&self) -> (u64, Option<String>) {
        match self {
            Client::Leasehold(client) => client.company.lock().await.lost(),
            _ => (0, None),
        }
    }

    /// How often the nodes were asked so far, and how often that split the votes.
    pub(crate) fn votes(&self) -> Option<(u64, u64)> {
        match self {
            Client::Leasehold(client) => Some(client.votes()),
            _ => None,
        }
    }
}
