//! What a process on the virtual CPU can do to its host and to its neighbours: no more than without.
#![allow(clippy::print_stderr, reason = "tests say what they skip, and why")]

#[path = "shared/recorded.rs"]
mod recorded;
#[path = "shared/tools.rs"]
mod tools;

use std::path::PathBuf;

use recorded::{LWP, compile, lwp, run};
use tools::text;

fn fresh(name: &str) -> PathBuf {
    tools::fresh("boundaries", name)
}

/// Runs `privileges` in the way `how`; the parent must come to no harm.
fn attacked(how: &str) {
    let dir = fresh(how);
    if !compile(&dir, "privileges.c", &["-O1"]) {
        return;
    }
    for command in ["run", "stat"] {
        let output = run(&dir, &[LWP, command, "--", "./program", how]);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(out, "unharmed\n", "{command}: {err}");
        assert!(output.status.success(), "{command}: {}: {err}", output.status);
    }
}

/// Whether the test may give up privileges, because it has some.
fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("skipped: only root can give up its privileges");
    }
    root
}

#[test]
fn translated_code_is_nobody_s_to_write() {
    if is_root() {
        attacked("code");
    }
}

#[test]
fn translated_code_is_nobody_s_to_throw_away() {
    if is_root() {
        attacked("remove");
    }
}

#[test]
fn other_processes_contexts_are_out_of_reach() {
    if is_root() {
        attacked("mailbox");
    }
    attacked("sandbox");
}

#[test]
fn the_host_s_files_can_neither_be_shortened_nor_written_to() {
    attacked("files");
}

/// What `program` in `dir` retires, by the report of a run that starts with `before` in its shell.
fn counted(dir: &std::path::Path, before: &str) -> String {
    let script = format!("{before} ./neighbour; wait");
    let stat = ["stat", "--per-thread", "-x,", "-e", "instructions", "-o", "counts.csv"];
    let (_, err) = lwp(dir, &[&stat[..], &["--", "sh", "-c", &script]].concat());
    assert!(!err.contains("panicked"), "{err}");
    let counts = std::fs::read_to_string(dir.join("counts.csv")).expect("a report");
    let line = counts.lines().find(|line| line.starts_with("neighbour-")).expect("its line");
    line.split(',').nth(1).expect("a count").to_owned()
}

#[test]
fn forged_requests_end_their_process_and_leave_the_others_alone() {
    let dir = fresh("forge");
    if !compile(&dir, "sorting.c", &["-O1", "-static"]) {
        return;
    }
    std::fs::rename(dir.join("program"), dir.join("neighbour")).expect("rename");
    compile(&dir, "forge.c", &["-O1", "-pthread"]);
    let alone = counted(&dir, "");
    for seed in 1..=3 {
        assert_eq!(counted(&dir, &format!("./program 40 {seed} & ")), alone, "seed {seed}");
    }
}

#[test]
fn a_first_process_that_forges_requests_ends_with_125_and_a_reason() {
    let dir = fresh("first");
    let source = r#"
        #include <stdint.h>
        #include <stdio.h>
        #include <string.h>
        #include <unistd.h>
        int main(void)
        {
            char line[512];
            /* Under another name the file is not recognised. */
            symlink("/proc/self/maps", "true_maps");
            FILE *maps = fopen("true_maps", "r");
            volatile uint64_t *context = 0;
            while (fgets(line, sizeof line, maps))
                if (strstr(line, "memfd:lwp-contexts"))
                    sscanf(line, "%lx", (unsigned long *)&context);
            for (long i = 0; context && i < 1000000000; i++)
                context[0x58 / 8] = 77, *((volatile char *)context + 0xf00) = 1;
            return 3;
        }"#;
    std::fs::write(dir.join("first.c"), source).expect("writable");
    if !tools::has("gcc") {
        return;
    }
    let built = run(&dir, &["gcc", "-O1", "-w", "-o", "program", "first.c"]);
    assert!(built.status.success(), "{}", text(&built.stderr));
    let output = run(&dir, &[LWP, "run", "--", "./program"]);
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{err}");
    assert!(err.contains("it has forged a request to the virtual CPU"), "{err}");
}

#[test]
fn nine_thousand_threads_at_a_time_run() {
    let dir = fresh("many");
    let source = r#"
        #include <pthread.h>
        #include <stdio.h>
        #include <stdlib.h>
        #include <unistd.h>
        static int ran, go;
        static void *thread(void *argument)
        {
            __sync_fetch_and_add(&ran, 1);
            while (!__atomic_load_n(&go, __ATOMIC_SEQ_CST))
                usleep(200000);
            return argument;
        }
        int main(void)
        {
            enum { WANTED = 9000 };
            static pthread_t threads[WANTED];
            pthread_attr_t attributes;
            pthread_attr_init(&attributes);
            pthread_attr_setstacksize(&attributes, 16384);
            int made = 0;
            while (made < WANTED && !pthread_create(&threads[made], &attributes, thread, 0))
                made++;
            __atomic_store_n(&go, 1, __ATOMIC_SEQ_CST);
            for (int i = 0; i < made; i++)
                pthread_join(threads[i], 0);
            printf("%d of %d\n", ran, made);
            return 0;
        }"#;
    std::fs::write(dir.join("many.c"), source).expect("writable");
    if !tools::has("gcc") {
        return;
    }
    let built = run(&dir, &["gcc", "-O1", "-pthread", "-o", "program", "many.c"]);
    assert!(built.status.success(), "{}", text(&built.stderr));
    let native = run(&dir, &["./program"]);
    let virtual_cpu = run(&dir, &[LWP, "run", "--", "./program"]);
    assert_eq!(text(&virtual_cpu.stdout), text(&native.stdout), "{}", text(&virtual_cpu.stderr));
}
