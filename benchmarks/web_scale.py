"""From one laptop to a web-scale corpus: how long, how many bytes, and what is the bottleneck?

    python benchmarks/web_scale.py                                  # the machines of docs/how-to/web-scale.md
    python benchmarks/web_scale.py --machines 50 --segment-cores 12 --embedders 1 --embed-rate 1_090_000

Nothing is measured here: the rates are arguments, and the defaults are figures of LOG.md and benchmarks/. The pipeline
is simulated chunk by chunk: every machine has cores that split text into words, workers that embed them, and a link to
the storage that takes the bytes of the result; all machines share the storage. A worker that is done before there is
room behind it waits, as Ray Data's tasks do. Times of a chunk vary, and a worker that dies costs the chunk it was at.
So the speed is below that of the slowest step, and by how much depends on the room between the steps. Speeds are those
of the middle half of the simulated time, without the beginning, when all workers start at once, and the end.
"""

from __future__ import annotations

import argparse
import heapq
import random
from dataclasses import dataclass

TRILLION = 10**12
TEXT_BYTES = 5.3  # per word of English, with its space: 3,000,001 bytes are 567,909 words of en-train-0
OTHER_BYTES = 9.3  # per word in the Parquet file beside its vector: the word's number, its levels, the dictionary


@dataclass(frozen=True)
class Step:
    """One step of the pipeline.

    Arguments:
        name: for the table.
        servers: that work side by side.
        seconds: that one takes for a chunk, on average.
        room: chunks that may wait before it.
    """

    name: str
    servers: int
    seconds: float
    room: int


@dataclass(frozen=True)
class Outcome:
    """What a simulation showed: chunks per second, and the shares of time that each step works and waits for room."""

    rate: float
    busy: list[float]
    blocked: list[float]


def simulate(steps: list[Step], *, chunks: int, spread: float, loss: float, seed: int = 1) -> Outcome:
    """Send so many chunks through the steps.

    Arguments:
        steps: from the first to the last.
        chunks: how many.
        spread: of a chunk's time, its standard deviation as a share of the mean.
        loss: probability that a worker dies in the middle of a chunk, which is then done again.
        seed: of the times.
    """
    draw, shape = random.Random(seed), 1 / spread**2 if spread else 0.0
    last = len(steps) - 1
    free, waiting, stuck = [step.servers for step in steps], [0] * len(steps), [0] * len(steps)
    waiting[0] = chunks  # text is there in plenty
    worked, blocked = [0.0] * len(steps), [0.0] * len(steps)
    ends: list[tuple[float, int]] = []  # when somebody is done, and at which step
    departures: list[float] = []
    now = 0.0

    def settle() -> None:
        """Let everybody go on who can, from the last step to the first: room behind appears before it is needed."""
        for place in range(last, -1, -1):
            pull(place)
            while free[place] and waiting[place]:
                waiting[place] -= 1
                free[place] -= 1
                takes = steps[place].seconds * (draw.gammavariate(shape, 1 / shape) if spread else 1.0)
                takes *= 1 + draw.random() if loss and draw.random() < loss else 1
                worked[place] += takes
                heapq.heappush(ends, (now + takes, place))
                pull(place)

    def pull(place: int) -> None:
        """Take over from the step before what has been waiting for room there."""
        while place and stuck[place - 1] and waiting[place] < steps[place].room + free[place]:
            stuck[place - 1] -= 1
            free[place - 1] += 1
            waiting[place] += 1

    settle()
    while ends:
        then, place = heapq.heappop(ends)
        for each in range(last):
            blocked[each] += stuck[each] * (then - now)
        now = then
        if place == last:
            free[place] += 1
            departures.append(now)
        else:
            stuck[place] += 1
            pull(place + 1)
        settle()
    first, final = chunks // 4, 3 * chunks // 4
    rate = (final - first) / (departures[final] - departures[first])
    # Worked and blocked seconds per chunk and, times chunks per second, per second; shared by the servers of the step.
    shares = [
        [rate * seconds / chunks / step.servers for seconds, step in zip(times, steps, strict=True)]
        for times in (worked, blocked)
    ]
    return Outcome(rate, *shares)


@dataclass(frozen=True)
class Plan:
    """Machines, rates and a corpus; rates are words per second of one core, one worker.

    Arguments:
        words: of the corpus.
        machines: how many, all alike.
        segment_cores: of each machine, that split text into words; 0 where the workers that embed do it themselves.
        segment_rate: of one such core.
        embedders: workers that embed, of each machine.
        embed_rate: of one of them.
        dim, layers, bytes_per_number: of what is stored.
        link: bytes per second that one machine can write.
        storage: bytes per second that the storage takes from all of them.
        chunk_words: of one chunk.
        room: chunks that wait between two steps, per machine.
        spread: of the time of a chunk.
        hours_between_deaths: of one worker.
    """

    words: float = TRILLION
    machines: int = 1
    segment_cores: int = 0
    segment_rate: float = 650_000
    embedders: int = 2
    embed_rate: float = 6_370
    dim: int = 256
    layers: int = 1
    bytes_per_number: int = 2
    link: float = 1.25e9
    storage: float = 1e10
    chunk_words: int = 180_000
    room: int = 4
    spread: float = 0.2
    hours_between_deaths: float = 1000.0

    @property
    def bytes_per_word(self) -> float:
        return self.dim * self.layers * self.bytes_per_number + OTHER_BYTES

    def steps(self) -> list[Step]:
        part = self.chunk_words * self.bytes_per_word
        own = 1 / self.embed_rate + (0 if self.segment_cores else 1 / self.segment_rate)
        room = self.room * self.machines
        found = [Step("embed", self.embedders * self.machines, self.chunk_words * own, room)]
        if self.segment_cores:
            cores = self.segment_cores * self.machines
            found.insert(0, Step("segment", cores, self.chunk_words / self.segment_rate, room))
        links = min(self.machines, max(1, int(self.storage // self.link)))  # as many as the storage can serve at once
        return [*found, Step("write", links, part / min(self.link, self.storage), room)]


def describe(plan: Plan, *, chunks: int) -> str:
    """A table of what the simulation of a plan shows, and what the whole corpus takes."""
    steps = plan.steps()
    embed = next(step for step in steps if step.name == "embed")
    loss = embed.seconds / (3600 * plan.hours_between_deaths)
    found = simulate(steps, chunks=max(chunks, 60 * embed.servers), spread=plan.spread, loss=min(1.0, loss))
    speed = found.rate * plan.chunk_words
    hours = plan.words / speed / 3600
    lines = []
    for step, busy, blocked in zip(steps, found.busy, found.blocked, strict=True):
        alone = step.servers * plan.chunk_words / step.seconds
        lines.append(
            f"  {step.name:8} {step.servers:6} side by side, {alone:14,.0f} words/s alone, busy {busy:4.0%}, "
            f"waits for room {blocked:4.0%}"
        )
    slowest = max(zip(found.busy, steps, strict=True), key=lambda pair: pair[0])[1].name
    out, text = plan.words * plan.bytes_per_word, plan.words * TEXT_BYTES
    lines += [
        f"  together {speed:,.0f} words/s: {plan.words:,.0f} words in {hours:,.1f} hours, {hours * plan.machines:,.0f} "
        f"machine hours; bottleneck: {slowest}",
        f"  text {show_bytes(text)}; Parquet {show_bytes(out)} ({plan.bytes_per_word:.0f} bytes per word), "
        f"{show_bytes(speed * plan.bytes_per_word)}/s to the storage",
    ]
    return "\n".join(lines)


def show_bytes(number: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if number < 1000:
            return f"{number:.3g} {unit}"
        number /= 1000
    return f"{number:,.3g} PB"


EXAMPLES = {
    "a laptop: 2 cores, float32": Plan(words=1e9),
    "a laptop: 2 cores, int8": Plan(words=1e9, embed_rate=13_830),
    "100 machines of 32 cores, int8": Plan(machines=100, embedders=32, embed_rate=13_830, storage=2e10),
    "one H200 with 16 cores, bfloat16": Plan(segment_cores=8, embedders=1, embed_rate=1_090_000),
    "the same, 3 layers of width 1024": Plan(segment_cores=8, embedders=1, embed_rate=718_000, dim=1024, layers=3),
    "16 such machines, storage of 10 GB/s": Plan(machines=16, segment_cores=8, embedders=1, embed_rate=1_090_000),
    "64 such machines, storage of 10 GB/s": Plan(machines=64, segment_cores=8, embedders=1, embed_rate=1_090_000),
    "64, storage of 40 GB/s": Plan(machines=64, segment_cores=8, embedders=1, embed_rate=1_090_000, storage=4e10),
    "64, one core each to split text": Plan(
        machines=64, segment_cores=1, segment_rate=300_000, embedders=1, embed_rate=1_090_000, storage=4e10
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=4_000, help="simulated; at least 60 for each worker")
    for name, kind in Plan.__annotations__.items():
        convert = int if kind == "int" else float
        parser.add_argument(f"--{name.replace('_', '-')}", type=lambda text, convert=convert: convert(float(text)))
    given = {name: value for name, value in vars(parser.parse_args()).items() if value is not None}
    chunks = given.pop("chunks")
    for title, plan in ({"as asked": Plan(**given)} if given else EXAMPLES).items():
        print(f"{title}\n{describe(plan, chunks=chunks)}\n")


if __name__ == "__main__":
    main()
