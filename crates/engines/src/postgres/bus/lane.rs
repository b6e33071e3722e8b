//! Lanes: the notification channels of a bus. Subjects are spread over them by hash; one more is heard by every node.
//! Must hold: nodes of all versions agree on the lane of a subject.

use crate::remote::OutboxCommand;
use std::fmt::Write;
use tavern_store::Subject;

/// Lanes for subjects. More would let a node hear less of what it does not need, and would cost more notifications for a
/// batch that concerns many.
pub const LANES: usize = 31;
/// The lane that every node hears.
pub const EVERYBODY: usize = LANES;

/// The lane of a subject that is not wide.
pub fn lane_of(subject: &Subject) -> usize {
    (fnv(subject.as_str().as_bytes()) % LANES as u64) as usize
}

/// FNV-1a. The hash of the standard library differs between releases.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// The names of the notification channels.
pub struct LaneChannels {
    /// Channels belong to a database: their names start with the hash of the schema.
    front: String,
}

impl LaneChannels {
    pub fn new(schema: &str) -> LaneChannels {
        LaneChannels { front: format!("tavern_bus_{:016x}_", fnv(schema.as_bytes())) }
    }

    pub fn name(&self, lane: usize) -> String {
        format!("{}{lane}", self.front)
    }

    pub fn lane(&self, channel: &str) -> Option<usize> {
        channel.strip_prefix(&*self.front)?.parse().ok().filter(|&lane| lane <= EVERYBODY)
    }

    /// The statement that begins to listen on a new connection.
    pub fn begin(&self) -> String {
        format!("LISTEN {};", self.name(EVERYBODY))
    }
}

/// How many subjects need each lane: the node listens to those that are needed.
#[derive(Default)]
pub struct HeardLanes([usize; LANES]);

impl HeardLanes {
    /// Follows the subscriptions of the node. Returns the statements that are needed for them, and for each lane that begins
    /// or ends whether it is heard now.
    pub fn apply(
        &mut self,
        channels: &LaneChannels,
        commands: &[OutboxCommand],
    ) -> (String, Vec<(usize, bool)>) {
        let before = self.0;
        for command in commands {
            let (subject, is_needed) = match command {
                OutboxCommand::Subscribe(subject) => (subject, true),
                OutboxCommand::Unsubscribe(subject) => (subject, false),
            };
            let lanes = if subject.is_wide() { 0..LANES } else { lane_of(subject)..lane_of(subject) + 1 };
            for needed in &mut self.0[lanes] {
                *needed = if is_needed { *needed + 1 } else { needed.saturating_sub(1) };
            }
        }
        let (mut sql, mut changed) = (String::new(), Vec::new());
        for (lane, (&before, &now)) in before.iter().zip(&self.0).enumerate() {
            if (before > 0) == (now > 0) {
                continue;
            }
            changed.push((lane, now > 0));
            let verb = if now > 0 { "LISTEN" } else { "UNLISTEN" };
            let _ = write!(sql, "{verb} {};", channels.name(lane));
        }
        (sql, changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(rest: &str) -> Subject {
        Subject::new("p", "game", rest.as_bytes()).unwrap()
    }

    #[test]
    fn the_lane_of_a_subject_never_changes() {
        assert_eq!(fnv(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv(b"foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(lane_of(&subject("A")), lane_of(&Subject::parse("p.game.A").unwrap()));
        let used: std::collections::BTreeSet<usize> =
            (0..1000).map(|n| lane_of(&subject(&n.to_string()))).collect();
        assert_eq!(used.len(), LANES);
    }

    #[test]
    fn a_lane_is_heard_as_long_as_a_subject_needs_it() {
        let (channels, mut lanes) = (LaneChannels::new("tavern"), HeardLanes::default());
        let (one, wide) = (subject("A"), Subject::every_rest("p", "game").unwrap());
        let (sql, changed) = lanes.apply(&channels, &[OutboxCommand::Subscribe(one.clone())]);
        assert_eq!(
            (sql, changed),
            (format!("LISTEN {};", channels.name(lane_of(&one))), vec![(lane_of(&one), true)])
        );
        assert_eq!(lanes.apply(&channels, &[OutboxCommand::Subscribe(wide.clone())]).1.len(), LANES - 1);
        let (sql, _) = lanes.apply(&channels, &[OutboxCommand::Unsubscribe(wide)]);
        assert_eq!(sql.matches("UNLISTEN").count(), LANES - 1);
        let both = [OutboxCommand::Unsubscribe(one.clone()), OutboxCommand::Subscribe(one)];
        assert_eq!(lanes.apply(&channels, &both), (String::new(), Vec::new()));
    }

    #[test]
    fn a_channel_of_another_schema_is_not_a_lane() {
        let (blue, green) = (LaneChannels::new("blue"), LaneChannels::new("green"));
        assert_eq!(blue.lane(&blue.name(7)), Some(7));
        assert_eq!(green.lane(&blue.name(7)), None);
        assert_eq!(blue.lane(&blue.name(EVERYBODY + 1)), None);
    }
}
