//! Buses over TLS: a server with a certificate of the named authority is accepted, another is not.

use crate::server;
use crate::server::authority::Authority;
use crate::server::{PATIENCE, Server};
use std::sync::{Arc, mpsc};
use tavern_store::{BusError, BusLoss, BusPacket, BusReceiver, Subject, Ticket};

struct Receiver(mpsc::Sender<Ticket>);

impl BusReceiver for Receiver {
    fn confirmed(&self, ticket: Ticket, outcome: Result<(), BusError>) {
        outcome.expect("it holds");
        self.0.send(ticket).unwrap();
    }

    fn messages(&self, _messages: Vec<BusPacket>) {}

    fn lost(&self, lost: BusLoss) {
        panic!("nothing is lost here, but {lost:?}");
    }
}

fn check(scheme: &str, port: u16, authority: &Authority) {
    let (sender, confirmed) = mpsc::channel();
    let receiver = Arc::new(Receiver(sender));
    let url = format!("{scheme}://localhost:{port}");
    let trusting = format!("{url}?ca={}", authority.file("ca.pem"));
    let bus = server::open(&trusting, "p", "n1", receiver.clone()).expect("the bus opens");
    let game = Subject::new("p", "game", b"A").unwrap();
    assert!(!bus.subscribe(vec![game.into()], Ticket(7)));
    assert_eq!(confirmed.recv_timeout(PATIENCE), Ok(Ticket(7)));
    bus.stop();
    assert!(server::open(&url, "p", "n1", receiver.clone()).is_err(), "the authority is not public");
    let other = Authority::new();
    assert!(
        server::open(&format!("{url}?ca={}", other.file("ca.pem")), "p", "n1", receiver.clone()).is_err()
    );
    assert!(server::open(&format!("{url}?ca=/no/such/file"), "p", "n1", receiver).is_err());
}

#[test]
fn nats_works_over_tls() {
    let authority = Authority::new();
    let (cert, key) = (authority.file("cert.pem"), authority.file("key.pem"));
    let server = Server::nats_with(&["--tls", "--tlscert", &cert, "--tlskey", &key]);
    check("tls", server.port, &authority);
    check("nats", server.port, &authority);
}

#[test]
fn a_nats_server_without_tls_is_refused_where_tls_is_wanted() {
    let server = Server::nats();
    let receiver = Arc::new(Receiver(mpsc::channel().0));
    assert!(server::open(&format!("tls://127.0.0.1:{}", server.port), "p", "n1", receiver).is_err());
}

#[test]
fn redis_works_over_tls() {
    let authority = Authority::new();
    let (cert, key, ca) = (authority.file("cert.pem"), authority.file("key.pem"), authority.file("ca.pem"));
    let port = server::free_port();
    let port_text = port.to_string();
    let server = Server::redis_with(&[
        "--tls-port",
        &port_text,
        "--tls-cert-file",
        &cert,
        "--tls-key-file",
        &key,
        "--tls-ca-cert-file",
        &ca,
        "--tls-auth-clients",
        "no",
    ]);
    server::await_port(port);
    check("rediss", port, &authority);
    drop(server);
}
