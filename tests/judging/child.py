"""A judging run in a child process that dies at a named point.

`FAILPOINT=name:count` kills the process by SIGKILL when the point is reached for the count-th
time. The points are wrapped around the product from outside: it knows nothing of them.
"""

import asyncio
import os
import signal
import sqlite3
import sys
from pathlib import Path

from judging.fault_server import QuickClock, jobs, plan, route_to
from paiq import files
from paiq.errors import ConfigError
from paiq.judging import judge as judging
from paiq.judging import ledger, ledger_files, lock, runner, sender
from paiq.judging.journal import Journal
from paiq.judging.ledger_state import Book
from paiq.judging.runner import Options


class Fuse:
    """Burns at the count-th arrival at one point; the others are free."""

    def __init__(self, text):
        self.name, _, count = (text or "none:1").partition(":")
        self.left = int(count)

    def reach(self, name):
        if name == self.name:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def around(fuse, owner, attribute, name):
    """Points `name.before` and `name.after` around one function."""
    original = getattr(owner, attribute)
    if asyncio.iscoroutinefunction(original):

        async def wrapped(*args, **kwargs):
            fuse.reach(f"{name}.before")
            result = await original(*args, **kwargs)
            fuse.reach(f"{name}.after")
            return result

    else:

        def wrapped(*args, **kwargs):
            fuse.reach(f"{name}.before")
            result = original(*args, **kwargs)
            fuse.reach(f"{name}.after")
            return result

    setattr(owner, attribute, wrapped)


POINTS = {
    "open": (judging, "opening"),
    "ledger": (judging.Ledger, "__init__"),
    "append": (judging.Ledger, "append"),
    "journal": (Journal, "append"),
    "book": (Book, "add"),
    "note": (lock.Lock, "note"),
    "send": (sender.Sender, "send"),
    "wire": (sender.Sender, "_exchange"),
    "classify": (runner, "classify"),
    "record": (runner.entries, "outcome"),
    "launch": (runner.Runner, "_launch"),
    "back": (runner.Runner, "_put_back"),
    "publish": (judging, "publish"),
    "write": (files.os, "fsync"),
    "rename": (Path, "replace"),
    "folder": (files, "sync_folder"),
    "close": (judging.Ledger, "close"),
}
STATEMENTS = ("BEGIN", "INSERT", "COMMIT", "CREATE")


def connection_class(fuse):
    class Connection(sqlite3.Connection):
        def execute(self, sql, *args):
            return self._at(sql, lambda: super(Connection, self).execute(sql, *args))

        def executemany(self, sql, *args):
            return self._at(sql, lambda: super(Connection, self).executemany(sql, *args))

        def executescript(self, sql):
            return self._at("CREATE", lambda: super(Connection, self).executescript(sql))

        def _at(self, sql, work):
            word = sql.split()[0]
            fuse.reach(f"{word}.before")
            result = work()
            fuse.reach(f"{word}.after")
            return result

    return Connection


def arm(fuse):
    for name, (owner, attribute) in POINTS.items():
        around(fuse, owner, attribute, name)
    connect = sqlite3.connect

    def watched(path, **settings):
        return connect(path, factory=connection_class(fuse), **settings)

    ledger.sqlite3.connect = watched
    assert ledger_files.connect is ledger.connect


def main(folder, url, count, options):
    """Runs to the end and exits with the code of the command."""
    arm(Fuse(options.get("failpoint")))
    route = route_to(url, **options.get("route", {}))
    wanted = plan(Path(folder), route, jobs(count))
    try:
        summary = judging.judge(wanted, options=Options(patience=1e6), clock=QuickClock())
    except ConfigError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(summary.exit_code)
