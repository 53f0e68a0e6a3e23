//! The arguments that tell processes of one name apart.
//!
//! Promise: R154

use std::collections::{BTreeMap, BTreeSet};

use crate::profile::Profile;

/// Most characters of the arguments that are shown of a process.
const MOST: usize = 48;

impl Profile {
    /// What processes are shown as: `cc1 a.c` for one of several called `cc1`, by process id and
    /// name. Arguments that all of them have are left out, as are options and temporary files where
    /// there is anything else.
    pub fn process_titles(&self) -> BTreeMap<(i32, String), String> {
        let mut namesakes: BTreeMap<&str, BTreeMap<i32, Vec<&str>>> = BTreeMap::new();
        for thread in &self.threads {
            let key = (thread.pid, thread.comm.clone());
            let command = self.commands.get(&key).map_or("", String::as_str);
            let arguments = command.split_whitespace().skip(1).collect();
            namesakes.entry(&thread.comm).or_default().insert(thread.pid, arguments);
        }
        let mut titles = BTreeMap::new();
        for (comm, processes) in namesakes {
            for (pid, arguments) in &processes {
                let others = processes.iter().filter(|(other, _)| *other != pid);
                let others: Vec<BTreeSet<&str>> =
                    others.map(|(_, all)| all.iter().copied().collect()).collect();
                let title = match others.is_empty() {
                    true => comm.to_owned(),
                    false => titled(comm, &own(arguments, &others)),
                };
                titles.insert((*pid, comm.to_owned()), title);
            }
        }
        titles
    }
}

/// Arguments that not all `others` have, each once.
fn own<'a>(arguments: &[&'a str], others: &[BTreeSet<&str>]) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    let own = arguments.iter().copied().filter(|argument| {
        !others.iter().all(|other| other.contains(argument)) && seen.insert(*argument)
    });
    let own: Vec<&str> = own.collect();
    let telling = |it: &&str| !it.starts_with('-') && !it.starts_with("/tmp/");
    let best: Vec<&str> = own.iter().copied().filter(telling).collect();
    if best.is_empty() { own } else { best }
}

fn titled(comm: &str, arguments: &[&str]) -> String {
    let all = arguments.join(" ");
    let shown: String = all.chars().take(MOST).collect();
    match (all.is_empty(), shown.len() < all.len()) {
        (true, _) => comm.to_owned(),
        (_, true) => format!("{comm} {shown}…"),
        (_, false) => format!("{comm} {shown}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, Mode, Thread};

    #[test]
    fn arguments_tell_processes_of_one_name_apart() {
        let mut builder = Builder::new("", Mode::Exact, Vec::new());
        let long = format!("cc1 -quiet {}", "x".repeat(99));
        let all = [
            (1, "cc1", "/usr/lib/cc1 -quiet a.c -dumpbase a.c -o /tmp/cc1.s"),
            (2, "cc1", "/usr/lib/cc1 -quiet b.c -dumpbase b.c -o /tmp/cc2.s"),
            (3, "cc1", &long),
            (4, "as", "as -o a.o"),
            (5, "sh", "sh -c one"),
            (6, "sh", "sh -e"),
            (7, "sh", ""),
        ];
        for (pid, comm, command) in all {
            builder.thread(Thread { comm: comm.into(), pid, tid: pid });
            builder.command(pid, comm, command);
        }
        let titles: Vec<String> = builder.finish().process_titles().into_values().collect();
        let long = format!("cc1 {}…", "x".repeat(MOST));
        assert_eq!(titles, ["cc1 a.c", "cc1 b.c", &long, "as", "sh one", "sh -e", "sh"]);
    }
}
