//! The engine beside DuckDB, on the same files: ten questions within a process, and joins of a
//! table with itself as processes of their own.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use lwp_query::{Budget, Session};
use lwp_store::Store;

use crate::children;
use crate::serving::command;
use crate::table::Table;

/// Questions, by name. Both engines understand them.
const TEN: [(&str, &str); 10] = [
    (
        "top functions",
        "select function, sum(instructions) as n from functions group by function \
         order by n desc, function limit 20",
    ),
    (
        "hottest lines",
        "select file, line, sum(instructions) as n from lines group by file, line \
         order by n desc, file, line limit 20",
    ),
    (
        "one function by commit",
        "select \"commit\", min(instructions) as n from functions \
         where function = 'project::module_7::part_0::function_7' \
         group by \"commit\" order by \"commit\" limit 20",
    ),
    (
        "a benchmark's functions",
        "select function, count(*) as n, max(instructions) as m from functions \
         where benchmark = 'benchmark-07' group by function order by m desc, function limit 20",
    ),
    (
        "totals by commit",
        "select \"commit\", sum(instructions) as n from recordings group by \"commit\" \
         order by \"commit\" limit 20",
    ),
    (
        "hosts",
        "select host, sum(instructions) as n, sum(branches) as b from functions group by host \
         order by host",
    ),
    (
        "names that fit",
        "select count(*) as n, sum(calls) as c from functions where function like '%part_3%9'",
    ),
    (
        "names counted",
        "select count(distinct function) as f, count(distinct \"commit\") as c from functions",
    ),
    (
        "callees",
        "select f.function, sum(c.entered) as n from calls c join functions f \
         on f.func = c.callee and f.recording = c.recording where f.benchmark = 'benchmark-07' \
         group by f.function order by n desc, f.function limit 10",
    ),
    (
        "against the commit before (a window)",
        "select count(*) as n from (select instructions, lag(instructions) over \
         (partition by project, benchmark, func order by started) as last from functions) \
         where instructions <> last",
    ),
];

/// Joins of a table with itself.
const JOINS: [(&str, &str); 3] = [
    (
        "functions with a later commit's",
        "select count(*) as n from functions a join functions b \
         on a.benchmark = b.benchmark and a.func = b.func and a.started < b.started \
         and a.instructions > b.instructions",
    ),
    (
        "functions with those of the same name",
        "select sum(a.instructions - b.instructions) as n from functions a join functions b \
         on a.recording = b.recording and a.function = b.function and a.module <> b.module",
    ),
    (
        "calls with calls behind them",
        "select count(*) as n from calls a join calls b \
         on a.recording = b.recording and a.callee = b.func",
    ),
];

/// Answers questions, one a line or those that follow; says the seconds that each took.
const SCRIPT: &str = "
import os, sys, time, duckdb
connection = duckdb.connect()
connection.execute('set threads = %s' % os.environ['THREADS'])
connection.execute(open(sys.argv[1]).read())
for question in sys.argv[2:] or sys.stdin:
    begun = time.perf_counter()
    connection.execute(question).fetchall()
    print(time.perf_counter() - begun, flush=True)
";

/// Rounds, in each of which both engines answer.
const ROUNDS: usize = 7;

/// DuckDB within a python.
struct Duck {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// The command that has DuckDB answer questions about the store of `views`.
fn duckdb(views: &Path, threads: usize) -> Command {
    let python = std::env::var("LWP_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    let mut command = Command::new(python);
    command.args(["-c", SCRIPT]).arg(views).env("THREADS", threads.to_string());
    command
}

impl Duck {
    /// `None` if there is no DuckDB.
    fn start(views: &Path, threads: usize) -> Option<Self> {
        let mut command = duckdb(views, threads);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().ok()?;
        let (questions, answers) = (child.stdin.take()?, BufReader::new(child.stdout.take()?));
        let mut duck = Self { child, questions, answers };
        duck.ask("select 1").map(|_| duck)
    }

    /// Seconds that a question takes.
    fn ask(&mut self, question: &str) -> Option<f64> {
        writeln!(self.questions, "{question}").ok()?;
        let mut line = String::new();
        self.answers.read_line(&mut line).ok()?;
        line.trim().parse().ok()
    }
}

impl Drop for Duck {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_unstable_by(f64::total_cmp);
    seconds.get(seconds.len() / 2).copied().unwrap_or(0.0)
}

/// Measures both engines on the store at `path`, in turns.
pub async fn compare(path: &Path, dir: &Path, table: &mut Table) {
    let views = dir.join("views.sql");
    let (statements, _) = children::done(command(path).args(["views", "--engine", "duckdb"]));
    std::fs::write(&views, statements).expect("a file");
    let budget = Budget::default();
    let Some(mut duck) = Duck::start(&views, budget.threads) else {
        println!("skipped: there is no DuckDB (PyPI: duckdb; LWP_PYTHON names a python)");
        return;
    };
    let place = lwp_store::Location::parse(path.to_str().expect("text")).expect("a place");
    let store = Store::open(place).await.expect("a store");
    let session = Session::new(&store, budget).await.expect("a session");
    table.about("seconds of lwp and of DuckDB, files in memory, in turns; medians");
    let mut sums = [0.0; 2];
    for (name, question) in TEN {
        let both = warm(&session, &mut duck, question).await;
        (0..2).for_each(|n| sums[n] += both[n]);
        ratio(name, both, table);
    }
    ratio("all ten", sums, table);
    drop(duck);
    table.about("seconds of lwp and of DuckDB, first questions, files on the disk only");
    let mut sums = [0.0; 2];
    for (name, question) in TEN {
        let both = cold(&store, &views, question).await;
        (0..2).for_each(|n| sums[n] += both[n]);
        ratio(name, both, table);
    }
    ratio("all ten", sums, table);
    joins((path, &views), budget.threads, table);
}

/// The medians of many answers.
async fn warm(session: &Session, duck: &mut Duck, question: &str) -> [f64; 2] {
    let (mut own, mut other) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let took = seconds(session, question).await;
        let both = [took, duck.ask(question).expect("an answer")];
        // The first round warms both up.
        if round > 0 {
            own.push(both[0]);
            other.push(both[1]);
        }
    }
    [median(own), median(other)]
}

/// The first answers of sessions whose files are not in memory.
async fn cold(store: &Store, views: &Path, question: &str) -> [f64; 2] {
    let budget = Budget::default();
    let session = Session::new(store, budget).await.expect("a session");
    let mut duck = Duck::start(views, budget.threads).expect("DuckDB");
    let path = store.location().url.path();
    let forget = || {
        let dd = ["dd", "if={}", "iflag=nocache", "count=0", "status=none", ";"];
        let mut find = Command::new("find");
        children::done(find.args([path, "-type", "f", "-exec"]).args(dd));
    };
    forget();
    let own = seconds(&session, question).await;
    forget();
    [own, duck.ask(question).expect("an answer")]
}

async fn seconds(session: &Session, question: &str) -> f64 {
    let begun = Instant::now();
    drop(session.ask(question).await.expect("an answer"));
    begun.elapsed().as_secs_f64()
}

fn ratio(name: &str, [own, other]: [f64; 2], table: &mut Table) {
    let text = format!("{name}: lwp {own:.3} s, DuckDB {other:.3} s");
    table.number(text, own / other, "times");
}

/// Measures what processes take that answer one join each.
fn joins((store, views): (&Path, &Path), threads: usize, table: &mut Table) {
    table.about("joins of a table with itself, processes of their own");
    for (name, question) in JOINS {
        let (output, own) = children::ended(command(store).args(["sql", question]));
        // A question may need more memory than it gets.
        let error = String::from_utf8_lossy(&output.stderr);
        let how = error.lines().next().map(|line| format!(" ({line})")).unwrap_or_default();
        table.row(format!("lwp: {name}{how}"), own);
        let mut command = duckdb(views, threads);
        command.arg(question);
        table.row(format!("DuckDB: {name}"), children::done(&mut command).1);
    }
}
