//! To whom a user shows himself. Those he hides from see somebody offline, and in a channel somebody without a name.

/// To whom a user shows himself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Visibility {
    #[default]
    Everyone,
    /// Only those whom he follows too.
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

    /// Whether he is shown to somebody. He always sees himself; to the others he looks offline, and counts as anonymous.
    pub fn shows(self, viewer: Viewer) -> bool {
        match (self, viewer) {
            (_, Viewer::Himself) | (Visibility::Everyone, _) => true,
            (Visibility::FollowersIFollow, Viewer::Other { mutual }) => mutual,
            (Visibility::Nobody, Viewer::Other { .. }) => false,
        }
    }
}

/// Who looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Viewer {
    Himself,
    /// `mutual`: they follow each other.
    Other {
        mutual: bool,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_hides_is_seen_by_those_he_chose() {
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
            assert!(visibility.shows(Viewer::Himself));
        }
        assert_eq!(Visibility::parse("friends"), None);
    }
}
