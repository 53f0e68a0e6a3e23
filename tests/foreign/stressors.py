#!/usr/bin/env python3
"""The stressors of stress-ng, each alone, natively and on the virtual CPU, with a table and a verdict.

    tests/foreign/stressors.py [-m MODES] [-t SECONDS] [-l SECONDS] [-u USER] [NAME]...

    -m MODES     any of "run stat" (default run)
    -t SECONDS   time that a stressor is given (default 2)
    -l SECONDS   limit of one run, after which it counts as hanging (default 60)
    -u USER      the user to be, where the caller is root (default nobody)
    NAME         stressors (default: all but those that could harm the machine)

LWP_BIN names the lwp to test (default: target/release/lwp beside this folder). Each stressor checks its own results
(--verify). A row differs if the exit status or stress-ng's messages differ, numbers left out, if a run hangs, or if the
stressor makes no progress on the virtual CPU and does natively. What differs is run again both ways, and counts if it
differs in each of three attempts: some stressors fail now and then natively. Speed is shown and is no verdict.
Ends with 1 if anything differs.
"""
import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

# Stressors that could harm the machine or other users of it, or that need it to be as nobody knows.
HARMFUL = """
    bigheap binderfs bind-mount cpu-online cyclic dccp dev efivar fanotify forkheavy gpu hdd icmp-flood idle-page
    ipsec-mb klog kvm loadavg memhotplug module netdev oom-pipe pageswap pci physpage quota ramfs rawdev rawpkt
    rawsock rawudp reboot resources sctp smi softlockup swap tmpfs tun udp-flood umount uprobe vforkmany
    watchdog zombie
""".split()

# Parts of messages that differ from run to run: numbers, and names that stress-ng makes of them.
VARYING = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-f]{8,}\b|[0-9]+([.:][0-9]+)*")

# Messages of stress-ng itself about the run, and rows of measurements.
IGNORED = re.compile(r"passed|failed: |dispatching|successful run|metrc|skipped:|setting to|skipping|info:.*[0-9]  +[0-9]"
                     r"|info:.*  +time ")


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--modes", default="run")
    parser.add_argument("-t", "--time", type=int, default=2)
    parser.add_argument("-l", "--limit", type=int, default=60)
    parser.add_argument("-u", "--user", default="nobody")
    parser.add_argument("-v", "--verbose", action="store_true", help="show all output of what differs")
    parser.add_argument("names", nargs="*")
    return parser.parse_args()


def session(pid):
    """The processes of the session that `pid` leads."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="latin-1") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            if int(fields[3]) == pid:
                yield int(name)
        except (OSError, IndexError):
            continue


def kill_session(pid):
    """Ends whatever is left of the session that `pid` leads."""
    for _ in range(3):
        for each in session(pid):
            try:
                os.kill(each, signal.SIGKILL)
            except ProcessLookupError:
                pass


class Run:
    """One run of a stressor: how it ended, what it said, how much it did."""

    def __init__(self, name, mode, options, work):
        self.name = name
        self.folder = tempfile.mkdtemp(dir=work.folder, prefix=f"{name}.{mode}.")
        os.chmod(self.folder, 0o777)
        yaml = os.path.join(self.folder, "metrics")
        command = ["stress-ng", f"--{name}", "1", "--timeout", str(options.time), "--verify", "--metrics-brief",
                   "--yaml", yaml, "--temp-path", self.folder, "--oomable"]
        command = work.before + work.on(mode) + command
        with open(os.path.join(self.folder, "output"), "w+b") as output:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                                       start_new_session=True, cwd=self.folder, env=work.environment)
            try:
                self.status = process.wait(options.limit)
            except subprocess.TimeoutExpired:
                self.status = "hangs"
            kill_session(process.pid)
            process.wait()
            output.seek(0)
            self.output = output.read().decode(errors="replace")
        self.measure(yaml)
        shutil.rmtree(self.folder, ignore_errors=True)

    def measure(self, yaml):
        """Reads what stress-ng measured."""
        text = ""
        if os.path.exists(yaml):
            with open(yaml, encoding="utf-8", errors="replace") as file:
                text = file.read()
        found = {key: float(value) for key, value in re.findall(r"^ +(bogo-ops|wall-clock-time): ([0-9.]+)$", text, re.M)}
        self.operations = int(found.get("bogo-ops", 0))
        self.rate = self.operations / max(found.get("wall-clock-time", 1.0), 0.001)

    def messages(self):
        """What stress-ng said, without what differs from run to run."""
        lines = set()
        for line in self.output.splitlines():
            if not IGNORED.search(line):
                lines.add(" ".join(VARYING.sub("N", line).split()))
        return lines


class Work:
    """What all runs share: a folder, the command, the user."""

    def __init__(self, options, lwp):
        self.folder = tempfile.mkdtemp(prefix="stressors.")
        os.chmod(self.folder, 0o755)
        self.lwp = shutil.copy(lwp, self.folder)
        home = os.path.join(self.folder, "home")
        os.mkdir(home)
        os.chmod(home, 0o777)
        self.environment = {**os.environ, "HOME": home, "LC_ALL": "C", "XDG_CACHE_HOME": home}
        self.before = []
        if os.getuid() == 0 and options.user != "root":
            self.before = ["setpriv", f"--reuid={options.user}", "--regid=nogroup", "--clear-groups"]

    def on(self, mode):
        """The words before a command that is to run in `mode`."""
        if mode == "native":
            return []
        return [self.lwp, mode] + (["-o", "counts"] if mode == "stat" else []) + ["--"]


def difference(native, virtual):
    """The first difference that counts, or nothing."""
    if virtual.status != native.status:
        return f"ends with {virtual.status}, natively {native.status}"
    if virtual.operations == 0 and native.operations > 0:
        return "no progress"
    extra = virtual.messages() - native.messages()
    return f"says: {sorted(extra)[0]}" if extra else None


def tried(name, mode, options, work):
    """A stressor's row of the table, and whether it differs."""
    for _ in range(3):
        native = Run(name, "native", options, work)
        virtual = Run(name, mode, options, work)
        differs = difference(native, virtual)
        if not differs:
            break
    ratio = f"{native.rate / virtual.rate:8.2f}" if virtual.rate and native.rate else "       –"
    print(f"{name:16} {mode:5} {native.operations:>12,} {virtual.operations:>12,} {ratio}  "
          f"{differs or 'as natively'}", flush=True)
    if differs and options.verbose:
        print("".join(f"    native  {line}\n" for line in native.output.splitlines()), end="")
        print("".join(f"    {mode:7} {line}\n" for line in virtual.output.splitlines()), end="", flush=True)
    return differs


def main():
    """Runs what the command line names."""
    options = arguments()
    here = os.path.dirname(os.path.abspath(__file__))
    lwp = os.environ.get("LWP_BIN", os.path.join(here, "../../target/release/lwp"))
    if not os.access(lwp, os.X_OK):
        sys.exit(f"stressors: no lwp at {lwp}; set LWP_BIN")
    if not shutil.which("stress-ng"):
        print("skipped: no stress-ng")
        return 0
    known = subprocess.run(["stress-ng", "--stressors"], capture_output=True, text=True, check=True).stdout.split()
    names = options.names or [name for name in known if name not in HARMFUL]
    work = Work(options, lwp)
    failed = 0
    print(f"{'stressor':16} {'mode':5} {'natively':>12} {'virtual CPU':>12}    ratio  verdict")
    try:
        for name in names:
            for mode in options.modes.split():
                failed += bool(tried(name, mode, options, work))
    finally:
        shutil.rmtree(work.folder, ignore_errors=True)
    print(f"{len(names)} stressors, {failed} differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
