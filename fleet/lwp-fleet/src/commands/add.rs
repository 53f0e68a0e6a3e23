//! `lwp fleet add`.

use std::io::{BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use lwp_facts::{Facts, Limits};
use lwp_profile::chunk;
use lwp_terminal::escape::printable;

use crate::args::{AddArgs, FilingArgs};
use crate::failure::Failure;

/// The most that a file may have.
const LARGEST: u64 = 8 << 30;
/// Recordings of one commit.
const BATCH: usize = 64;

/// Adds recordings, a batch in a commit.
pub async fn execute(args: &AddArgs) -> Result<(), Failure> {
    let store = args.store.open().await?;
    let (mut new, mut known) = (0, 0);
    for files in args.files.chunks(BATCH) {
        let mut facts = Vec::new();
        for file in files {
            // Nothing of a batch is added when a file of it is refused.
            facts.push(read(file, args)?);
        }
        for (added, (file, facts)) in store.add(&facts).await?.iter().zip(files.iter().zip(&facts))
        {
            let run = &facts.run;
            let what = if added.new { "added" } else { "already there" };
            let (benchmark, commit) =
                (printable(&run.benchmark), run.commit.get(..10).unwrap_or(&run.commit));
            let file = printable(&file.display().to_string());
            super::print(&format!("{} {what}: {benchmark} {commit} from {file}\n", added.id))?;
            if added.new { new += 1 } else { known += 1 }
        }
    }
    if args.files.len() > 1 {
        lwp_terminal::say!("lwp-fleet: {new} added, {known} already there");
    }
    Ok(())
}

/// The facts of a file.
fn read(path: &Path, args: &AddArgs) -> Result<Facts, Failure> {
    let place = if path.as_os_str() == "-" { Path::new("/dev/stdin") } else { path };
    let named =
        |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", path.display()));
    let file = std::fs::File::open(place).map_err(|error| named(&error))?;
    let mut bytes = Vec::new();
    let read = file.take(LARGEST + 1).read_to_end(&mut bytes);
    if read.map_err(|error| named(&error))? as u64 > LARGEST {
        return Err(named(&"larger than 8 GiB"));
    }
    let mut facts = match bytes.starts_with(&chunk::MAGIC) {
        true => of_recording(path, &bytes)?,
        false => {
            Facts::read(BufReader::new(bytes.as_slice()), &Limits::default()).map_err(|error| {
                named(&error)
                    .with_remedy("recordings are made by lwp record, facts by lwp export -f facts")
            })?
        }
    };
    if args.strict && !facts.run.complete {
        return Err(named(&"the recording was cut off"));
    }
    file_as(&mut facts, &args.filing);
    if facts.run.started <= 0 {
        return Err(named(&"the recording does not say when it was made"));
    }
    Ok(facts)
}

/// The facts of a recording, whose names lwp finds.
fn of_recording(path: &Path, bytes: &[u8]) -> Result<Facts, Failure> {
    let named =
        |error: &dyn std::fmt::Display| Failure::new(format!("{}: {error}", path.display()));
    let text = exported(bytes).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => named(&"lwp is neither beside lwp-fleet nor on the path")
            .with_remedy("make facts of it where lwp is: lwp export -f facts"),
        _ => named(&error),
    })?;
    let limits = Limits { line_bytes: 64 << 20, ..Limits::default() };
    Facts::read(text.as_slice(), &limits).map_err(|error| named(&error.reason))
}

/// What `lwp export -f facts` makes of a recording.
fn exported(recording: &[u8]) -> std::io::Result<Vec<u8>> {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name("lwp"));
    let program = beside.filter(|lwp| lwp.is_file()).unwrap_or_else(|| "lwp".into());
    let mut lwp = Command::new(program)
        .args(["export", "-f", "facts", "-i", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = lwp.stdin.take().ok_or(std::io::ErrorKind::BrokenPipe)?;
    std::thread::scope(|scope| {
        // It reads everything before it writes, but nobody should have to know that.
        let sent = std::thread::Builder::new().spawn_scoped(scope, move || {
            let _ = input.write_all(recording);
        })?;
        let output = lwp.wait_with_output()?;
        let _ = sent.join();
        match output.status.success() {
            true => Ok(output.stdout),
            false => Err(std::io::Error::other("lwp could not read it")),
        }
    })
}

fn file_as(facts: &mut Facts, filing: &FilingArgs) {
    let run = &mut facts.run;
    let fields = [
        (&filing.project, &mut run.project),
        (&filing.benchmark, &mut run.benchmark),
        (&filing.commit, &mut run.commit),
        (&filing.branch, &mut run.branch),
    ];
    for (given, field) in fields {
        if let Some(given) = given {
            given.clone_into(field);
        }
    }
    run.labels.extend(filing.labels.iter().cloned());
}
