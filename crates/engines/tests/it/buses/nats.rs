//! The bus of NATS.

use super::*;

fn publish_raw(server: &Server, subject: &str, bytes: &[u8]) {
    let mut out = format!("CONNECT {{\"verbose\":false}}\r\nPUB {subject} {}\r\n", bytes.len()).into_bytes();
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\nPING\r\n");
    send_raw(server, &out, "PONG\r\n");
}

#[test]
fn a_restarted_server_is_subscribed_to_again() {
    super::a_restarted_server_is_subscribed_to_again(Server::nats());
}

#[test]
fn while_the_server_is_away_messages_fail_and_no_caller_waits_long() {
    super::while_the_server_is_away_messages_fail_and_no_caller_waits_long(Server::nats());
}

#[test]
fn a_burst_arrives_in_order() {
    super::a_burst_arrives_in_order(&Server::nats());
}

#[test]
fn a_long_message_arrives_whole() {
    super::a_long_message_arrives_whole(&Server::nats());
}

#[test]
fn messages_without_a_prefix_are_ignored() {
    super::messages_without_a_prefix_are_ignored(&Server::nats(), publish_raw);
}

#[test]
fn messages_lost_with_a_connection_are_reported() {
    super::messages_lost_with_a_connection_are_reported(&Server::nats());
}

#[test]
fn a_node_that_is_too_slow_learns_of_the_loss() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "max_pending: 2097152\nwrite_deadline: \"1s\"\n").unwrap();
    let server = Server::nats_with(&["-c", file.path().to_str().unwrap()]);
    super::a_node_that_is_too_slow_learns_of_the_loss(server, 64 * 1024 * 1024);
}

#[test]
fn a_wrong_login_is_reported_without_the_address() {
    let server = Server::nats_with(&["--user", "ann", "--pass", "open sesame"]);
    let good = ["ann:open%20sesame@HOST"];
    let bad = ["HOST", "ann:sesame@HOST", "sesame@HOST", "ann:open%20sesame@HOST?creds=/sesame"];
    super::a_wrong_login_is_reported_without_the_address("nats", server.port, &good, &bad);
    let server = Server::nats_with(&["--auth", "sesame"]);
    let good = ["sesame@HOST", "HOST?token=sesame"];
    super::a_wrong_login_is_reported_without_the_address("nats", server.port, &good, &["x@HOST"]);
}

#[test]
fn of_several_servers_a_reachable_one_is_used() {
    let (gone, server) = (server::free_port(), Server::nats());
    let url = format!("nats://127.0.0.1:{gone},127.0.0.1:{}", server.port);
    Node::listening(&url, "n1", &[subject("A")]);
}

#[test]
fn a_refused_subscription_is_reported() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let rules = "authorization { users = [ { user: ann, password: p, permissions: { subscribe: { deny: \"p.game.B\" } } } ] }";
    std::fs::write(file.path(), rules).unwrap();
    let server = Server::nats_with(&["-c", file.path().to_str().unwrap()]);
    let node = Node::listening(&format!("nats://ann:p@127.0.0.1:{}", server.port), "n1", &[subject("A")]);
    assert!(!node.bus.subscribe(vec![subject("B").into()], Ticket(2)));
    node.receiver.until("the refusal", |received| received.contains(&Received::Confirmed(Ticket(2), false)));
}
