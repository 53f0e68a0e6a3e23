//! The gate before a port: requests pass if they show a token that is good for them.

use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::{Request, Response, header};
use lwp_fleet::Failure;
use lwp_serve::{Scope, Tokens};
use lwp_store::Store;
use tonic::Status;
use tower::{Layer, Service};

use crate::credentials::AGENT;

/// The greatest age of tokens: one that was taken away opens nothing after that.
const FRESH: Duration = Duration::from_secs(5);
/// The greatest age of tokens while the store does not answer.
const KEPT: Duration = Duration::from_secs(900);

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
    tokens: Arc<RwLock<(Instant, Tokens)>>,
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
        let gate = Self { tokens: Arc::new(RwLock::new((Instant::now(), tokens))) };
        tokio::spawn(gate.clone().refresh(store.clone()));
        Ok(gate)
    }

    async fn refresh(self, store: Store) {
        loop {
            tokio::time::sleep(FRESH).await;
            match Tokens::of(&store).await {
                Ok(tokens) => {
                    let mut kept = self.tokens.write().unwrap_or_else(PoisonError::into_inner);
                    *kept = (Instant::now(), tokens);
                }
                Err(error) => lwp_terminal::say!("lwp-fleet-node: {error}"),
            }
        }
    }

    /// Decides about a request to `path` that comes with the user agent `agent`.
    fn check(&self, path: &str, agent: &str) -> Result<(), Status> {
        let denied = || Status::unauthenticated("a token is wanted");
        let (_, secret) = agent.split_once(AGENT).ok_or_else(denied)?;
        let secret = secret.strip_prefix('/').and_then(|text| text.split(' ').next());
        let kept = self.tokens.read().unwrap_or_else(PoisonError::into_inner);
        let (since, tokens) = &*kept;
        if since.elapsed() > KEPT {
            return Err(Status::unavailable("the store with the tokens does not answer"));
        }
        let token = tokens.find(secret.ok_or_else(denied)?).ok_or_else(denied)?;
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
        let agent = agent.and_then(|value| value.to_str().ok()).unwrap_or_default();
        if let Err(status) = self.gate.check(request.uri().path(), agent) {
            return Box::pin(async { Ok(status.into_http()) });
        }
        let next = self.inner.clone();
        let mut ready = std::mem::replace(&mut self.inner, next);
        Box::pin(async move { ready.call(request).await })
    }
}

#[cfg(test)]
mod tests {
    use lwp_serve::Token;

    use super::*;

    #[test]
    fn tokens_open_what_they_are_for_and_nothing_else() {
        let of = |secret: &str, scope| Token::new(secret, secret, vec![scope]);
        let token = vec![of("lwpf_r", Scope::Read), of("lwpf_n", Scope::Node)];
        let token = [token, vec![of("lwpf_w", Scope::Write)]].concat();
        let gate = Gate { tokens: Arc::new(RwLock::new((Instant::now(), Tokens { token }))) };
        let scheduler = |name: &str| format!("/ballista.protobuf.SchedulerGrpc/{name}");
        let check = |path: &str, secret: &str| {
            let agent = format!("lwp-fleet-node/{secret} tonic/0.14.9");
            gate.check(path, &agent).map_err(|status| status.code())
        };
        use tonic::Code::{PermissionDenied, Unauthenticated, Unimplemented};
        let (ask, poll) = (scheduler("ExecuteQuery"), scheduler("PollWork"));
        assert_eq!(check(&ask, "lwpf_r"), Ok(()));
        assert_eq!(check(&poll, "lwpf_n"), Ok(()));
        assert_eq!(check(&poll, "lwpf_r"), Err(PermissionDenied));
        assert_eq!(check(&ask, "lwpf_n"), Err(PermissionDenied));
        assert_eq!(check(&ask, "lwpf_w"), Err(PermissionDenied));
        for secret in ["", "lwpf_", "lwpf_rr"] {
            assert_eq!(check(&ask, secret), Err(Unauthenticated), "{secret}");
        }
        assert!(gate.check(&ask, "tonic/0.14.9").is_err());
        for path in
            [&scheduler("RegisterExecutor"), "/", "/ballista.protobuf.ExecutorGrpc/LaunchTask"]
        {
            assert_eq!(check(path, "lwpf_n"), Err(Unimplemented), "{path}");
        }
    }
}
