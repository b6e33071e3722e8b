//! A board that shows who is here and what they do, live. `cargo run --example presence_board NAME STATE`; ends with Ctrl-C.

use serde_json::json;
use tavern_client::{Auth, Client, Error, PresenceMap};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut given = std::env::args().skip(1);
    let name = given.next().unwrap_or_else(|| "ann".to_owned());
    let doing = given.next().unwrap_or_else(|| "here".to_owned());
    let url = std::env::var("TAVERN_URL").unwrap_or_else(|_| "http://127.0.0.1:7400".to_owned());
    let client = Client::connect(url, Auth::User(name)).await?;
    let board = client.channel("room#board");
    let mut present = board.presence().await?;
    board.join(json!({"doing": doing})).await?;
    println!("{}", present.look(text));
    loop {
        tokio::select! {
            true = present.changed() => println!("{}", present.look(text)),
            _ = tokio::signal::ctrl_c() => break,
        }
    }
    // Leaves at once; without it the user stays for the grace period.
    client.close().await;
    Ok(())
}

fn text(map: &PresenceMap) -> String {
    let rows = map.users.iter().map(|(name, user)| {
        let states: Vec<&str> =
            user.clients.values().filter_map(|client| client.state["doing"].as_str()).collect();
        let state = if user.leaving { "connection lost".to_owned() } else { states.join(", ") };
        format!("{name} ({state})")
    });
    let rows: Vec<String> = rows.collect();
    if rows.is_empty() { "nobody".to_owned() } else { rows.join(", ") }
}
