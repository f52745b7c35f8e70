# SPDX-License-Identifier: Apache-2.0
"""Runs of kernels on the virtual GPU, with what each unit did when: `imbrex trace`, read back."""
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


class Event:
    """A stretch of a lane: a warp running or waiting, a copy in flight, an instruction of the tensor core, ..."""

    def __init__(self, lane, cta, raw, ghz):
        self.lane, self.cta, self.kind = lane, cta, raw["name"]
        self.start = raw["ts"] * ghz * 1000
        self.cycles = raw["args"]["cycles"]
        self.end = self.start + self.cycles
        self.what = raw["args"].get("what", "")
        self.line = raw["args"]["source"].rsplit(":", 1)[-1]

    @property
    def box(self):
        """Extents, innermost first, and place of a copy's box."""
        found = re.search(r"box of ([\dx]+) elements at \{([-\d, ]+)\}", self.what)
        return [int(n) for n in found[1].split("x")], [int(n) for n in found[2].split(",")]

    @property
    def nbytes(self):
        extents, _ = self.box
        return extents[0] * extents[1] * 2  # float16

    @property
    def column(self):
        return int(re.search(r"tensor memory column (\d+)", self.what)[1])


class Run:
    def __init__(self, imbrex, kernel, config, m, n, k, *options):
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            command = [imbrex, "trace", kernel, "--config", config, "--m", m, "--n", n, "--k", k, "-o", file.name]
            done = subprocess.run([str(word) for word in command + list(options)], cwd=ROOT, capture_output=True, text=True)
            if done.returncode != 0:
                sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
            data = json.load(open(file.name))
        self.cycles = data["otherData"]["cycles"]
        raw = data["traceEvents"]
        lanes = {(e["pid"], e["tid"]): e["args"]["name"] for e in raw if e["name"] == "thread_name"}
        ctas = {e["pid"]: int(e["args"]["name"].split()[-1]) for e in raw if e["name"] == "process_name"}
        self.events = [Event(lanes[e["pid"], e["tid"]], ctas[e["pid"]], e, data["otherData"]["clock_ghz"])
                       for e in raw if e["ph"] == "X"]
        self.events.sort(key=lambda e: (e.start, e.end))

    def of(self, *kinds, lane="", cta=0):
        return [e for e in self.events if e.kind in kinds and e.lane.startswith(lane) and e.cta == cta]

    def lanes(self, text, cta=0):
        """Names of lanes that contain the text, in the order in which they are first used."""
        return list(dict.fromkeys(e.lane for e in self.events if text in e.lane and e.cta == cta))


def merged(events, gap=0):
    """Stretches in which at least one of the events is under way."""
    stretches = []
    for e in sorted(events, key=lambda e: e.start):
        if stretches and e.start <= stretches[-1][1] + gap:
            stretches[-1][1] = max(stretches[-1][1], e.end)
        else:
            stretches.append([e.start, e.end])
    return stretches


def steps_of_k(run, cta=0):
    """Products by the step of k they belong to: (start, end) of each group between two commits."""
    products = run.of("matrix", cta=cta)
    per_step = 4  # block_k = 64 of 16 per instruction
    return [(products[i].start, products[i + per_step - 1].end) for i in range(0, len(products), per_step)]


class OneSm:
    """What the SM does that starts with CTA 0: CTA after CTA, each from the trace of the same run."""

    def __init__(self, last, *run):
        self.events, self.cycles, end, cta = [], 0, 0, 0
        while end < last:
            one = Run(*run, "--cta", cta)
            events = [e for e in one.events if e.cta == cta]
            if events[0].start >= end:
                self.events += events
                self.cycles, end = one.cycles, max(e.end for e in events)
            cta += 1

    def of(self, *kinds):
        return [e for e in self.events if e.kind in kinds]
