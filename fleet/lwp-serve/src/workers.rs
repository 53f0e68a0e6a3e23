//! The processes that answer questions in SQL, as the server sees them.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lwp_query::{Error, Rows};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::worker::{Asked, GRACE, LARGEST, OPENING, parse};

/// Mebibytes of address space that a process takes before it answers anything.
const BASE_MIB: usize = 2048;
/// Starts a program with a limit of memory, which a shell has.
const START: &str = "ulimit -v \"$1\"; shift; exec \"$@\"";

/// A program that answers questions: see [`crate::worker`].
#[derive(Clone, Debug)]
pub struct Program {
    /// The program.
    pub path: PathBuf,
    /// What it is started with.
    pub arguments: Vec<OsString>,
}

/// The processes.
#[derive(Debug)]
pub struct Workers {
    program: Program,
    memory_mib: usize,
    seconds: u64,
    idle: Mutex<Vec<Worker>>,
    most_idle: usize,
}

impl Workers {
    /// Processes of a program, each with so much memory for its questions and so many seconds for
    /// each. At most so many wait for the next question.
    pub fn new(program: Program, (memory_mib, seconds): (usize, u64), most_idle: usize) -> Self {
        Self { program, memory_mib, seconds, idle: Mutex::default(), most_idle }
    }

    /// The answer to a question. The process that answers ends if nobody waits for it any more.
    pub async fn ask(&self, asked: &Asked) -> Result<Rows, Error> {
        let broken = |error: io::Error| Error::Engine(format!("questions: {error}"));
        let question = asked.bytes().map_err(broken)?;
        let mut worker = match self.take() {
            Some(worker) => worker,
            None => self.start().map_err(broken)?,
        };
        match tokio::time::timeout(OPENING, worker.send(&question)).await {
            Ok(Ok(())) => worker.step_back(),
            Ok(Err(error)) => return Err(worker.fate(&error).await),
            Err(_) => return Err(Error::Unanswered("no question begins".to_owned())),
        }
        let most = Duration::from_secs(self.seconds) + GRACE;
        let answer = match tokio::time::timeout(most, worker.receive()).await {
            Ok(Ok((kind, bytes))) => parse(kind, &bytes),
            Ok(Err(error)) => return Err(worker.fate(&error).await),
            Err(_) => return Err(Error::Time(self.seconds)),
        };
        // What did not end in time may still run.
        if matches!(answer, Ok(_) | Err(Error::Question(_))) {
            self.keep(worker);
        }
        answer
    }

    fn take(&self) -> Option<Worker> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn keep(&self, worker: Worker) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < self.most_idle {
            idle.push(worker);
        }
    }

    fn start(&self) -> io::Result<Worker> {
        let scratch = Scratch::make()?;
        let kib = (2 * self.memory_mib + BASE_MIB).saturating_mul(1024).to_string();
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", START, "sh", &kib]).arg(&self.program.path);
        let child = match self.spawn(shell, &scratch.0) {
            // A system without a shell has no limits for one process.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.spawn(Command::new(&self.program.path), &scratch.0)?
            }
            child => child?,
        };
        let mut worker = Worker { child, pipes: None, is_behind: false, _scratch: scratch };
        let pipes = worker.child.stdin.take().zip(worker.child.stdout.take());
        worker.pipes = Some(pipes.ok_or(io::ErrorKind::BrokenPipe)?);
        Ok(worker)
    }

    fn spawn(&self, mut command: Command, scratch: &Path) -> io::Result<Child> {
        command.args(&self.program.arguments).env("TMPDIR", scratch);
        command.process_group(0).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()
    }
}

/// A process, which ends when it is dropped.
#[derive(Debug)]
struct Worker {
    child: Child,
    pipes: Option<(ChildStdin, ChildStdout)>,
    /// True if its threads stand behind those that serve.
    is_behind: bool,
    /// Goes last: the process has ended by then, or is about to.
    _scratch: Scratch,
}

impl Worker {
    /// Sends a question, and waits until it begins.
    async fn send(&mut self, question: &[u8]) -> io::Result<()> {
        let (input, output) = self.pipes.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        input.write_all(question).await?;
        input.flush().await?;
        output.read_u8().await?;
        Ok(())
    }

    /// Puts the process's threads behind those that serve, on systems that have `renice`. Before,
    /// they are all equal: on a busy machine, a process with low priority takes minutes to start.
    fn step_back(&mut self) {
        let Some(group) = self.child.id().filter(|_| !self.is_behind) else { return };
        self.is_behind = true;
        let mut renice = Command::new("renice");
        renice.args(["-n", "10", "-g", &group.to_string()]);
        renice.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Ok(mut renice) = renice.spawn() {
            tokio::spawn(async move { renice.wait().await });
        }
    }

    /// Waits for the kind and the bytes of an answer.
    async fn receive(&mut self) -> io::Result<(u8, Vec<u8>)> {
        let (_, output) = self.pipes.as_mut().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut head = [0; 5];
        output.read_exact(&mut head).await?;
        let [kind, a, b, c, d] = head;
        let length = u32::from_le_bytes([a, b, c, d]) as usize;
        if length > LARGEST {
            return Err(io::Error::other("the answer is too long"));
        }
        let mut bytes = vec![0; length];
        output.read_exact(&mut bytes).await?;
        Ok((kind, bytes))
    }

    /// The reason why a process ended before it answered.
    async fn fate(&mut self, error: &io::Error) -> Error {
        drop(self.pipes.take());
        let ended = tokio::time::timeout(GRACE, self.child.wait()).await;
        match ended.ok().and_then(Result::ok).and_then(|status| status.signal()) {
            // An allocation was refused, or the system ended what took most.
            Some(_) => Error::Memory,
            None => Error::Engine(format!("questions: {error}")),
        }
    }
}

/// A directory for a process's temporary files, gone with it: one that is killed leaves them.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Scratch {
    fn make() -> io::Result<Self> {
        let own = std::process::id();
        for number in 0..10_000_u32 {
            let path = std::env::temp_dir().join(format!("lwp-fleet-{own}-{number}"));
            match DirBuilder::new().mode(0o700).create(&path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made.map(|()| Self(path)),
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
