"""Between a client and what it starts: keeps the bytes of both directions. tap.py FILE COMMAND..."""

import os
import signal
import subprocess
import sys
import threading

child = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def end(*_):
    """A server that goes on after the end of its input is ended by its client's signal."""
    child.terminate()
    os._exit(child.wait())


signal.signal(signal.SIGTERM, end)


def pass_on(source, sink, name):
    with open(f"{sys.argv[1]}.{name}", "wb", buffering=0) as kept:
        for line in iter(source.readline, b""):
            kept.write(line)
            sink.write(line)
            sink.flush()
    sink.close()


down = threading.Thread(target=pass_on, args=(child.stdout, sys.stdout.buffer, "down"))
down.start()
pass_on(sys.stdin.buffer, child.stdin, "up")
down.join()
sys.exit(child.wait())
