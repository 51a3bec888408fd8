//! Locks that are taken away by force, while nodes hang and clocks are wrong: who had it is told no more than
//! is so, and cannot take it back.

use super::run::for_seeds;
use super::site::Site;
use super::town::{Backend, MAX_TTL, Town};
use super::world::World;
use crate::ReleaseOutcome;

/// What was asked of it gets lost, and then it is there again.
fn loses_what_it_was_asked(site: &Site) {
    site.cut(false);
    site.change(|sky| sky.stalls_up = false);
}

/// Three of the sites, any of them.
fn some<'a>(world: &World, town: &'a Town) -> [&'a Site; 3] {
    let mut order: Vec<usize> = (0..town.sites.len()).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, world.below(last as u64 + 1) as usize);
    }
    [0, 1, 2].map(|place| &*town.sites[order[place]])
}

#[test]
fn nobody_is_told_to_have_released_what_another_holds() {
    for_seeds(40, |world| async move {
        let town = Town::new(&world, Backend::Redis, 3);
        let [ours, theirs] = [town.open("a").await, town.open("b").await];
        let guard = ours.lock("l").ttl(MAX_TTL).manual().acquire().await.expect("free");
        world.sleep(50, 100).await;
        let forced = theirs.force_release("l", guard.fence()).await;
        world.require(matches!(forced, Ok(true)), || format!("{forced:?}"));
        let other = theirs.lock("l").ttl(MAX_TTL).manual().acquire().await.expect("free");
        world.sleep(50, 100).await;
        // It ended there early, and another node does not answer in time.
        let [early, hangs, _] = some(&world, &town);
        early.step_clock(5_000_000);
        hangs.change(|sky| sky.stalls_up = world.chance(70));
        let name = guard.name().clone();
        let outcome = guard.release().await;
        let is_others =
            |site: &Site| site.owner(&name).is_some_and(|owner| owner == *other.holder());
        let kept = town.sites.iter().filter(|site| is_others(site)).count();
        world.require(kept < 2 || outcome != ReleaseOutcome::Released, || {
            format!("{outcome:?}, and {other:?} has {kept} nodes")
        });
        town.calm().await;
    });
}

#[test]
fn what_was_taken_by_force_is_not_taken_back_with_a_raised_token() {
    for_seeds(160, |world| async move {
        let town = Town::new(&world, Backend::Redis, 5);
        let [ours, theirs] = [town.open("a").await, town.open("b").await];
        let [ahead, behind, hangs] = some(&world, &town);
        ahead.change(|sky| sky.stalls_up = true);
        let guard = ours.lock("l").ttl(MAX_TTL).manual().acquire().await.expect("four are enough");
        loses_what_it_was_asked(ahead);
        world.sleep(400, 600).await;
        ahead.raise_fence("l", std::time::Duration::from_secs(60));
        guard.extend().await.expect("four keep it");
        world.sleep(50, 100).await;
        // The token is raised, but not on one node, and just when somebody has looked at the lock.
        behind.change(|sky| sky.stalls_up = true);
        let raise = async {
            world.sleep(0, 12).await;
            let raised = guard.extend().await;
            loses_what_it_was_asked(behind);
            raised
        };
        let seen = guard.fence();
        let force = async {
            let forced = theirs.force_release("l", seen).await;
            loses_what_it_was_asked(hangs);
            forced
        };
        let hang = async {
            world.sleep(2, 12).await;
            hangs.change(|sky| sky.stalls_up = true);
        };
        let (raised, forced, ()) = tokio::join!(raise, force, hang);
        world.sleep(400, 600).await;
        let extended = guard.extend().await;
        world.note(format_args!("raised: {raised:?}, forced: {forced:?}, then: {extended:?}"));
        world.require(forced.is_err() || extended.is_err(), || format!("{guard:?} goes on"));
        town.calm().await;
    });
}
