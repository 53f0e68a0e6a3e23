# Promise: R57
"""Plays the steps of action.yml without GitHub: a push makes the baseline, then changes are compared with it.

    python3 play.py DIST

DIST holds a release, as `cargo xtask dist` makes it. The steps' own commands are run as they stand, in a shell, with
the files and variables that a runner gives them; the cache is a directory, `gh` writes down what it is asked for.
Needs PyYAML and a C compiler.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())

GH = """#!/bin/sh
printf '%s\\n' "$*" >> "$GH_LOG"
if [ "$GH_TOKEN" = "$GH_REFUSES" ]; then
    echo "gh: Resource not accessible by integration (HTTP 403)" >&2
    exit 1
fi
case "$*" in *--paginate*) cat "$GH_COMMENTS" 2>/dev/null || true ;; esac
"""

SOURCE = """#include <stdlib.h>
static volatile long sum;
__attribute__((noinline)) void parse(long n) { while (n--) sum += n; }
int main(int argc, char **argv) { parse(FACTOR * atol(argv[1])); return 0; }
"""


class Run:
    """One run of a workflow with the action as a step."""

    def __init__(self, place, cache, github, inputs):
        self.place, self.cache, self.github = place, cache, github
        defaults = {name: field.get("default", "") for name, field in ACTION["inputs"].items()}
        self.inputs = {name: self.filled(str(value)) for name, value in {**defaults, **inputs}.items()}
        self.outputs, self.path, self.log, self.code = {}, [], "", 0

    def value(self, expression):
        """What an expression of a workflow stands for."""
        def named(match):
            path = match.group(0)
            table = {"inputs": getattr(self, "inputs", {}), "github": self.github}
            first, *rest = path.split(".")
            if first == "steps":
                return repr(self.outputs.get(rest[0], {}).get(rest[2], ""))
            value = table[first]
            for key in rest:
                value = value.get(key, "") if isinstance(value, dict) else ""
            return repr(value)

        python = re.sub(r"\b(?:inputs|github|steps)(?:\.[\w-]+)+", named, expression)
        return eval(python.replace("&&", " and ").replace("||", " or "), {"__builtins__": {}})

    def filled(self, text):
        return re.sub(r"\$\{\{(.*?)\}\}", lambda match: str(self.value(match.group(1).strip())), text)

    def play(self):
        for step in ACTION["runs"]["steps"]:
            condition = step.get("if", "true").removeprefix("${{").removesuffix("}}").strip()
            if condition != "true" and not self.value(condition):
                continue
            if "uses" in step:
                self.use(step["uses"].split("@")[0], {k: self.filled(str(v)) for k, v in step["with"].items()})
            elif not self.shell(step):
                if not step.get("continue-on-error"):
                    return self
                self.code = 0
        return self

    def use(self, name, given):
        if name == "actions/cache/restore":
            entries = sorted(self.cache.iterdir(), key=lambda entry: entry.stat().st_mtime, reverse=True)
            found = [entry for entry in entries if entry.name.startswith(given["restore-keys"])]
            if found:
                shutil.copytree(found[0], self.place / given["path"], dirs_exist_ok=True)
        elif name == "actions/cache/save":
            shutil.copytree(self.place / given["path"], self.cache / given["key"])
        elif name == "actions/upload-artifact":
            missing = [path for path in given["path"].split() if not (self.place / path).exists()]
            assert not missing, missing
        else:
            raise AssertionError(f"nobody plays {name}")

    def shell(self, step):
        files = {name: self.place / f".{name}" for name in ("GITHUB_OUTPUT", "GITHUB_PATH", "GITHUB_STEP_SUMMARY")}
        for file in files.values():
            file.write_text("")
        given = {name: self.filled(str(value)) for name, value in step.get("env", {}).items()}
        environment = {
            **os.environ, **given, **{name: str(file) for name, file in files.items()},
            "GITHUB_ACTION_PATH": str(ROOT), "GITHUB_WORKSPACE": str(self.place),
            "RUNNER_TEMP": str(self.place / "temp"), "GH_LOG": str(self.place / "gh.log"),
            "GH_COMMENTS": str(self.place / "comments"), "GH_REFUSES": "read-only",
            "PATH": ":".join([*self.path, str(self.place / "tools"), os.environ["PATH"]]),
        }
        (self.place / "temp").mkdir(exist_ok=True)
        where = self.place / self.filled(step.get("working-directory", "."))
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", self.filled(step["run"])],
            cwd=where, env=environment, capture_output=True, text=True, timeout=300,
        )
        self.log += done.stdout + done.stderr
        self.code = done.returncode
        self.path = files["GITHUB_PATH"].read_text().split() + self.path
        pairs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
        self.outputs[step.get("id", step["name"])] = {**pairs}
        return self.code == 0


def checkout(work, name, factor):
    """A fresh workspace with the program built."""
    place = work / name
    (place / "tools").mkdir(parents=True)
    gh = place / "tools/gh"
    gh.write_text(GH)
    gh.chmod(0o755)
    (place / "work.c").write_text(SOURCE.replace("FACTOR", str(factor)))
    subprocess.run(["cc", "-g", "-O1", "-o", "work", str(place / "work.c")], cwd=place, check=True)
    return place


def main():
    dist = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        cache = work / "cache"
        cache.mkdir()
        inputs = {
            "benchmarks": "small: ./work 100\n\nbig/one: ./work '10000'\n",
            "limits": "instructions=+1%\n",
            "from": str(dist),
        }
        common = {"server_url": "https://github.com", "repository": "o/r", "token": "secret"}

        def run(name, factor, number, comments="", more={}, **github):
            place = checkout(work, name, factor)
            (place / "comments").write_text(comments)
            facts = {**common, "run_id": str(number), "workspace": str(place), "base_ref": "", **github}
            return Run(place, cache, facts, {**inputs, **more}).play()

        push = {"event_name": "push", "ref_name": "main"}
        change = {"event_name": "pull_request", "ref_name": "7/merge", "base_ref": "main", "event": {"number": 7}}

        first = run("first", 1, 1, **push)
        assert first.code == 0, first.log
        assert "there was no baseline" in first.log, first.log
        assert (cache / "lwp-baseline-main-1/big/one.data").exists()

        same = run("same", 1, 2, **change)
        assert same.code == 0, same.log
        assert same.outputs["gate"]["passed"] == "true" and "there was no baseline" not in same.log, same.log
        assert len(list(cache.iterdir())) == 1, "a change is no baseline"

        more = run("more", 2, 3, comments="42\n", **change)
        assert more.code == 3, (more.code, more.log)
        assert re.search(r"::warning file=work\.c,line=3,title=lwp gate::big/one: parse", more.log), more.log
        comment = (more.place / ".lwp-gate/comment.md").read_text()
        assert comment.startswith("<!-- lwp gate -->\n### 2 benchmarks: limits exceeded"), comment
        assert "actions/runs/3" in comment, comment
        asked = (more.place / "gh.log").read_text()
        assert "--method PATCH repos/o/r/issues/comments/42" in asked, asked
        assert "--method POST repos/o/r/issues/7/comments" in (same.place / "gh.log").read_text()
        sarif = json.loads((more.place / ".lwp-gate/lwp.sarif").read_text())
        assert [it["partialFingerprints"] for it in sarif["runs"][0]["results"]] == [
            {"lwpLimit/v1": "big/one/instructions"}
        ], "what is small in both has grown by less than a per cent"
        assert (more.place / ".lwp-gate/flamegraphs/big/one.svg").exists()

        # A pull request from a fork has a token that may only read: the verdict is the same.
        for number, factor in [(8, 1), (9, 2)]:
            fork = run(f"fork-{number}", factor, number, **{**change, "token": "read-only"})
            assert fork.code == (3 if factor == 2 else 0), (fork.code, fork.log)
            assert "::warning title=lwp gate::no comment was written" in fork.log, fork.log
            assert "HTTP 403" in fork.log, fork.log
        assert "title=lwp gate::big/one: parse" in fork.log, fork.log

        merged = run("merged", 2, 4, **push)
        assert merged.code == 3, "a branch that grew says so once"
        after = run("after", 2, 5, **change)
        assert after.code == 0, after.log

        # A fleet that has no token here, or does not answer, costs no verdict.
        for number, token, factor in [(6, "", 2), (7, "lwpf_0", 4)]:
            fleet = {"fleet": "http://127.0.0.1:9", "fleet-token": token}
            lost = run(f"lost-{number}", factor, number, more=fleet, **change)
            assert "::warning title=lwp fleet::nothing was sent" in lost.log, lost.log
            assert lost.code == (3 if factor == 4 else 0), (lost.code, lost.log)
            assert "issues/7/comments" in (lost.place / "gh.log").read_text()
    print("ok: nine runs of the action")


if __name__ == "__main__":
    main()
