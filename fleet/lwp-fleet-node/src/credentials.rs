//! The secret that this machine shows to others.

use std::sync::Arc;
use std::time::Duration;

use ballista_core::extension::EndpointOverrideFn;
use lwp_fleet::Failure;
use tonic::transport::Endpoint;

/// The word before the secret in a request's user agent.
pub const AGENT: &str = "lwp-fleet-node";
/// The time in which another machine must accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// The time after which a silent machine is asked whether it is there, and the time that it has to
/// say so.
const ALIVE: Duration = Duration::from_secs(5);

/// The secret, which never stands in a command line: those can be seen by everybody.
#[derive(Clone)]
pub struct Credentials(Arc<str>);

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credentials(…)")
    }
}

impl Credentials {
    /// The secret of the environment.
    ///
    /// # Errors
    ///
    /// If there is none, or it cannot stand in a request.
    pub fn of_environment() -> Result<Self, Failure> {
        let secret = std::env::var("LWP_FLEET_TOKEN").unwrap_or_default();
        let is_word = !secret.is_empty() && secret.bytes().all(|byte| byte.is_ascii_graphic());
        let help = "make one: lwp fleet token add NAME --scope node --scope read";
        match is_word {
            true => Ok(Self(secret.into())),
            false => Err(Failure::new("LWP_FLEET_TOKEN has no token").with_help(help)),
        }
    }

    /// The secret itself.
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// The text of a request's user agent. Ballista lets an embedder set this of its connections
    /// and nothing else.
    fn agent(&self) -> String {
        format!("{AGENT}/{}", self.0)
    }

    /// An endpoint whose requests show the secret, and which notices that the other machine is
    /// gone.
    ///
    /// # Errors
    ///
    /// None in practice: the secret was looked at.
    pub fn equip(&self, endpoint: Endpoint) -> Result<Endpoint, tonic::transport::Error> {
        let endpoint = endpoint.user_agent(self.agent())?;
        Ok(endpoint
            .connect_timeout(CONNECT)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(ALIVE)
            .keep_alive_timeout(ALIVE)
            .keep_alive_while_idle(true))
    }

    /// Equips the connections that Ballista makes, as [`Self::equip`] does.
    pub fn for_ballista(&self) -> EndpointOverrideFn {
        let own = self.clone();
        Arc::new(move |endpoint| own.equip(endpoint).map_err(Into::into))
    }
}
