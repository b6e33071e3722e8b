//! A chat in a terminal: prints the messages of a channel and publishes what you type. `cargo run --example chat NAME`

use tavern_client::{Auth, Client, Error};
use tokio::sync::mpsc;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "ann".to_owned());
    let url = std::env::var("TAVERN_URL").unwrap_or_else(|_| "http://127.0.0.1:7400".to_owned());
    let client = Client::connect(url, Auth::User(name)).await?;
    let room = client.channel("room#chat");
    let mut messages = room.messages();
    room.subscribe().await?;
    println!("connected");
    let mut lines = typed();
    loop {
        tokio::select! {
            message = messages.next() => match message {
                Some(Ok(message)) => {
                    println!("{}: {}", message.user.unwrap_or_default(), message.data.as_str().unwrap_or("?"));
                }
                Some(Err(error)) => eprintln!("{error}"),
                None => break,
            },
            line = lines.recv() => match line {
                Some(line) => drop(room.publish(line).await?),
                None => break,
            },
        }
    }
    client.close().await;
    Ok(())
}

/// The lines of standard input, which a thread reads because reading blocks.
fn typed() -> mpsc::Receiver<String> {
    let (write, lines) = mpsc::channel(16);
    std::thread::spawn(move || {
        std::io::stdin().lines().map_while(Result::ok).try_for_each(|line| write.blocking_send(line))
    });
    lines
}
