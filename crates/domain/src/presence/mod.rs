//! Presence: who is in a channel, and how they leave it. Rules only; where it is kept and who is told is not known here.

pub mod attendance;
pub mod room;

pub use attendance::{Attendance, Attendee, Change, Departed, Departure, Home, Input, Loss, Lost, State};
pub use room::{Difference, Entry, Gone, Heard, Member, News, Room, Seen, Snapshot};
