//! Presence: who is in a channel, how they leave it, and what followers see. Rules only: storage and delivery are
//! elsewhere.

pub mod attendance;
pub mod crowd;
pub mod followee;
pub mod room;
pub mod status;
pub mod visibility;

pub use attendance::{Attendance, Attendee, Change, Departed, Departure, Home, Input, Loss, Lost, State};
pub use crowd::{Mode, Thresholds, Tick};
pub use followee::{Fact, Followee, Rumour, Stay, Tidings};
pub use room::{Difference, Entry, Gone, Heard, Member, News, Room, Seen, Snapshot, Turned};
pub use status::{Activities, Activity, Status, Turn, Whereabouts};
pub use visibility::{Viewer, Visibility};
