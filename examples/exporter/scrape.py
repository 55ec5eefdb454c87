"""Scrapes a public Prometheus exporter once, and prints what it says of GPUs.

    pip install nvitop-exporter
    nvabi rm sim --gpu a100 --gpus 2 -- python3 examples/exporter/scrape.py

The exporter is NVML's user, unmodified: on a machine with a GPU the same command without `nvabi rm sim` works too.
"""

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

PATIENCE = 30


def free_port():
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return own.getsockname()[1]


def scrape(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
    except (urllib.error.URLError, ConnectionError):
        return []
    return [line for line in lines if line.startswith("gpu_")]


def main():
    port = free_port()
    command = [sys.executable, "-m", "nvitop_exporter", "--bind-address", "127.0.0.1", "--port", str(port)]
    exporter = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    end, metrics = time.monotonic() + PATIENCE, []
    # It answers before it has asked the GPUs, one after another: all have been asked when nothing is added.
    while time.monotonic() < end and exporter.poll() is None:
        time.sleep(0.5)
        before, metrics = metrics, scrape(port)
        if metrics and len(metrics) == len(before):
            break
    exporter.terminate()
    told = exporter.communicate()[1]
    print("\n".join(sorted(metrics)))
    return 0 if metrics else f"no metric of a GPU: {told}"


sys.exit(main())
