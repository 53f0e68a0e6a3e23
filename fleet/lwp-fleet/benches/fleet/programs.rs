//! What commands take, each as a process of its own.

use std::path::Path;

use crate::children;
use crate::measure::Taken;
use crate::model;
use crate::serving::command;
use crate::table::Table;

/// Adds so many recordings with one command, to a store of their own.
pub fn add(dir: &Path, many: u64, table: &mut Table) {
    let store = dir.join("added");
    children::done(command(&store).arg("init"));
    let mut files = Vec::new();
    for n in 0..many {
        let file = dir.join(format!("{n}.facts"));
        let facts = model::facts(n % model::BENCHMARKS, n / model::BENCHMARKS);
        std::fs::write(&file, facts.write()).expect("a file");
        files.push(file);
    }
    let (_, taken) = children::done(command(&store).arg("add").args(&files));
    table.row(format!("lwp fleet add, {many} files of facts"), taken);
    table.number("recordings a second", many as f64 / taken.wall_seconds, "");
    for file in files {
        std::fs::remove_file(file).expect("removed");
    }
}

/// Compacts a store.
pub fn compact(store: &Path) -> Taken {
    children::done(command(store).arg("compact")).1
}
