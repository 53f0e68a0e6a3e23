//! A process that answers questions in SQL for a server. A question can do there what it likes:
//! the server ends the process that takes too long, and the system the one that takes too much
//! memory.
//!
//! A question is the length of its JSON, as four bytes, and the JSON. An answer is a byte when the
//! version of the store is open, from when on the question has its time; then a byte for its kind,
//! the length as four bytes, and rows as Arrow's stream or the words of an error.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use lwp_query::{Budget, Error, Rows, Session};
use lwp_store::{Location, Store};
use serde::{Deserialize, Serialize};

/// The longest question.
const LONGEST: usize = 2 << 20;
/// The largest answer.
pub const LARGEST: usize = 64 << 20;
/// The time that an answer may take beyond that of its question.
pub const GRACE: Duration = Duration::from_secs(2);

/// The time in which a process must start and open the version that is asked.
pub const OPENING: Duration = Duration::from_secs(30);

/// A question.
#[derive(Debug, Serialize, Deserialize)]
pub struct Asked {
    /// The version of the store that is asked.
    pub version: u64,
    /// The question.
    pub sql: String,
}

impl Asked {
    /// As it is sent.
    pub fn bytes(&self) -> io::Result<Vec<u8>> {
        let json = serde_json::to_vec(self)?;
        let length = u32::try_from(json.len()).map_err(io::Error::other)?;
        Ok([&length.to_le_bytes(), json.as_slice()].concat())
    }
}

/// The kind of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Rows,
    Question,
    Execution,
    Memory,
    Disk,
    Time,
    Many,
    Unanswered,
    Failed,
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Rows,
        Self::Question,
        Self::Execution,
        Self::Memory,
        Self::Disk,
        Self::Time,
        Self::Many,
        Self::Unanswered,
        Self::Failed,
    ];
}

/// The answer that bytes mean.
pub fn parse(kind: u8, bytes: &[u8]) -> Result<Rows, Error> {
    let text = || String::from_utf8_lossy(bytes).into_owned();
    let number = || text().parse().unwrap_or(0);
    let known = Kind::ALL.into_iter().find(|known| *known as u8 == kind);
    Err(match known.unwrap_or(Kind::Failed) {
        Kind::Rows => {
            let reader = StreamReader::try_new(bytes, None)?;
            let schema = reader.schema();
            let batches = reader.collect::<Result<Vec<_>, _>>()?;
            return Ok(Rows { schema, batches });
        }
        Kind::Question => Error::Question(text()),
        Kind::Execution => Error::Execution(text()),
        Kind::Memory => Error::Memory,
        Kind::Disk => Error::Disk,
        Kind::Time => Error::Time(number()),
        Kind::Many => Error::Rows(number() as usize),
        Kind::Unanswered => Error::Unanswered(text()),
        Kind::Failed => Error::Engine(text()),
    })
}

/// The kind and the bytes of an answer.
fn pack(answer: Result<Rows, Error>) -> (Kind, Vec<u8>) {
    let rows = match answer {
        Ok(rows) => rows,
        Err(error) => return pack_error(&error),
    };
    let stream = || -> Result<Vec<u8>, arrow::error::ArrowError> {
        let mut writer = StreamWriter::try_new(Vec::new(), &rows.schema)?;
        rows.batches.iter().try_for_each(|batch| writer.write(batch))?;
        writer.into_inner()
    };
    match stream() {
        Ok(bytes) if bytes.len() > LARGEST => {
            let why = format!("the answer has more than {} MiB", LARGEST >> 20);
            (Kind::Question, why.into_bytes())
        }
        Ok(bytes) => (Kind::Rows, bytes),
        Err(error) => pack_error(&error.into()),
    }
}

fn pack_error(error: &Error) -> (Kind, Vec<u8>) {
    let (kind, text) = match error {
        Error::Question(why) => (Kind::Question, why.clone()),
        Error::Execution(why) => (Kind::Execution, why.clone()),
        Error::Memory => (Kind::Memory, String::new()),
        Error::Disk => (Kind::Disk, String::new()),
        Error::Time(seconds) => (Kind::Time, seconds.to_string()),
        Error::Rows(most) => (Kind::Many, most.to_string()),
        Error::Unanswered(why) => (Kind::Unanswered, why.clone()),
        Error::Store(error) if error.is_temporary() => (Kind::Unanswered, error.to_string()),
        Error::Engine(why) => (Kind::Failed, why.clone()),
        error => (Kind::Failed, error.to_string()),
    };
    (kind, text.into_bytes())
}

/// Answers the questions on standard input, one behind the other, until it ends.
///
/// # Errors
///
/// If standard input or output fail.
pub async fn answer_all(location: Location, budget: Budget) -> io::Result<()> {
    let clock = Clock::start(Duration::from_secs(budget.seconds) + 2 * GRACE + OPENING)?;
    let mut kept: Option<(Store, Arc<Session>)> = None;
    while let Some(asked) = next()? {
        clock.begin();
        let session = session(&mut kept, &location, (asked.version, budget)).await;
        send(&[0])?;
        let answer = match session {
            Ok(session) => session.ask(&asked.sql).await,
            Err(error) => Err(error),
        };
        let (kind, bytes) = pack(answer);
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        send(&[kind as u8])?;
        send(&length.to_le_bytes())?;
        send(&bytes)?;
        clock.end();
    }
    Ok(())
}

/// Sends bytes to the server.
fn send(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

/// The session of a version: the last one, if it is that of the same version.
async fn session(
    kept: &mut Option<(Store, Arc<Session>)>,
    location: &Location,
    (version, budget): (u64, Budget),
) -> Result<Arc<Session>, Error> {
    if let Some((_, session)) = kept
        && session.snapshot().version() == version
    {
        return Ok(Arc::clone(session));
    }
    let store = match kept.take() {
        Some((store, _)) => store,
        None => Store::open(location.clone()).await?,
    };
    let snapshot = store.snapshot_at(version).await?;
    let session = Arc::new(Session::of(&store, snapshot, budget).await?);
    *kept = Some((store, Arc::clone(&session)));
    Ok(session)
}

/// The next question; `None` if the server has no more.
fn next() -> io::Result<Option<Asked>> {
    let mut input = io::stdin().lock();
    let mut length = [0; 4];
    match input.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > LONGEST {
        return Err(io::Error::other("the question is too long"));
    }
    let mut json = vec![0; length];
    input.read_exact(&mut json)?;
    Ok(Some(serde_json::from_slice(&json)?))
}

/// Ends the process if a question takes longer than any may, because the server that would end it
/// may be gone.
struct Clock(Arc<AtomicU64>);

impl Clock {
    fn start(most: Duration) -> io::Result<Self> {
        let begun = Arc::new(AtomicU64::new(0));
        let (seen, origin) = (Arc::clone(&begun), Instant::now());
        let watch = move || {
            let (mut question, mut since) = (0, origin);
            loop {
                std::thread::sleep(Duration::from_millis(500));
                let now = seen.load(Ordering::Relaxed);
                if now != question || now % 2 == 0 {
                    (question, since) = (now, Instant::now());
                }
                if since.elapsed() > most {
                    std::process::abort();
                }
            }
        };
        std::thread::Builder::new().name("clock".to_owned()).spawn(watch)?;
        Ok(Self(begun))
    }

    /// An odd number stands for a question that is being answered.
    fn begin(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn end(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, RecordBatch};
    use arrow::datatypes::{DataType, Field, Schema};

    use super::*;

    #[test]
    fn answers_come_as_they_were_sent() {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
        let column = Arc::new(Int64Array::from(vec![Some(7), None]));
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column]).unwrap();
        let (kind, bytes) = pack(Ok(Rows { schema, batches: vec![batch.clone()] }));
        assert_eq!(parse(kind as u8, &bytes).unwrap().batches, [batch]);
        let errors = [
            Error::Question("no".into()),
            Error::Execution("a cast".into()),
            Error::Memory,
            Error::Disk,
            Error::Time(30),
            Error::Rows(100),
            Error::Unanswered("gone".into()),
            Error::Engine("broken".into()),
        ];
        for error in errors {
            let text = error.to_string();
            let (kind, bytes) = pack(Err(error));
            assert_eq!(parse(kind as u8, &bytes).unwrap_err().to_string(), text);
        }
        assert!(parse(200, b"x").is_err() && parse(0, b"x").is_err());
    }
}
