//! `lwp fleet push`.

use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use flate2::Compression;
use flate2::write::GzEncoder;
use lwp_facts::Facts;
use lwp_profile::chunk;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode};

use super::add;
use super::filing::FilingArgs;
use crate::failure::Failure;

/// The form in which recordings are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum SentArg {
    /// Facts, to a fleet server
    #[default]
    Facts,
    /// OpenTelemetry profiles, to Pyroscope or a collector
    Otlp,
}

/// `lwp fleet push`.
#[derive(Args, Clone, Debug)]
pub struct PushArgs {
    /// The server: http://HOST:PORT, https://HOST
    #[arg(long, env = "LWP_FLEET_SERVER", value_name = "URL")]
    pub to: String,

    /// The file with the server's token [default: the variable LWP_FLEET_TOKEN]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,

    /// Send recordings in this form
    #[arg(long = "as", value_enum, default_value_t, value_name = "FORM")]
    pub form: SentArg,

    #[command(flatten)]
    pub filing: FilingArgs,

    /// Recordings, as lwp fleet add takes them
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// Refuse truncated recordings
    #[arg(long)]
    pub strict: bool,

    /// Retry a busy or silent server for SECONDS
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub patience: u64,
}

/// The time that one attempt may take.
const ATTEMPT: Duration = Duration::from_secs(120);

/// Sends recordings, one after the other. What was sent before a failure is there; sent again, it
/// is there once.
pub async fn execute(args: &PushArgs) -> Result<(), Failure> {
    let server = args.to.trim_end_matches('/');
    if !server.starts_with("http://") && !server.starts_with("https://") {
        let cause = format!("'{server}' is no server: http://HOST:PORT is wanted");
        return Err(Failure::new(cause)
            .with_help("lwp fleet add --store writes to directories and buckets directly"));
    }
    let pushing = Pushing {
        client: Client::builder().timeout(ATTEMPT).build().map_err(|error| unsent(&error))?,
        token: token(args)?,
        patience: Duration::from_secs(args.patience),
    };
    for file in &args.files {
        match args.form {
            SentArg::Facts => {
                for facts in add::read(file, &args.filing, args.strict)? {
                    pushing.facts(server, &facts, file).await?;
                }
            }
            SentArg::Otlp => pushing.profile(server, file).await?,
        }
    }
    Ok(())
}

/// The token, which never stands in a command line: those can be seen by everybody.
fn token(args: &PushArgs) -> Result<Option<String>, Failure> {
    match &args.token_file {
        Some(path) => {
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|e| Failure::new(format!("{}: {e}", path.display())))?;
            Ok(Some(text.trim().to_owned()))
        }
        None => Ok(std::env::var("LWP_FLEET_TOKEN").ok().filter(|token| !token.is_empty())),
    }
}

struct Pushing {
    client: Client,
    token: Option<String>,
    patience: Duration,
}

impl Pushing {
    async fn facts(&self, server: &str, facts: &Facts, file: &Path) -> Result<(), Failure> {
        let packed = || -> std::io::Result<Vec<u8>> {
            let mut packer = GzEncoder::new(Vec::new(), Compression::default());
            packer.write_all(facts.write().as_bytes())?;
            packer.finish()
        };
        let bytes = packed().map_err(|error| Failure::new(format!("gzip: {error}")))?;
        let url = format!("{server}/v1/recordings");
        let answer = self.post(&url, "application/x-ndjson", bytes).await?;
        let is_new = answer.status() != StatusCode::OK;
        super::print(&add::line(facts.id(), is_new, facts, file))
    }

    async fn profile(&self, server: &str, file: &Path) -> Result<(), Failure> {
        let named =
            |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", file.display()));
        let bytes = std::fs::read(file).map_err(|error| named(&error))?;
        if !bytes.starts_with(&chunk::MAGIC) {
            return Err(named(
                &"only recordings of lwp record can be sent as OpenTelemetry's profiles",
            ));
        }
        let bytes = add::exported(&bytes, "otlp").map_err(|error| named(&error))?;
        let url = format!("{server}/v1development/profiles");
        self.post(&url, "application/x-protobuf", bytes).await?;
        super::print(&format!("sent: {}\n", file.display()))
    }

    /// Posts bytes until they are taken or refused.
    async fn post(&self, url: &str, kind: &str, bytes: Vec<u8>) -> Result<Response, Failure> {
        let begun = Instant::now();
        let mut pause = Duration::from_millis(500);
        loop {
            let mut request = self.client.post(url).header(CONTENT_TYPE, kind).body(bytes.clone());
            if let Some(token) = &self.token {
                request = request.bearer_auth(token);
            }
            let failure = match request.send().await {
                Ok(answer) if answer.status().is_success() => return Ok(answer),
                Ok(answer) if !is_temporary(answer.status()) => return Err(refused(answer).await),
                Ok(answer) => {
                    let said = answer.headers().get(RETRY_AFTER);
                    let said = said.and_then(|value| value.to_str().ok()?.parse().ok());
                    pause = said.map_or(pause, Duration::from_secs);
                    refused(answer).await.temporary()
                }
                Err(error) => unsent(&error).temporary(),
            };
            if begun.elapsed() + pause > self.patience {
                return Err(failure);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(Duration::from_secs(30));
        }
    }
}

fn is_temporary(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 502..=504)
}

async fn refused(answer: Response) -> Failure {
    let status = answer.status();
    let text = answer.text().await.unwrap_or_default();
    let why: String = text.trim().chars().take(500).collect();
    let failure = Failure::new(format!("the server answers {status}: {why}"));
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => failure
            .with_help("put a token with scope write into LWP_FLEET_TOKEN: lwp fleet token add"),
        _ => failure,
    }
}

fn unsent(error: &reqwest::Error) -> Failure {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(source) = next {
        text = format!("{text}: {source}");
        next = source.source();
    }
    Failure::new(text)
}
