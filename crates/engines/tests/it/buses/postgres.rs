//! The bus of Postgres.

use super::*;

/// The name of a notification channel, as the lanes have it.
fn channel(server: &Server, lane: usize) -> String {
    // FNV-1a of the schema.
    let schema = server.url().rsplit('=').next().unwrap().to_owned();
    let hash = schema.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("tavern_bus_{hash:016x}_{lane}")
}

fn notify(server: &Server, lane: usize, text: &str) {
    Reader::new(&server.url()).run(&format!("NOTIFY {}, '{text}'", channel(server, lane)));
}

fn publish_raw(server: &Server, _: &str, bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes).replace('\0', "");
    (0..32).for_each(|lane| notify(server, lane, &text));
}

#[test]
fn a_restarted_server_is_subscribed_to_again() {
    super::a_restarted_server_is_subscribed_to_again(Server::postgres());
}

#[test]
fn while_the_server_is_away_messages_fail_and_no_caller_waits_long() {
    super::while_the_server_is_away_messages_fail_and_no_caller_waits_long(Server::postgres());
}

#[test]
fn a_burst_arrives_in_order() {
    super::a_burst_arrives_in_order(&Server::on_shared_postgres());
}

#[test]
fn a_long_message_arrives_whole() {
    super::a_long_message_arrives_whole(&Server::on_shared_postgres());
}

#[test]
fn messages_without_a_prefix_are_ignored() {
    super::messages_without_a_prefix_are_ignored(&Server::on_shared_postgres(), publish_raw);
}

#[test]
fn messages_lost_with_a_connection_are_reported() {
    super::messages_lost_with_a_connection_are_reported(&Server::on_shared_postgres());
}

#[test]
fn a_node_that_is_too_slow_learns_of_the_loss() {
    super::a_node_that_is_too_slow_learns_of_the_loss(Server::on_shared_postgres(), 160 * 1024 * 1024);
}

#[test]
fn messages_on_all_lanes_arrive_in_order() {
    let server = Server::on_shared_postgres();
    let (listener, sender) = (Node::new(&server.url(), "n1"), Node::new(&server.url(), "n2"));
    let wide = Subject::everything("p").unwrap();
    assert!(!listener.bus.subscribe(vec![wide.into()], Ticket(1)));
    listener.receiver.until("confirmed", |received| received.len() == 1);
    // Alone, a few together, many together: notifications, and batches of the ring on some lanes and on all.
    let mut n = 0;
    for size in [1, 1, 3, 8, 40, 500, 2, 1, 40] {
        let messages = (n..n + size).map(|n| sender.message(&(n % 50).to_string(), n, 200));
        sender.bus.publish(messages.collect());
        n += size;
    }
    let numbers = |received: &[Received]| -> Vec<u64> {
        let number = |one: &Received| if let Received::Message(one) = one { Some(one.n) } else { None };
        received.iter().filter_map(number).collect()
    };
    let received = listener.receiver.until("all", |received| numbers(received).len() as u64 == n);
    assert_eq!(numbers(&received), (0..n).collect::<Vec<_>>());
}

#[test]
fn a_quiet_ring_becomes_empty() {
    let server = Server::on_shared_postgres();
    let listener = Node::listening(&server.url(), "n1", &[subject("A")]);
    let sender = Node::new(&server.url(), "n2");
    sender.bus.publish(vec![sender.message("A", 1, 100_000)]);
    listener.receiver.until("the message", |received| numbers(received, "A") == [1]);
    let tables = Reader::new(&server.url());
    let rows = "SELECT (SELECT count(*) FROM bus_batches_0) + (SELECT count(*) FROM bus_batches_1) + (SELECT count(*) FROM bus_batches_2)";
    assert_eq!(tables.number(rows), 1);
    (0..4).for_each(|_| tables.run("SELECT bus_rotate(1000000000, 0)"));
    assert_eq!(tables.number(rows), 0);
    assert_eq!(tables.number("SELECT turn FROM bus_turn"), 3, "an empty ring rests");
}

#[test]
fn a_notification_that_is_lost_without_a_following_one_is_noticed() {
    let server = Server::on_shared_postgres();
    let listener = Node::listening(&server.url(), "n1", &[subject("A")]);
    let stream = "00000000000000ab";
    (0..31).for_each(|lane| notify(&server, lane, &format!("{stream}.1.m.")));
    let heads = |serial| (0..31).map(|lane| format!("{lane:x}.{serial}")).collect::<Vec<_>>().join(",");
    notify(&server, 31, &format!("{stream}.1.h.{}", heads(1)));
    let sender = Node::new(&server.url(), "n2");
    sender.send("A", 0..1);
    let received = listener.receiver.until("the message", |received| numbers(received, "A") == [0]);
    assert!(!has_lost(&received), "nothing is missing");
    notify(&server, 31, &format!("{stream}.2.h.{}", heads(2)));
    listener.receiver.until("the loss", has_lost);
}

#[test]
fn a_node_tells_the_last_notification_of_each_lane() {
    let server = Server::on_shared_postgres();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let url = server.url();
    let connecting = tokio_postgres::connect(url.split('?').next().unwrap(), tokio_postgres::NoTls);
    let (client, mut io) = runtime.block_on(connecting).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    runtime.spawn(async move {
        while let Some(Ok(message)) = std::future::poll_fn(|context| io.poll_message(context)).await {
            if let tokio_postgres::AsyncMessage::Notification(notice) = message {
                let _ = tell.send(notice.payload().to_owned());
            }
        }
    });
    runtime.block_on(client.batch_execute(&format!("LISTEN {}", channel(&server, 31)))).unwrap();
    let sender = Node::new(&url, "n1");
    sender.send("A", 0..1);
    let heads = told.recv_timeout(PATIENCE).expect("the heads are sent");
    let (stream_and_serial, heads) = heads.split_once(".h.").expect("these are heads");
    assert_eq!(stream_and_serial.len(), 18);
    assert_eq!(heads.split_once('.').map(|(_, serial)| serial), Some("1"), "one message on one lane");
}
