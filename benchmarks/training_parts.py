"""Where the time of a training step goes on a GPU: each part alone, on random data, against its floor.

    PYTHONPATH=src python benchmarks/training_parts.py [--preset small] [--rows 1024] [--words 20] [--distinct 5120]

Prints the median milliseconds of forward and of forward + backward, by CUDA events.
"""

import argparse
import dataclasses
import statistics

import torch

from elmokit.config import ElmoConfig
from elmokit.nn.bilm import BiLM, BilmState
from elmokit.nn.word_encoder import WordEncoder


def milliseconds(run, repeats=20, warmup=5):
    for _ in range(warmup):
        run()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def report(name, forward, both, tokens):
    print(f"{name:34s} forward {forward:8.3f} ms   forward+backward {both:8.3f} ms   {tokens / both / 1e3:8.2f} M tokens/s")


def time_part(name, function, inputs, tokens):
    def forward():
        with torch.no_grad():
            function(*inputs)

    def both():
        outputs = function(*inputs)
        total = sum(output.float().sum() for output in outputs) if isinstance(outputs, (list, tuple)) else outputs.float().sum()
        total.backward()

    report(name, milliseconds(forward), milliseconds(both), tokens)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset", default="small")
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--words", type=int, default=20)
    parser.add_argument("--distinct", type=int, default=5120)
    args = parser.parse_args()
    config = getattr(ElmoConfig, args.preset)()
    lstm = dataclasses.replace(config.lstm, cell_clip=None, projection_clip=None)
    tokens = args.rows * args.words
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {args.preset}: {args.rows} x {args.words} words")

    bilm = BiLM(lstm).cuda().bfloat16()
    words = [torch.randn(tokens, lstm.projection_dim, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in (0, 1)]
    state = BilmState.zeros(lstm, args.rows, like=words[0])
    time_part("biLM, two streams", lambda *w: bilm.read_packed(w, [args.rows] * args.words, state)[0][-1], words, tokens)

    encoder = WordEncoder(config).cuda().bfloat16()
    ids = torch.randint(1, 257, (args.distinct, 24), device="cuda")
    ids[:, 16:] = 261
    time_part("word encoder", encoder, [ids], tokens)
    cnn = encoder.characters
    time_part("  convolutions and maximum", lambda i: [c(torch.nn.functional.embedding(i, cnn.embedding, ).transpose(1, 2)).amax(2)
                                                     for c in cnn.convolutions], [ids - 1], tokens)
    features = torch.randn(args.distinct, 2048, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    time_part("  highways", lambda f: torch.nn.Sequential(*cnn.highways)(f), [features], tokens)

    if torch.cuda.is_available():
        from torch.profiler import ProfilerActivity, profile

        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            bilm.read_packed(words, [args.rows] * args.words, state)[0][-1][0].float().sum().backward()
            encoder(ids).float().sum().backward()
        print(profiler.key_averages().table(sort_by="cuda_time_total", row_limit=25, max_name_column_width=70))


if __name__ == "__main__":
    main()
