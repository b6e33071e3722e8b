//! A process that is killed while it sweeps leaves whole users or none. The sweeper is this test binary, started again;
//! each user it removes is one commit, as the hub makes them. The tables are read as any other program would read them.

use rusqlite::{Connection, OpenFlags};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tavern_domain::presence::{Attendance, ChannelClient, NodeEpoch};
use tavern_domain::{ClientId, Epoch, Time};
use tavern_store::blocking::BlockingStore;
use tavern_store::{
    ChannelVersionBump, Commit, Deadline, Expect, Found, PresenceKey, PresenceRow, Read, Row, RowKey,
    SystemClock,
};

const PATIENCE: Duration = Duration::from_secs(30);
const USERS: u128 = 400;
const CHANNELS: [&str; 2] = ["game#A", "game#B"];

fn open(folder: &Path) -> BlockingStore {
    tavern_engines::open_client(&format!("sqlite:{}", folder.display()), Arc::new(SystemClock), PATIENCE)
        .unwrap()
}

/// Every user has two clients on an unknown node, and a deadline.
fn fill(client: &BlockingStore) {
    for user in 0..USERS {
        let attendee = |n: u128| ChannelClient {
            client: ClientId::from_random(user * 2 + n),
            node: NodeEpoch { node: "gone".into(), epoch: Epoch(1) },
            state: None,
            since: Time(7),
            lost: None,
        };
        let rows = CHANNELS.map(|channel| PresenceRow {
            key: PresenceKey::new(channel, &format!("user{user}")),
            anonymous: false,
            name: None,
            visibility: tavern_domain::presence::Visibility::Everyone,
            attendance: Attendance::restore(vec![attendee(0), attendee(1)], Time(7), None),
        });
        let deadlines =
            rows.iter().map(|row| Deadline::new(Time(9), "grace", &row.key.to_string())).collect();
        let raises = CHANNELS.map(|channel| ChannelVersionBump { channel: channel.into(), by: 3 }).to_vec();
        let puts = rows.map(Row::Presence).to_vec();
        client.commit(Commit { puts, raises, deadlines, ..Commit::default() }).unwrap();
    }
}

#[test]
#[ignore = "a role: sweeps until it is killed"]
fn role_sweeps_until_killed() {
    let Some(folder) = std::env::var_os("TAVERN_TEST_FOLDER") else { return };
    let client = open(Path::new(&folder));
    loop {
        let Ok(Found::StalePresences(page)) =
            client.read(Read::StalePresences { before: Time(8), limit: 50 })
        else {
            return;
        };
        // By user: of each there are two.
        for user in page.rows.chunks(2) {
            let mut commit = Commit::default();
            for stray in user {
                let Ok(Found::Presence(Some(found))) = client.read(Read::Presence(stray.key.clone())) else {
                    panic!("no other process sweeps");
                };
                let key = RowKey::Presence(stray.key.clone());
                let deadline = RowKey::Deadline { kind: "grace".into(), name: stray.key.to_string().into() };
                commit.expects.push(Expect { key: key.clone(), version: found.version });
                commit.deletes.extend([key, deadline]);
                commit.raises.push(ChannelVersionBump { channel: stray.key.channel.clone(), by: 3 });
            }
            client.commit(commit).unwrap();
            println!("swept");
            std::io::stdout().flush().unwrap();
        }
    }
}

/// Ends with the test, also when the test fails.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sweep_and_kill(folder: &Path, after: usize) {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["sweep::role_sweeps_until_killed", "--exact", "--ignored", "--nocapture"])
        .env("TAVERN_TEST_FOLDER", folder)
        .stdout(Stdio::piped())
        .spawn();
    let mut process = Process(child.unwrap());
    let lines = BufReader::new(process.0.stdout.take().unwrap()).lines();
    let swept = lines.map_while(Result::ok).filter(|line| line.contains("swept")).take(after).count();
    assert_eq!(swept, after, "it sweeps");
    process.0.kill().unwrap();
}

/// Counts the users; a user with only a part of their rows is a fault.
fn check_tables(folder: &Path) -> i64 {
    let database = Connection::open_with_flags(folder.join("tavern.db"), OpenFlags::SQLITE_OPEN_READ_ONLY);
    let database = database.unwrap();
    let count = |sql: &str| database.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    let users = count("SELECT count(*) FROM presences");
    assert_eq!(
        count("SELECT count(DISTINCT user_id) FROM presences") * 2,
        users,
        "in both channels or in none"
    );
    assert_eq!(count("SELECT count(*) FROM user_channel_presences"), users * 2, "both clients or none");
    assert_eq!(count("SELECT count(*) FROM deadlines"), users, "with its deadline or without");
    assert_eq!(count("SELECT coalesce(sum(users), 0) FROM channel_presences"), users);
    let alone = "SELECT count(*) FROM channel_presences WHERE channel_name NOT IN (SELECT channel_name FROM presences)";
    assert_eq!(count(alone), 0, "a channel has a row as long as a user is present");
    users
}

#[test]
fn a_sweep_that_is_killed_leaves_whole_users_or_none() {
    let home = tempfile::tempdir().unwrap();
    fill(&open(home.path()));
    let mut left = check_tables(home.path());
    assert_eq!(left, USERS as i64 * 2);
    for after in [1, 7, 30, 55, 90, 120] {
        sweep_and_kill(home.path(), after);
        let now = check_tables(home.path());
        assert!(now + after as i64 * 2 <= left, "what was acknowledged stays swept");
        left = now;
    }
    assert!(left > 0, "it was always killed in the middle");
}
