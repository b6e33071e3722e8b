//! What nodes say to each other, as protobuf. The messages are those of `proto/tavern.proto`; a field that is not known is
//! skipped, so that two releases can run side by side. Must hold: what was written is read back the same; bytes that
//! cannot be read are no message.

pub mod letter;
mod message;
pub mod news;
pub mod people;
pub mod service;

use tavern_domain::presence::Visibility;

fn visibility(number: i32) -> Option<Visibility> {
    match number {
        0 => Some(Visibility::Everyone),
        1 => Some(Visibility::FollowersIFollow),
        2 => Some(Visibility::Nobody),
        _ => None,
    }
}

fn visibility_number(visibility: Visibility) -> i32 {
    match visibility {
        Visibility::Everyone => 0,
        Visibility::FollowersIFollow => 1,
        Visibility::Nobody => 2,
    }
}
