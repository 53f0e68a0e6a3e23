#!/usr/bin/env python3
"""Measures servers of others: requests a second natively and on the virtual CPU.

    tests/foreign/servers.py [--rounds N] [--seconds N] [--warm-up SECONDS] [--modes LIST]
                             [--results FILE] [NAME]...

NAME is redis, redis-pipelined, postgres-select, postgres-write, nginx-small, nginx-large, node or java; default: all
whose tools are installed. MODES are any of run,stat (default: both).

A server runs natively and in each mode at the same time, and clients, which are native, load one after the other, each
for so many seconds a round. What else the machine does thus meets all modes alike. A table is printed with the medians
of the rounds: throughput to native, and the processor time that the server and its host take for a request, in times
the native one's. FILE takes every round's figures as JSON.

LWP_BIN names the lwp to measure (default: target/release/lwp above this folder).
"""

import argparse
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
LWP = os.path.realpath(os.environ.get("LWP_BIN", HERE / "../../target/release/lwp"))
TICKS = os.sysconf("SC_CLK_TCK")
# A server has started, a command has ended, after so many seconds, or there is something wrong.
LIMIT = 120

HTTP = """
const http = require('http');
http.createServer((q, r) => r.end('hello ' + JSON.stringify({a: 1, b: [1, 2, 3]}))).listen(+process.argv[2], '127.0.0.1');
"""
NGINX = """
worker_processes 1; daemon off; pid nginx.pid; error_log error.log;
events { worker_connections 256; }
http { access_log off; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u;
  scgi_temp_path s; server { listen 127.0.0.1:%d; root html; } }
"""


def tool(name):
    """The path of a program, which may lie where only root looks, or where Debian keeps PostgreSQL's."""
    path = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin")
    versions = sorted(pathlib.Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return path or (str(versions[-1]) if versions else None)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def unprivileged():
    """The words in front of a command that root must not run."""
    return ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.geteuid() == 0 else []


def output(command):
    """What a client prints; the programs' locale is C."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]} ends with {done.returncode}: {done.stderr.strip()[-300:]}")
    return done.stdout


class Server:
    """A server under one mode, in a folder and a session of its own."""

    needs: list[str] = []
    # A server whose code is compiled while it serves is warmed up for so many seconds at least.
    warms_up = 0

    def __init__(self, mode, place):
        self.mode, self.place, self.port = mode, place, free_port()
        place.mkdir(mode=0o755)
        words = [] if mode == "native" else [LWP, mode, *(["-o", str(place / "counts")] if mode == "stat" else []), "--"]
        self.prepare()
        with open(place / "log", "wb") as log:
            self.process = subprocess.Popen(words + self.command(), cwd=place, stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, start_new_session=True)
        self.wait()

    def prepare(self):
        """What must be there before the server starts."""

    def command(self):
        raise NotImplementedError

    def load(self, seconds):
        """Loads the server for that long, more or less; returns requests and seconds."""
        raise NotImplementedError

    def wait(self):
        end = time.monotonic() + LIMIT
        while time.monotonic() < end and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self.ready()
            except OSError:
                time.sleep(0.05)
        text = (self.place / "log").read_text(errors="replace")[-500:]
        self.end()
        raise RuntimeError(f"{self.command()[0]} does not start under {self.mode}: {text}")

    def ready(self):
        """What is to be done once the server answers."""

    def processor_time(self):
        """Seconds that the server, its host, and all that descends from them have taken, dead or alive."""
        time.sleep(0.3)  # what serves a client ends behind it
        parents, ticks = {}, {}
        for entry in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = entry.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.parent.name)] = int(fields[1])
            ticks[int(entry.parent.name)] = sum(int(field) for field in fields[11:15])
        ours = {self.process.pid}
        while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
            ours |= more
        return sum(ticks.get(pid, 0) for pid in ours) / TICKS

    def end(self):
        """Ends the server, and whatever it has left in its group."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


class Redis(Server):
    needs = ["redis-server", "redis-benchmark"]
    pipeline = 1
    requests = 20_000

    def command(self):
        return [tool("redis-server"), "--port", str(self.port), "--save", "", "--appendonly", "no"]

    def load(self, seconds):
        command = [tool("redis-benchmark"), "-p", str(self.port), "-c", "50", "-P", str(self.pipeline), "-n",
                   str(self.requests), "-t", "set,get", "--csv"]
        begin, done = time.monotonic(), 0
        while time.monotonic() < begin + seconds:
            output(command)
            done += 2 * self.requests
        return done, time.monotonic() - begin


class RedisPipelined(Redis):
    pipeline = 16
    requests = 200_000


class Postgres(Server):
    needs = ["initdb", "postgres", "pgbench"]
    script = ["-S"]

    def prepare(self):
        if unprivileged():
            shutil.chown(self.place, "nobody", "nogroup")
        done = subprocess.run(unprivileged() + [tool("initdb"), "-D", "data", "-A", "trust", "-U", "tester", "--no-sync"],
                              cwd=self.place, capture_output=True, text=True, timeout=LIMIT, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)

    def command(self):
        return unprivileged() + [tool("postgres"), "-D", "data", "-p", str(self.port), "-k", str(self.place), "-c", "fsync=off",
                                 "-c", "autovacuum=off"]

    def ready(self):
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            if subprocess.run([tool("pg_isready"), "-q", *self.to()[:4]], timeout=LIMIT, check=False).returncode == 0:
                break
            time.sleep(0.1)
        output([tool("pgbench"), *self.to(), "-q", "-i", "-s", "2", "postgres"])

    def to(self):
        return ["-h", "127.0.0.1", "-p", str(self.port), "-U", "tester"]

    def load(self, seconds):
        text = output([tool("pgbench"), *self.to(), *self.script, "-n", "-c", "4", "-j", "1", "-T", str(seconds), "postgres"])
        done = int(re.search(r"actually processed: (\d+)", text)[1])
        return done, done / float(re.search(r"tps = ([\d.]+)", text)[1])


class PostgresWrite(Postgres):
    script = []


class Http(Server):
    """A server that wrk loads."""

    path = ""

    def load(self, seconds):
        text = output([tool("wrk"), "-t", "1", "-c", "32", "-d", f"{seconds}s", "--timeout", f"{LIMIT}s",
                       f"http://127.0.0.1:{self.port}/{self.path}"])
        if "Non-2xx" in text or "Socket errors" in text:
            raise RuntimeError(text)
        done, took = re.search(r"(\d+) requests in ([\d.]+)s", text).groups()
        return int(done), float(took)


class Nginx(Http):
    needs = ["nginx", "wrk"]
    path = "small"

    def prepare(self):
        (self.place / "html").mkdir()
        (self.place / "html/small").write_bytes(b"small\n" * 20)
        (self.place / "html/large").write_bytes(b"x" * 300_000)
        (self.place / "conf").write_text(NGINX % self.port)

    def command(self):
        return [tool("nginx"), "-p", str(self.place), "-c", "conf"]


class NginxLarge(Nginx):
    path = "large"


class Node(Http):
    needs = ["node", "wrk"]

    def prepare(self):
        (self.place / "http.js").write_text(HTTP)

    def command(self):
        return [tool("node"), "http.js", str(self.port)]


class Java(Http):
    needs = ["javac", "java", "wrk"]
    warms_up = 30

    def prepare(self):
        output([tool("javac"), "-d", str(self.place), str(HERE / "Hello.java")])

    def command(self):
        # Without the property, each answer waits for the client's delayed acknowledgement.
        return [tool("java"), "-Dsun.net.httpserver.nodelay=true", "-cp", str(self.place), "Hello", str(self.port)]


SERVERS = {"redis": Redis, "redis-pipelined": RedisPipelined, "postgres-select": Postgres, "postgres-write": PostgresWrite,
           "nginx-small": Nginx, "nginx-large": NginxLarge, "node": Node, "java": Java}


def measure(name, modes, options, place):
    """A list of rounds: by mode, the requests a second and the seconds of processor time a request."""
    servers, rounds = {}, []
    try:
        for mode in modes:
            servers[mode] = SERVERS[name](mode, place / f"{name}.{mode}")
        for server in servers.values():
            server.load(max(options.warm_up, server.warms_up))
        for number in range(options.rounds):
            figures = {}
            for mode in modes[number % len(modes):] + modes[:number % len(modes)]:
                before = servers[mode].processor_time()
                done, seconds = servers[mode].load(options.seconds)
                spent = servers[mode].processor_time() - before
                figures[mode] = {"per_second": done / seconds, "processor_seconds": spent / done}
            rounds.append(figures)
    finally:
        for server in servers.values():
            server.end()
    return rounds


def ratios(rounds, mode, figure):
    return [one[mode][figure] / one["native"][figure] for one in rounds]


def row(name, rounds, modes):
    cells = [name, f"{statistics.median(one['native']['per_second'] for one in rounds):,.0f}/s"]
    for figure, sign in (("per_second", ""), ("processor_seconds", "×")):
        for mode in modes:
            all_of = ratios(rounds, mode, figure)
            cells.append(f"{statistics.median(all_of):.2f}{sign} ({min(all_of):.2f} to {max(all_of):.2f})")
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--warm-up", type=int, default=6, metavar="SECONDS")
    parser.add_argument("--modes", default="run,stat")
    parser.add_argument("--results", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME")
    options = parser.parse_args()
    os.environ["LC_ALL"] = "C"
    modes = options.modes.split(",")
    unknown = [name for name in options.names if name not in SERVERS] + [mode for mode in modes if mode not in ("run", "stat")]
    if unknown or not os.access(LWP, os.X_OK):
        parser.error(f"no server or mode {unknown[0]}" if unknown else f"no lwp at {LWP}: set LWP_BIN")
    place = pathlib.Path(tempfile.mkdtemp(prefix="servers-"))
    place.chmod(0o755)
    results, failed = {}, False
    print("| server | native | " + " | ".join(f"{what} {mode}" for what in ("throughput,", "time,") for mode in modes) + " |")
    try:
        for name in options.names or SERVERS:
            missing = [need for need in SERVERS[name].needs if not tool(need)]
            if missing:
                print(f"{name}: skipped: no {missing[0]}", file=sys.stderr)
                continue
            try:
                results[name] = measure(name, ["native", *modes], options, place)
                print(row(name, results[name], modes), flush=True)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                print(f"{name}: {error}", file=sys.stderr)
                failed = True
    finally:
        shutil.rmtree(place, ignore_errors=True)
    if options.results:
        about = {"machine": platform.processor() or platform.machine(), "processors": os.cpu_count(),
                 "load": os.getloadavg(), "seconds": options.seconds, "servers": results}
        options.results.write_text(json.dumps(about, indent=1) + "\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
