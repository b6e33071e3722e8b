//! Presence: who is in a channel, how they leave it, and what followers see. Rules only: storage and delivery are
//! elsewhere.

pub mod attendance;
pub mod crowd;
pub mod followee;
pub mod room;
pub mod status;
pub mod visibility;

pub use attendance::{
    Attendance, AttendanceChange, AttendanceInput, ChannelClient, ClientLoss, ClientState, LastDeparture,
    LostClient, NodeEpoch, OfflineReason,
};
pub use crowd::{PresenceMode, Thresholds, TickChanges};
pub use followee::{Followee, PresenceSummary, StatusUpdate, UserFact, UserUpdate};
pub use room::{
    Applied, DepartedClient, PresenceUpdate, PresentClient, Room, RoomClient, RoomDifference, RoomMember,
    RoomSnapshot, VisibilityChanged,
};
pub use status::{Activities, Activity, Status, StatusCause, UserChannel};
pub use visibility::{Viewer, Visibility};
