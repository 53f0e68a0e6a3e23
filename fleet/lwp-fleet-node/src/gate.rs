//! The gate before a port: requests pass if they show a token that is good for them.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Request, Response, header};
use lwp_fleet::Failure;
use lwp_serve::{Keyring, Scope, Silent, Tokens};
use lwp_store::Store;
use tonic::Status;
use tower::{Layer, Service};

use crate::credentials::{AGENT, Credentials};

/// The requests that are answered, and the scopes of which a token must have one. There are no
/// others.
#[rustfmt::skip] // A table: one request a line.
const REQUESTS: &[(&str, &[Scope])] = &[
    // path                                                scopes
    ("/ballista.protobuf.SchedulerGrpc/PollWork",          &[Scope::Node]),
    ("/ballista.protobuf.SchedulerGrpc/ExecuteQuery",      &[Scope::Read]),
    ("/ballista.protobuf.SchedulerGrpc/GetJobStatus",      &[Scope::Read]),
    ("/ballista.protobuf.SchedulerGrpc/CancelJob",         &[Scope::Read]),
    ("/ballista.protobuf.SchedulerGrpc/CleanJobData",      &[Scope::Read]),
    ("/ballista.protobuf.SchedulerGrpc/RemoveSession",     &[Scope::Read]),
    ("/ballista.protobuf.ExecutorGrpc/CancelTasks",        &[Scope::Node]),
    ("/arrow.flight.protocol.FlightService/DoGet",         &[Scope::Read, Scope::Node]),
    ("/arrow.flight.protocol.FlightService/DoAction",      &[Scope::Read, Scope::Node]),
];

/// The gate before a port.
#[derive(Clone, Debug)]
pub struct Gate {
    keys: Arc<Keyring>,
}

impl Gate {
    /// The gate that the tokens of a store open. They are read again as long as it stands.
    ///
    /// # Errors
    ///
    /// If the store has none.
    pub async fn of(store: &Store) -> Result<Self, Failure> {
        let tokens = Tokens::of(store).await?;
        if tokens.token.is_empty() {
            let cause = "the store has no tokens: anybody who reaches this machine could ask";
            let help = "make one: lwp fleet token add NAME --scope node --scope read";
            return Err(Failure::new(cause).with_help(help));
        }
        Ok(Self { keys: Keyring::new(store.clone(), tokens, None) })
    }

    /// Makes sure that this machine's own token is one of the store's machines.
    ///
    /// # Errors
    ///
    /// If it is not, in which case the scheduler would refuse every request.
    pub async fn admit(&self, credentials: &Credentials) -> Result<(), Failure> {
        let silent = |Silent| Failure::new("the store with the tokens does not answer").temporary();
        let token = self.keys.find(credentials.secret()).await.map_err(silent)?;
        let cause = match token {
            Some(token) if token.scopes.contains(&Scope::Node) => return Ok(()),
            Some(token) => format!("the token '{}' has no scope node", token.name),
            None => "the store has no such token as LWP_FLEET_TOKEN".to_owned(),
        };
        Err(Failure::new(cause).with_help("make one: lwp fleet token add NAME --scope node"))
    }

    /// Decides about a request to `path` that comes with the user agent `agent`.
    async fn check(&self, path: &str, agent: &str) -> Result<(), Status> {
        let denied = || Status::unauthenticated("a token is wanted");
        let (_, secret) = agent.split_once(AGENT).ok_or_else(denied)?;
        let secret = secret.strip_prefix('/').and_then(|text| text.split(' ').next());
        let silent = |Silent| Status::unavailable("the store with the tokens does not answer");
        let token = self.keys.find(secret.ok_or_else(denied)?).await.map_err(silent)?;
        let token = token.ok_or_else(denied)?;
        let row = REQUESTS.iter().find(|(of, _)| *of == path);
        let (_, scopes) = row.ok_or_else(|| Status::unimplemented("no such request"))?;
        match scopes.iter().any(|scope| token.scopes.contains(scope)) {
            true => Ok(()),
            false => Err(Status::permission_denied("the token is not good for that")),
        }
    }
}

impl<S> Layer<S> for Gate {
    type Service = Gated<S>;

    fn layer(&self, inner: S) -> Gated<S> {
        Gated { gate: self.clone(), inner }
    }
}

/// A service behind a gate.
#[derive(Clone, Debug)]
pub struct Gated<S> {
    gate: Gate,
    inner: S,
}

impl<S, I, O> Service<Request<I>> for Gated<S>
where
    S: Service<Request<I>, Response = Response<O>> + Clone + Send + 'static,
    S::Future: Send,
    I: Send + 'static,
    O: Default,
{
    type Response = Response<O>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<I>) -> Self::Future {
        let agent = request.headers().get(header::USER_AGENT);
        let agent = agent.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
        let (gate, path) = (self.gate.clone(), request.uri().path().to_owned());
        let next = self.inner.clone();
        let mut ready = std::mem::replace(&mut self.inner, next);
        Box::pin(async move {
            match gate.check(&path, &agent).await {
                Ok(()) => ready.call(request).await,
                Err(status) => Ok(status.into_http()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use lwp_serve::Token;

    use super::*;

    /// Promise: FL21
    #[tokio::test]
    async fn tokens_open_what_they_are_for_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let place = lwp_store::Location::parse(dir.path().join("store").to_str().unwrap());
        let store = Store::init(place.unwrap()).await.unwrap();
        let of = |secret: &str, scope| Token::new(secret, secret, vec![scope]);
        let token = vec![of("lwpf_r", Scope::Read), of("lwpf_n", Scope::Node)];
        let token = [token, vec![of("lwpf_w", Scope::Write)]].concat();
        Tokens { token: token.clone() }.set(&store).await.unwrap();
        let gate = Gate { keys: Keyring::new(store, Tokens { token }, None) };
        let scheduler = |name: &str| format!("/ballista.protobuf.SchedulerGrpc/{name}");
        let check = async |path: &str, secret: &str| {
            let agent = format!("lwp-fleet-node/{secret} tonic/0.14.9");
            gate.check(path, &agent).await.map_err(|status| status.code())
        };
        use tonic::Code::{PermissionDenied, Unauthenticated, Unimplemented};
        let (ask, poll) = (scheduler("ExecuteQuery"), scheduler("PollWork"));
        assert_eq!(check(&ask, "lwpf_r").await, Ok(()));
        assert_eq!(check(&poll, "lwpf_n").await, Ok(()));
        assert_eq!(check(&poll, "lwpf_r").await, Err(PermissionDenied));
        assert_eq!(check(&ask, "lwpf_n").await, Err(PermissionDenied));
        assert_eq!(check(&ask, "lwpf_w").await, Err(PermissionDenied));
        for secret in ["", "lwpf_", "lwpf_rr"] {
            assert_eq!(check(&ask, secret).await, Err(Unauthenticated), "{secret}");
        }
        assert!(gate.check(&ask, "tonic/0.14.9").await.is_err());
        for path in
            [&scheduler("RegisterExecutor"), "/", "/ballista.protobuf.ExecutorGrpc/LaunchTask"]
        {
            assert_eq!(check(path, "lwpf_n").await, Err(Unimplemented), "{path}");
        }
    }
}
