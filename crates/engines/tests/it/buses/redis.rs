//! The bus of Redis.

use super::*;

fn publish_raw(server: &Server, subject: &str, bytes: &[u8]) {
    let mut out = format!("*3\r\n$7\r\nPUBLISH\r\n${}\r\n{subject}\r\n${}\r\n", subject.len(), bytes.len())
        .into_bytes();
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
    send_raw(server, &out, "\r\n");
}

#[test]
fn a_restarted_server_is_subscribed_to_again() {
    super::a_restarted_server_is_subscribed_to_again(Server::redis());
}

#[test]
fn while_the_server_is_away_messages_fail_and_no_caller_waits_long() {
    super::while_the_server_is_away_messages_fail_and_no_caller_waits_long(Server::redis());
}

#[test]
fn a_burst_arrives_in_order() {
    super::a_burst_arrives_in_order(&Server::redis());
}

#[test]
fn a_long_message_arrives_whole() {
    super::a_long_message_arrives_whole(&Server::redis());
}

#[test]
fn messages_without_a_prefix_are_ignored() {
    super::messages_without_a_prefix_are_ignored(&Server::redis(), publish_raw);
}

#[test]
fn messages_lost_with_a_connection_are_reported() {
    super::messages_lost_with_a_connection_are_reported(&Server::redis());
}

#[test]
fn a_node_that_is_too_slow_learns_of_the_loss() {
    let server = Server::redis_with(&["--client-output-buffer-limit", "pubsub 2mb 0 0"]);
    super::a_node_that_is_too_slow_learns_of_the_loss(server, 64 * 1024 * 1024);
}

#[test]
fn a_wrong_login_is_reported_without_the_address() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "requirepass \"open sesame\"\nuser ann on >sesame ~* &* +@all\n").unwrap();
    let server = Server::redis_with(&["--include", file.path().to_str().unwrap()]);
    let good = [":open%20sesame@HOST", "default:open%20sesame@HOST/3", "ann:sesame@HOST"];
    let bad = ["HOST", ":sesame@HOST", "bob:sesame@HOST", "ann:sesame@HOST?creds=/x"];
    super::a_wrong_login_is_reported_without_the_address("redis", server.port, &good, &bad);
}

#[test]
fn a_refused_subscription_is_reported() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "user ann on >p resetchannels &p.game.A &p._bus.% +@all\n").unwrap();
    let server = Server::redis_with(&["--include", file.path().to_str().unwrap()]);
    let node = Node::listening(&format!("redis://ann:p@127.0.0.1:{}", server.port), "n1", &[subject("A")]);
    assert!(!node.bus.subscribe(vec![subject("B").into()], Ticket(2)));
    node.receiver.until("the refusal", |received| received.contains(&Received::Confirmed(Ticket(2), false)));
}
