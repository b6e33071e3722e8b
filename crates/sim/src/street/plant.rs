//! Faults that are planted into the harness around the production code, to see that the judges find them.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Plant {
    None,
    /// News are lost on the bus, and nobody compares with the store.
    NeverLook,
    /// An answer of the store never arrives.
    DropAnswer,
    /// News carry a version that is one too high.
    WrongVersion,
    /// Two news of a channel come with each other's version.
    SwapVersions,
    /// Old news come again as if they were new.
    OldNews,
    /// Graces are not written down, and whoever knew of them forgets.
    ForgetDeadline,
    /// A commit is written whatever became of its node's epoch.
    NoFence,
    /// A commit is written whatever the row has become since it was read.
    NoExpectation,
    /// What a dead node left is taken over by nobody.
    NoTakeOver,
    /// A node that was taken for dead does not announce its clients.
    NoAnnounce,
    /// A loss is written with a deadline that is later than its grace.
    FreshDeadline,
    /// A living node's clients are taken over.
    FalseAlarm,
    /// An event is delivered twice.
    RepeatEvent,
    /// An event is not delivered.
    LoseEvent,
    /// A transport that was lost is not reported.
    ForgetLoss,
    /// A node's clock runs far ahead.
    WildClock,
    /// A loss is told before the window for coming back is over.
    Hasty,
    /// A clean stop leaves no sessions behind.
    ForgetSessions,
    /// A join is answered before it is written.
    EarlyAnswer,
    /// A commit counts fewer changes than it tells.
    SmallRaise,
}

impl Plant {
    pub const ALL: [Plant; 20] = [
        Plant::NeverLook,
        Plant::DropAnswer,
        Plant::WrongVersion,
        Plant::SwapVersions,
        Plant::OldNews,
        Plant::ForgetDeadline,
        Plant::NoFence,
        Plant::NoExpectation,
        Plant::NoTakeOver,
        Plant::NoAnnounce,
        Plant::FreshDeadline,
        Plant::FalseAlarm,
        Plant::RepeatEvent,
        Plant::LoseEvent,
        Plant::ForgetLoss,
        Plant::WildClock,
        Plant::Hasty,
        Plant::ForgetSessions,
        Plant::EarlyAnswer,
        Plant::SmallRaise,
    ];
}
