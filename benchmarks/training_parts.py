"""Where the time of a training step goes on a GPU: each part alone, on random data, against its floor.

    PYTHONPATH=src python benchmarks/training_parts.py [--preset small] [--rows 1024] [--words 20] [--profile]

Prints the median milliseconds of forward and of forward + backward, by CUDA events.
"""

import argparse
import statistics

import torch
from torch.profiler import ProfilerActivity, profile

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
    print(f"{name:34s} forward {forward:8.3f} ms   and backward {both:8.3f} ms   {tokens / both / 1e3:8.2f} M tokens/s")


def time_part(name, function, inputs, tokens):
    def forward():
        with torch.no_grad():
            function(*inputs)

    def both():
        outputs = function(*inputs)
        sum(output.float().sum() for output in outputs).backward()

    report(name, milliseconds(forward), milliseconds(both), tokens)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--rows", type=int, default=1024)
    parser.add_argument("--words", type=int, default=20)
    parser.add_argument("--distinct", type=int, default=5120)
    parser.add_argument("--profile", action="store_true", help="list the kernels of one step, the slowest first")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        print("this benchmark needs a GPU")
        return
    config = getattr(ElmoConfig, args.preset)()
    lstm = config.lstm
    tokens, batch_sizes = args.rows * args.words, [args.rows] * args.words
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {args.preset}: {args.rows} x {args.words} words")

    def draw(*shape):
        return torch.randn(*shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)

    bilm = BiLM(lstm).cuda().bfloat16()
    words = [draw(tokens, lstm.projection_dim) for _ in (0, 1)]
    state = BilmState.zeros(lstm, args.rows, like=words[0])
    time_part(f"biLM, {bilm.engine.name}", lambda *w: bilm.read_packed(w, batch_sizes, state)[0][-1], words, tokens)

    encoder = WordEncoder(config).cuda().bfloat16()
    ids = torch.randint(1, 257, (args.distinct, 24), device="cuda")
    ids[:, 16:] = 261
    time_part("word encoder", lambda i: [encoder(i, trims=False)], [ids], tokens)
    cnn = encoder.characters
    assert cnn is not None

    def plainly(i):
        characters = torch.nn.functional.embedding(i, cnn.embedding).transpose(1, 2)
        return [convolution(characters).amax(2) for convolution in cnn.convolutions]

    time_part("  convolutions, maximum in torch", plainly, [ids - 1], tokens)
    features = draw(args.distinct, config.num_word_features)
    time_part("  highways", lambda f: [torch.nn.Sequential(*cnn.highways)(f)], [features], tokens)

    if args.profile:
        with profile(activities=[ProfilerActivity.CUDA]) as profiler:
            bilm.read_packed(words, batch_sizes, state)[0][-1][0].float().sum().backward()
            encoder(ids, trims=False).float().sum().backward()
        print(profiler.key_averages().table(sort_by="cuda_time_total", row_limit=25, max_name_column_width=70))


if __name__ == "__main__":
    main()
