//! Who a Radar client is: the user of the token that its requests carry. In dev mode any user, by the id in its requests.
//! Must hold: one connection acts for one user; a request with another user's token or id is refused.

use crate::auth::{AuthError, Credential};
use crate::config::ServerMode;
use crate::gateway::GatewaySources;
use tavern_domain::{AddressGroup, Identity};
use tavern_wire::radar::RadarRequest;

#[derive(Default)]
pub struct RadarLogin {
    /// The last token that was accepted.
    token: Option<String>,
    identity: Option<Identity>,
}

/// What a login changes.
#[derive(Debug, PartialEq, Eq)]
pub enum LoginStep {
    Same,
    /// A fresh token of the same user: open sessions must get it.
    Renewed(String),
    Refused,
}

impl RadarLogin {
    /// The user behind the connection. None: not known yet, which is possible in dev mode only.
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// Checks the token and the user of a request.
    pub fn check(
        &mut self,
        sources: &GatewaySources,
        address: Option<AddressGroup>,
        request: &RadarRequest<'_>,
    ) -> LoginStep {
        let step = self.check_token(sources, address, request.auth.as_deref());
        if step == LoginStep::Refused {
            return step;
        }
        let claimed = request.user.as_deref().or(request.claimed_user.as_deref());
        if self.identity.is_none() && sources.config.mode == ServerMode::Dev {
            let Some(user) = claimed else { return step };
            let named = sources.authenticator.admit_now(&Credential::User(user.to_owned()), sources.now());
            match named {
                Some(Ok(identity)) => self.identity = Some(identity),
                _ => return LoginStep::Refused,
            }
        }
        let user = self.identity.as_ref().and_then(|identity| identity.user.as_deref());
        if claimed.is_some() && claimed != user { LoginStep::Refused } else { step }
    }

    fn check_token(
        &mut self,
        sources: &GatewaySources,
        address: Option<AddressGroup>,
        token: Option<&str>,
    ) -> LoginStep {
        let is_dev = sources.config.mode == ServerMode::Dev;
        let Some(token) = token else {
            // A connection that has shown a token must show it again: others may know its id.
            return if is_dev && self.token.is_none() { LoginStep::Same } else { LoginStep::Refused };
        };
        if self.token.as_deref() == Some(token) {
            return LoginStep::Same;
        }
        match admit(sources, token) {
            Ok(identity) if self.identity.as_ref().is_some_and(|own| !own.is_same_caller(&identity)) => {
                LoginStep::Refused
            }
            Ok(identity) => {
                let is_known = self.identity.replace(identity).is_some();
                self.token = Some(token.to_owned());
                if is_known { LoginStep::Renewed(token.to_owned()) } else { LoginStep::Same }
            }
            // In dev mode an app may keep its own kind of token.
            Err(_) if is_dev && self.token.is_none() => LoginStep::Same,
            Err(_) => {
                if let Some(address) = address {
                    // Refused either way; too many of them are refused sooner elsewhere.
                    let _ = sources.node.rates.take_hello(sources.now(), address);
                }
                LoginStep::Refused
            }
        }
    }
}

/// Tokens only: an API key is for servers, and must not be in a page.
fn admit(sources: &GatewaySources, token: &str) -> Result<Identity, AuthError> {
    match Credential::of(token) {
        credential @ Credential::Token(_) => {
            sources.authenticator.admit_now(&credential, sources.now()).unwrap_or(Err(AuthError::Malformed))
        }
        _ => Err(AuthError::Malformed),
    }
}
