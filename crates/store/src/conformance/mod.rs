//! What every engine must do, as cases. The suite lives with the contract; an engine brings a `World` and runs all
//! of them. A case that does not hold for an engine is named in that engine's exclusions, with the reason.
//! Must hold: `cases` and the tests made from `store_cases!` come from one list, so no case silently never runs.

mod bus;
mod document;
mod due;
mod key;
mod lease;
mod letter;
mod log;
mod node;
mod presence;
mod rows;
mod session;
mod social;
mod work;

use crate::blocking::Client;
use crate::bus::{Bus, BusInbox};
use crate::clock::ManualClock;
use crate::row::{Document, DocumentKey, Row, RowKey, Versioned, Writer};
use crate::store::{Commit, Expect, Found, Inbox, NodeChange, Read, Receipt, Store, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tavern_domain::Time;

/// A fresh store for one case. Opening it again reaches the same facts, as another process would.
pub trait World: Sync {
    fn open(&self, inbox: Arc<dyn Inbox>) -> Arc<dyn Store>;
    fn clock(&self) -> &ManualClock;
}

/// A fresh bus for one case.
pub trait BusWorld: Sync {
    fn open(&self, node: &str, inbox: Arc<dyn BusInbox>) -> Arc<dyn Bus>;

    /// In front of every subject of the case. Worlds that share a server have one each.
    fn prefix(&self) -> &str {
        "tavern"
    }
}

#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    pub run: fn(&dyn World),
}

#[derive(Clone, Copy)]
pub struct BusCase {
    pub name: &'static str,
    pub run: fn(&dyn BusWorld),
}

/// A case that an engine does not run.
#[derive(Clone, Copy, Debug)]
pub struct Exclusion {
    pub case: &'static str,
    pub reason: &'static str,
}

/// Hands the list of store cases, as `module::name`, to the macro named.
#[macro_export]
macro_rules! store_cases {
    ($then:ident) => {
        $then! {
            document::a_met_expectation_raises_the_version_by_one,
            document::a_conflict_tells_what_it_found,
            document::version_zero_means_absent,
            document::one_unmet_expectation_refuses_everything,
            document::a_put_without_expectation_writes,
            document::versions_begin_at_the_time_of_the_store,
            document::versions_grow_through_deletion,
            document::deleted_and_put_in_one_commit_begins_anew,
            document::a_refusal_concerns_only_its_own_commit,
            document::of_two_racing_commits_exactly_one_wins,
            document::no_increment_is_lost,
            node::epochs_grow,
            node::opening_again_closes_the_earlier_epoch,
            node::a_closed_epoch_writes_nothing,
            node::a_take_over_can_be_repeated,
            node::a_living_lease_is_left_alone,
            node::a_process_known_to_be_gone_is_closed_at_once,
            node::renewing_prolongs_and_never_shortens,
            node::the_queued_commits_of_a_paused_node_fail,
            node::an_unknown_node_is_not_a_dead_node,
            node::a_clean_stop_closes_the_epoch,
            node::a_forgotten_epoch_stays_closed,
            node::nodes_come_in_pages,
            node::after_the_closing_was_answered_nothing_is_written,
            node::time_never_goes_back,
            due::deadlines_come_in_the_order_of_their_time,
            due::setting_a_deadline_again_moves_it,
            due::a_deadline_that_moved_is_not_settled,
            due::deadlines_come_in_pages,
            key::a_key_is_found_by_its_hash,
            key::keys_come_in_pages,
            key::a_revoked_key_says_when,
            key::a_deleted_key_is_gone,
            session::a_session_is_read_as_it_was_stored,
            session::sessions_come_in_pages_by_node_and_all,
            session::a_page_is_bounded_in_bytes,
            session::ownership_moves_once,
            session::a_deleted_session_is_gone,
            presence::a_presence_is_read_as_it_was_kept,
            presence::a_channels_version_counts_what_is_told,
            presence::a_channel_stands_as_long_as_somebody_is_there,
            presence::users_of_a_channel_do_not_conflict_with_each_other,
            presence::a_roster_comes_in_pages_with_its_version,
            presence::a_users_channels_come_in_pages,
            presence::what_a_node_vouches_for_is_found,
            presence::what_no_known_node_vouches_for_is_astray,
            presence::a_grace_that_nobody_ended_is_astray,
            presence::a_fenced_node_tells_nothing,
            presence::a_hold_is_read_as_it_was_kept,
            presence::whoever_moves_a_carrier_hears_who_is_held,
            presence::commits_that_come_together_count_one_by_one,
            social::users_are_read_together_in_the_order_asked,
            social::people_are_read_with_where_they_are,
            social::people_are_read_with_whether_they_follow_each_other,
            social::being_seen_changes_nothing_else,
            social::last_seen_never_goes_back,
            social::follows_are_found_from_both_ends,
            social::a_pair_follows_once_and_can_stop,
            lease::a_lease_has_one_holder,
            lease::prolonging_a_lease_keeps_its_number,
            lease::an_ended_lease_goes_to_the_next_with_a_higher_number,
            lease::the_leases_of_a_closed_epoch_are_free,
            lease::a_lease_given_back_is_free_and_its_number_grows,
            log::events_count_without_holes,
            log::a_refused_commit_appends_nothing,
            log::an_id_is_taken_once_in_its_topic,
            log::several_topics_are_read_as_one_list,
            log::a_page_of_the_log_is_bounded_in_bytes,
            log::trimming_takes_the_oldest_and_keeps_the_counts,
            log::what_another_store_had_is_put_back_at_its_place,
            log::topics_come_in_pages_and_by_name,
            log::a_reader_never_skips_what_racing_appenders_add,
            letter::letters_are_numbered_in_each_inbox,
            letter::a_letter_is_posted_with_its_cause,
            letter::freed_letters_are_gone_and_numbers_go_on,
            letter::a_full_inbox_drops_the_oldest_and_says_so,
            letter::letters_kept_too_long_are_told_as_dropped,
            rows::every_row_of_a_kind_is_listed_by_its_key,
            rows::every_presence_is_listed_by_channel_and_user,
            work::what_is_unknown_is_not_found,
            work::bounds_are_the_same_everywhere,
            work::a_zero_byte_in_a_text_is_refused,
            work::a_carrier_has_a_name_like_any_other,
            work::every_work_is_answered_once,
            work::reads_that_come_together_are_answered_as_if_alone,
            work::stopping_finishes_what_was_submitted,
            work::a_stopped_store_says_so,
            work::another_handle_sees_what_was_committed,
        }
    };
}

/// Hands the list of bus cases to the macro named.
#[macro_export]
macro_rules! bus_cases {
    ($then:ident) => {
        $then! {
            bus::a_confirmed_subscription_hears_everything_after_it,
            bus::after_unsubscribing_nothing_is_heard,
            bus::a_node_does_not_hear_itself,
            bus::one_publisher_has_one_order,
            bus::two_nodes_hear_each_other,
            bus::overlapping_subscriptions_hear_once,
            bus::wide_subjects_hear_their_kind,
            bus::patterns_hear_the_channels_that_match,
            bus::what_is_subscribed_to_holds_at_once_when_asked_again,
            bus::a_node_that_is_not_alone_does_not_say_so,
            bus::a_stopped_node_hears_nothing,
        }
    };
}

pub fn cases() -> &'static [Case] {
    macro_rules! list {
        ($($module:ident :: $name:ident),* $(,)?) => {
            &[$(Case { name: concat!(stringify!($module), "::", stringify!($name)), run: $module::$name }),*]
        };
    }
    store_cases!(list)
}

pub fn bus_cases() -> &'static [BusCase] {
    macro_rules! list {
        ($($module:ident :: $name:ident),* $(,)?) => {
            &[$(BusCase { name: concat!(stringify!($module), "::", stringify!($name)), run: $module::$name }),*]
        };
    }
    bus_cases!(list)
}

/// Long enough for a loaded machine; nothing waits for it unless a case fails.
const PATIENCE: Duration = Duration::from_secs(30);
const LEASE_MS: u64 = 10_000;

fn client(world: &dyn World) -> Client {
    Client::with(PATIENCE, |inbox| Ok(world.open(inbox))).expect("the world opens")
}

fn now(client: &Client) -> Time {
    match client.read(Read::Time) {
        Ok(Found::Time(time)) => time,
        other => panic!("no time but {other:?}"),
    }
}

fn open_node(client: &Client, name: &str) -> Writer {
    let node = Some(NodeChange::Open { name: name.into(), lease_ms: LEASE_MS });
    let receipt = client.commit(Commit { node, ..Commit::default() }).expect("a node opens");
    Writer::new(name, receipt.epoch.expect("an epoch was opened"))
}

fn key(name: &str) -> DocumentKey {
    DocumentKey::new("thing", name)
}

fn row(name: &str, body: &str) -> Row {
    Row::Document(Document { key: key(name), body: body.as_bytes().into() })
}

fn put(name: &str, body: &str) -> Commit {
    Commit { puts: vec![row(name, body)], ..Commit::default() }
}

fn delete(name: &str) -> Commit {
    Commit { deletes: vec![RowKey::Document(key(name))], ..Commit::default() }
}

fn expect(name: &str, version: u64) -> Expect {
    Expect { key: RowKey::Document(key(name)), version }
}

fn read(client: &Client, name: &str) -> Option<Versioned<Document>> {
    match client.read(Read::Document(key(name))) {
        Ok(Found::Document(found)) => found,
        other => panic!("no document but {other:?}"),
    }
}

fn version(client: &Client, name: &str) -> u64 {
    read(client, name).map_or(0, |found| found.version)
}

fn text(client: &Client, name: &str) -> Option<String> {
    read(client, name).map(|found| String::from_utf8_lossy(&found.row.body).into_owned())
}

#[track_caller]
fn assert_conflict(outcome: Result<Receipt, StoreError>, wanted: (RowKey, u64, u64)) {
    match outcome {
        Err(StoreError::Conflict { key, expected, found }) => assert_eq!((key, expected, found), wanted),
        other => panic!("no conflict but {other:?}"),
    }
}

#[track_caller]
fn assert_fenced(outcome: Result<Receipt, StoreError>, writer: &Writer) {
    match outcome {
        Err(StoreError::Fenced { node, epoch }) => assert_eq!(Writer { node, epoch }, *writer),
        other => panic!("not fenced but {other:?}"),
    }
}
