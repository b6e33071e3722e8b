//! Who can see a user. Everyone else sees them offline, and as an anonymous user in channels.

/// Who can see a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Visibility {
    #[default]
    Everyone,
    /// Only followers whom they follow too.
    FollowersIFollow,
    Nobody,
}

impl Visibility {
    pub fn parse(text: &str) -> Option<Visibility> {
        match text {
            "everyone" => Some(Visibility::Everyone),
            "followers_i_follow" => Some(Visibility::FollowersIFollow),
            "nobody" => Some(Visibility::Nobody),
            _ => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Visibility::Everyone => "everyone",
            Visibility::FollowersIFollow => "followers_i_follow",
            Visibility::Nobody => "nobody",
        }
    }

    /// Whether a viewer can see the user. Users always see themselves.
    pub fn shows(self, viewer: Viewer) -> bool {
        match (self, viewer) {
            (_, Viewer::Themselves) | (Visibility::Everyone, _) => true,
            (Visibility::FollowersIFollow, Viewer::Other { mutual }) => mutual,
            (Visibility::Nobody, Viewer::Other { .. }) => false,
        }
    }
}

/// The viewer of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Viewer {
    Themselves,
    /// `mutual`: they follow each other.
    Other {
        mutual: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_visibility_shows_the_user_to_the_right_viewers() {
        let (stranger, friend) = (Viewer::Other { mutual: false }, Viewer::Other { mutual: true });
        for (value, to_stranger, to_friend) in
            [("everyone", true, true), ("followers_i_follow", false, true), ("nobody", false, false)]
        {
            let visibility = Visibility::parse(value).unwrap();
            assert_eq!(visibility.as_str(), value);
            assert_eq!(
                (visibility.shows(stranger), visibility.shows(friend)),
                (to_stranger, to_friend),
                "{value}"
            );
            assert!(visibility.shows(Viewer::Themselves));
        }
        assert_eq!(Visibility::parse("friends"), None);
    }
}
