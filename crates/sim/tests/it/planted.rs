//! Every planted fault is found by the judges of its workload.

use tavern_sim::planted::PlantedFault;
use tavern_sim::run::{RunRequest, run};
use tavern_sim::workload::Name;

/// Each is found twice within two dozen runs in which it happened; once could be chance.
fn find(workload: Name, faults: &[PlantedFault]) {
    let steps = workload.steps() * 7 / 10;
    for fault in faults {
        let order = |seed| RunRequest { steps, fault: Some(*fault), ..RunRequest::new(workload, seed) };
        let runs = (1..=240).map(|seed| run(order(seed))).filter(|report| report.struck);
        let (mut looked, mut found) = (0, 0);
        for report in runs.take(24) {
            looked += 1;
            found += usize::from(report.violation.is_some());
            if found == 2 {
                break;
            }
        }
        println!("{fault:?}: found {found} times in {looked} runs");
        assert_eq!(found, 2, "{fault:?} was found {found} times in {looked} runs");
    }
}

#[test]
fn planted_faults_of_history_are_found() {
    find(Name::History, Name::History.planted());
}

#[test]
fn planted_faults_of_messages_are_found() {
    find(Name::Messages, Name::Messages.planted());
}

#[test]
fn planted_faults_of_parties_are_found() {
    find(Name::Parties, Name::Parties.planted());
}

#[test]
fn planted_faults_of_people_are_found() {
    find(Name::People, Name::People.planted());
}

#[test]
fn planted_faults_of_topics_are_found() {
    find(Name::Topics, Name::Topics.planted());
}

#[test]
fn planted_faults_of_presence_are_found() {
    let (half, _) = Name::Presence.planted().split_at(Name::Presence.planted().len() / 2);
    find(Name::Presence, half);
}

#[test]
fn more_planted_faults_of_presence_are_found() {
    let (_, half) = Name::Presence.planted().split_at(Name::Presence.planted().len() / 2);
    find(Name::Presence, half);
}

#[test]
fn planted_faults_of_migration_are_found() {
    find(Name::Migration, Name::Migration.planted());
}
