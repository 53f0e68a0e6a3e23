//! Clients that send queries which never end, while others ask for the server's health, a page and
//! post recordings.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::hostile_queries::{HOSTILE, query};
use crate::model;
use crate::serving::{Served, command};
use crate::table::Table;

/// Clients.
const CLIENTS: usize = 100;
/// Tokens that they have: each opens one query at a time.
const TOKENS: usize = 10;
/// The time that a client waits before it sends the next query: less than the server asks for.
const PAUSE: Duration = Duration::from_millis(100);
/// The time between two health checks.
const BETWEEN: Duration = Duration::from_millis(20);

/// Queries of the store's own tables; each has as many rows as the square of a table.
const OWN: [(&str, &str); 2] = [
    ("functions", "select count(*) from functions a join functions b on a.host = b.host"),
    ("lines", "select a.line, count(*) from lines a, lines b group by 1 order by 2"),
];

/// The answers to one kind of request.
#[derive(Default)]
struct Answers {
    statuses: BTreeMap<u16, usize>,
    times: Vec<Duration>,
}

impl Answers {
    fn add(&mut self, status: u16, time: Duration) {
        *self.statuses.entry(status).or_default() += 1;
        self.times.push(time);
    }

    /// Asks again and again until `over`.
    fn collect(over: &AtomicBool, pause: Duration, mut ask: impl FnMut(u64) -> u16) -> Self {
        let mut all = Self::default();
        for n in 0.. {
            if over.load(Ordering::Relaxed) {
                break;
            }
            let begun = Instant::now();
            let status = ask(n);
            all.add(status, begun.elapsed());
            std::thread::sleep(pause);
        }
        all
    }

    fn join(mut self, other: Self) -> Self {
        for (status, many) in other.statuses {
            *self.statuses.entry(status).or_default() += many;
        }
        self.times.extend(other.times);
        self
    }

    /// The time within which a part of the requests was answered.
    fn within(&mut self, part: f64) -> f64 {
        self.times.sort_unstable();
        let at = (self.times.len() as f64 * part).ceil() as usize;
        self.times.get(at.saturating_sub(1)).map_or(0.0, Duration::as_secs_f64)
    }

    fn show(mut self, what: &str, table: &mut Table) {
        let many = self.times.len();
        let statuses: Vec<String> =
            self.statuses.iter().map(|(status, many)| format!("{status}: {many}")).collect();
        let statuses = statuses.join(", ");
        for (name, part) in [("half", 0.5), ("99 %", 0.99), ("all", 1.0)] {
            let seconds = 1000.0 * self.within(part);
            table.number(format!("{what} ({statuses}), {name} of {many} within"), seconds, "ms");
        }
    }
}

/// Measures how a server of the store at `path` answers during so many seconds of hostile queries.
///
/// # Panics
///
/// If the server blames itself for a query (status 500), or refuses health checks or recordings.
pub fn measure(path: &Path, seconds: u64, table: &mut Table) {
    let token = |name: &str, scopes: &[&str]| {
        let scopes = scopes.iter().flat_map(|scope| ["--scope", scope]);
        let mut add = command(path);
        let added = add.args(["token", "add", name]).args(scopes).output().expect("a token");
        assert!(added.status.success(), "{added:?}");
        String::from_utf8(added.stdout).expect("text").trim().to_owned()
    };
    let friend = token("friend", &["read", "write"]);
    let tokens: Vec<String> = (0..TOKENS).map(|n| token(&format!("n{n}"), &["read"])).collect();
    let queries: Vec<String> = HOSTILE.iter().chain(&OWN).map(|(_, text)| query(text)).collect();
    let server = Served::start(path);
    let over = AtomicBool::new(false);
    let (server, over, queries) = (&server, &over, &queries);
    let hostile = |client: usize| {
        let token = &tokens[client % TOKENS];
        move || {
            Answers::collect(over, PAUSE, |n| {
                let query = &queries[(client + n as usize) % queries.len()];
                server.request(token, ("POST", "/v1/sql"), query.as_bytes())
            })
        }
    };
    let (asked, healthy, posted, shown) = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|client| scope.spawn(hostile(client))).collect();
        let healthy = scope.spawn(|| {
            Answers::collect(over, BETWEEN, |_| server.request("", ("GET", "/healthz"), b""))
        });
        let posted = scope.spawn(|| {
            Answers::collect(over, PAUSE, |n| {
                // Others than the store has, without the changes of a million commits.
                let mut facts = model::facts(n % model::BENCHMARKS, 0);
                facts.run.commit = model::commit(1_000_000 + n);
                facts.run.started += 1 + n as i64;
                let facts = facts.write();
                server.request(&friend, ("POST", "/v1/recordings"), facts.as_bytes())
            })
        });
        let shown = scope.spawn(|| {
            Answers::collect(over, PAUSE, |_| server.request(&friend, ("GET", "/benchmarks"), b""))
        });
        std::thread::sleep(Duration::from_secs(seconds));
        over.store(true, Ordering::Relaxed);
        let all = |clients: Vec<std::thread::ScopedJoinHandle<'_, Answers>>| {
            let answers = clients.into_iter().map(|client| client.join().expect("a client"));
            answers.fold(Answers::default(), Answers::join)
        };
        (all(clients), all(vec![healthy]), all(vec![posted]), all(vec![shown]))
    });
    assert!(!asked.statuses.contains_key(&500), "{:?}", asked.statuses);
    assert!(healthy.statuses.keys().eq([&200]), "{:?}", healthy.statuses);
    assert!(posted.statuses.keys().all(|status| status / 100 == 2), "{:?}", posted.statuses);
    table.about(format_args!("{CLIENTS} clients with hostile queries for {seconds} s"));
    asked.show("hostile queries", table);
    healthy.show("health checks", table);
    posted.show("recordings", table);
    shown.show("page of benchmarks", table);
    table.number("the server's memory at most", server.peak(), "MiB");
}
