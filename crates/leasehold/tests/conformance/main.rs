//! One body of cases, run against every backend: a backend is done when all of them pass.
//!
//! To add a backend, write its `Backend` in `backends.rs` and add one line at the end of this file.

mod backends;
mod cases;
mod support;

/// Every case as a test of every backend.
macro_rules! conformance {
    ($backend:ident) => {
        mod $backend {
            conformance!(@cases $backend:
                a_held_lock_is_refused_to_others_and_they_learn_who_holds_it,
                a_released_lock_can_be_acquired_at_once,
                fences_grow_with_every_acquisition_by_whomever,
                a_kept_lease_outlives_its_ttl_many_times,
                a_lease_that_is_not_kept_is_lost_before_anybody_else_gets_it,
                an_extended_lease_outlives_its_first_deadline,
                a_lost_lease_cannot_be_extended,
                max_hold_ends_a_lease_that_could_be_kept,
                ensure_valid_needs_no_node_and_respects_the_margin,
                releasing_tells_expired_from_taken_over,
                a_dropped_guard_gives_the_lock_back,
                a_guard_dropped_outside_any_runtime_gives_the_lock_back,
                waiting_ends_as_soon_as_the_holder_releases,
                waiting_gives_up_in_time_and_names_the_holder,
                five_attempts_are_five_attempts,
                waiters_of_one_process_are_served_in_order,
                only_one_of_many_holds_at_a_time,
                run_passes_the_result_through_and_gives_the_lock_back,
                run_cancels_its_body_when_the_lease_is_lost,
                run_never_masks_the_error_of_its_body,
                a_future_dropped_at_any_await_leaves_nothing_behind,
                a_dropped_release_still_releases,
                inspect_tells_owner_time_and_fence_on_every_node,
                list_shows_held_locks_by_prefix,
                names_are_taken_literally,
                a_forced_release_frees_the_lock_and_stops_its_holder,
                a_forced_release_with_an_old_fence_changes_nothing,
                a_release_after_a_forced_one_tells_who_holds_the_lock_now,
                a_release_after_another_came_and_went_tells_that_it_was_taken_away,
                bad_options_are_explained_before_anything_is_asked,
                a_ttl_above_the_clusters_maximum_is_refused,
                a_lease_with_too_little_left_is_not_taken,
                every_node_is_up_and_tells_its_version,
                holders_have_a_readable_label,
                two_tasks_may_share_one_client,
                a_detached_lease_is_extended_and_released_by_its_token,
                a_detached_lease_that_lapsed_is_lost_for_ever,
                a_claim_that_nobody_confirms_writes_nothing,
                of_extensions_that_differ_in_their_ttl_the_later_end_stands,
                an_extension_that_failed_and_is_carried_out_late_shortens_nothing,
                an_extension_that_is_carried_out_after_the_end_revives_nothing,
                waiting_tells_every_refusal,
                a_lost_guard_does_not_block_waiters_of_its_own_process,
            );
        }
    };
    (@cases $backend:ident: $($case:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $case() {
                let Some(backend) = $crate::backends::$backend().await else { return };
                $crate::cases::$case(&backend).await;
            }
        )*
    };
}

conformance!(memory);
conformance!(sqlite);
conformance!(one_redis);
conformance!(five_redis);
conformance!(one_old_redis);
conformance!(one_valkey);
conformance!(server_on_sqlite);
conformance!(server_on_one_redis);
conformance!(server_on_five_redis);
