//! A party of two. `cargo run --example party bob` waits for an invite and accepts it; `cargo run --example party ann bob`
//! invites bob. Both print the members.

use tavern_client::{Auth, Client, Error, Event, PartySnapshot};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut given = std::env::args().skip(1);
    let name = given.next().unwrap_or_else(|| "ann".to_owned());
    let friend = given.next();
    let url = std::env::var("TAVERN_URL").unwrap_or_else(|_| "http://127.0.0.1:7400".to_owned());
    let client = Client::builder(url).auth(Auth::User(name)).build()?;
    let (mut events, party) = (client.events(), client.party());
    client.open().await?;
    println!("connected");
    if let Some(friend) = &friend {
        party.invite(friend).await?;
    }
    let mut members = party.watch();
    loop {
        tokio::select! {
            event = events.next() => {
                let Some(event) = event else { break };
                let Ok(Event::Party(event)) = event else { continue };
                match event.cmd.as_str() {
                    "invite" => {
                        println!("{} invites you", event.user.unwrap_or_default());
                        party.accept(event.party_id).await?;
                    }
                    "disband" => break,
                    _ => {}
                }
            }
            Ok(()) = members.changed() => {
                let names = names(members.borrow_and_update().as_ref());
                if names.len() < 2 {
                    continue;
                }
                println!("party: {}", names.join(", "));
                // The leader ends it; a member waits until it has ended.
                if friend.is_some() {
                    party.disband(None).await?;
                    break;
                }
            }
        }
    }
    println!("the party has ended");
    client.close().await;
    Ok(())
}

fn names(party: Option<&PartySnapshot>) -> Vec<String> {
    party.into_iter().flat_map(|party| &party.members).map(|member| member.user.clone()).collect()
}
