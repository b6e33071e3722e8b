//! What every engine must do, as test cases. The suite is part of the contract; an engine brings a `StoreUnderTest`
//! or a `BusUnderTest` and runs all of them, each as its own test (`test_store!`, `test_bus!`). A case that does not
//! hold for an engine is named in that engine's exclusions, with the reason. Must hold: `cases` and the tests come
//! from one list, so no case is skipped silently.

mod bus;
mod deadline;
mod document;
mod fixture;
mod history;
mod inbox;
mod key;
mod lease;
mod log;
mod node;
mod presence;
mod rows;
mod session;
mod social;
mod work;
mod world;

pub use world::{BusCase, BusUnderTest, Exclusion, StoreCase, StoreUnderTest, assert_complete};

/// Calls a macro with what follows its name in parentheses, and the list of store cases as `module::name`.
#[macro_export]
macro_rules! store_cases {
    ($then:ident $($more:tt)*) => {
        $then! {
            ($($more)*)
            document::a_met_expectation_raises_the_version_by_one,
            document::a_conflict_reports_the_version_found,
            document::version_zero_means_absent,
            document::one_unmet_expectation_refuses_the_whole_commit,
            document::a_put_without_expectation_writes,
            document::versions_begin_at_the_stores_time,
            document::versions_grow_through_deletion,
            document::a_row_deleted_and_put_in_one_commit_is_new,
            document::a_refusal_concerns_only_its_own_commit,
            document::of_two_racing_commits_exactly_one_wins,
            document::concurrent_increments_are_not_lost,
            node::epochs_grow,
            node::opening_again_closes_the_earlier_epoch,
            node::a_closed_epoch_writes_nothing,
            node::a_take_over_can_be_repeated,
            node::a_node_with_a_lease_is_not_closed,
            node::a_process_known_to_be_gone_is_closed_at_once,
            node::renewing_extends_the_lease_and_never_shortens_it,
            node::the_queued_commits_of_a_paused_node_fail,
            node::an_unknown_node_is_not_a_dead_node,
            node::a_clean_stop_closes_the_epoch,
            node::a_forgotten_epoch_stays_closed,
            node::nodes_come_in_pages,
            node::after_a_close_was_answered_nothing_is_written,
            node::time_never_goes_back,
            deadline::deadlines_come_in_order_of_time,
            deadline::setting_a_deadline_again_moves_it,
            deadline::a_deadline_that_moved_is_not_settled,
            deadline::deadlines_come_in_pages,
            key::a_key_is_found_by_its_hash,
            key::keys_come_in_pages,
            key::a_revoked_key_has_its_time,
            key::a_deleted_key_is_gone,
            session::a_session_is_read_as_it_was_stored,
            session::sessions_come_in_pages_by_node_and_all,
            session::a_page_is_bounded_in_bytes,
            session::ownership_moves_once,
            session::a_deleted_session_is_gone,
            presence::a_presence_is_read_as_it_was_put,
            presence::a_channels_version_counts_its_changes,
            presence::a_channel_exists_as_long_as_it_has_users,
            presence::users_of_a_channel_do_not_conflict_with_each_other,
            presence::a_roster_comes_in_pages_with_its_version,
            presence::a_users_channels_come_in_pages,
            presence::presences_of_an_epoch_are_found,
            presence::a_presence_of_an_unknown_epoch_is_stale,
            presence::a_presence_after_its_last_deadline_is_stale,
            presence::a_fenced_node_changes_no_presence,
            presence::a_hold_is_read_as_it_was_put,
            presence::a_changed_presence_reports_the_holds_that_follow_it,
            presence::commits_of_one_batch_count_one_by_one,
            presence::totals_count_rows_as_they_come_and_go,
            social::users_are_read_together_in_the_order_asked,
            social::people_are_read_with_their_presences,
            social::people_are_read_with_mutual_follows,
            social::last_seen_changes_nothing_else,
            social::last_seen_never_goes_back,
            social::follows_are_found_from_both_ends,
            social::a_follow_is_one_row_and_can_end,
            lease::a_lease_has_one_holder,
            lease::extending_a_lease_keeps_its_version,
            lease::an_ended_lease_is_taken_with_a_higher_version,
            lease::the_leases_of_a_closed_epoch_are_free,
            lease::a_deleted_lease_is_free_and_its_version_grows,
            log::events_count_without_gaps,
            log::a_refused_commit_appends_nothing,
            log::an_event_id_is_accepted_once_per_topic,
            log::several_topics_are_read_as_one_list,
            log::a_page_of_the_log_is_bounded_in_bytes,
            log::trimming_removes_the_oldest_and_keeps_the_counts,
            log::restored_events_keep_their_positions,
            log::topics_come_in_pages_and_by_name,
            log::a_reader_never_skips_concurrent_appends,
            inbox::messages_are_numbered_per_inbox,
            inbox::a_message_is_added_with_its_commit,
            inbox::freed_messages_are_removed_and_numbers_continue,
            inbox::a_full_inbox_drops_the_oldest_and_reports_it,
            inbox::expired_messages_are_reported_as_dropped,
            history::offsets_count_per_channel,
            history::a_message_is_stored_as_it_was_sent,
            history::a_refused_commit_adds_no_message,
            history::the_oldest_beyond_the_limits_are_removed,
            history::limits_count_what_messages_take,
            history::messages_that_are_too_old_are_removed,
            history::a_message_id_is_taken_once_while_it_is_stored,
            history::pages_are_read_in_both_directions,
            history::a_cleared_history_begins_anew_in_another_epoch,
            history::histories_are_listed_by_their_expiry,
            history::concurrent_appends_leave_no_hole,
            rows::every_row_of_a_kind_is_listed_by_its_key,
            rows::every_presence_is_listed_by_channel_and_user,
            work::unknown_rows_are_not_found,
            work::bounds_are_the_same_everywhere,
            work::a_zero_byte_in_a_text_is_refused,
            work::the_channel_that_a_hold_follows_is_bounded,
            work::every_work_is_answered_once,
            work::reads_of_one_batch_are_answered_as_if_alone,
            work::stopping_finishes_what_was_submitted,
            work::a_stopped_store_is_unavailable,
            work::another_handle_sees_committed_rows,
        }
    };
}

/// The same with the list of bus cases.
#[macro_export]
macro_rules! bus_cases {
    ($then:ident $($more:tt)*) => {
        $then! {
            ($($more)*)
            bus::a_confirmed_subscription_gets_every_later_message,
            bus::after_unsubscribing_nothing_arrives,
            bus::a_node_does_not_get_its_own_messages,
            bus::messages_of_one_publisher_arrive_in_order,
            bus::two_nodes_get_each_others_messages,
            bus::overlapping_subscriptions_deliver_once,
            bus::wide_subjects_match_their_kind,
            bus::patterns_match_channels,
            bus::a_repeated_subscription_holds_at_once,
            bus::a_node_with_others_is_not_alone,
            bus::a_stopped_node_gets_nothing,
        }
    };
}

pub fn cases() -> &'static [StoreCase] {
    macro_rules! list {
        (() $($module:ident :: $name:ident),* $(,)?) => {
            &[$(StoreCase { name: concat!(stringify!($module), "::", stringify!($name)), run: $module::$name }),*]
        };
    }
    store_cases!(list)
}

pub fn bus_cases() -> &'static [BusCase] {
    macro_rules! list {
        (() $($module:ident :: $name:ident),* $(,)?) => {
            &[$(BusCase { name: concat!(stringify!($module), "::", stringify!($name)), run: $module::$name }),*]
        };
    }
    bus_cases!(list)
}

/// A module of tests, one for each store case: `test_store!(sqlite, SqliteWorld::new(), &[])`.
#[macro_export]
macro_rules! test_store {
    ($engine:ident, $world:expr, $excluded:expr) => {
        mod $engine {
            use super::*;
            use $crate::define_tests;
            $crate::store_cases!(define_tests $engine, $world, $excluded, cases);
        }
    };
}

/// A module of tests, one for each bus case.
#[macro_export]
macro_rules! test_bus {
    ($engine:ident, $world:expr, $excluded:expr) => {
        mod $engine {
            use super::*;
            use $crate::define_tests;
            $crate::bus_cases!(define_tests $engine, $world, $excluded, bus_cases);
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! define_tests {
    (($engine:ident, $world:expr, $excluded:expr, $cases:ident) $($module:ident :: $name:ident),* $(,)?) => {
        const EXCLUDED: &[$crate::conformance::Exclusion] = $excluded;
        const TESTS: &[&str] = &[$(concat!(stringify!($module), "::", stringify!($name))),*];

        $(#[test] fn $name() { run(concat!(stringify!($module), "::", stringify!($name))); })*

        fn run(name: &str) {
            let case = $crate::conformance::$cases().iter().find(|case| case.name == name).unwrap();
            if EXCLUDED.iter().all(|one| one.case != name) {
                (case.run)(&$world);
            }
        }

        #[test]
        fn every_case_is_run_or_excluded() {
            let cases: Vec<&str> = $crate::conformance::$cases().iter().map(|case| case.name).collect();
            $crate::conformance::assert_complete(stringify!($engine), TESTS, EXCLUDED, &cases);
        }
    };
}
