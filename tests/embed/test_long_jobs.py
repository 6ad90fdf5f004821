"""Small versions of the benchmarks that prove flat memory and resuming after a real SIGKILL."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(script, *arguments):
    path = ROOT / "benchmarks" / script
    if not path.exists():
        pytest.skip("benchmarks/ is not there")
    result = subprocess.run([sys.executable, str(path), *arguments], capture_output=True, text=True, cwd=ROOT / "src")
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_a_long_stream_keeps_order_and_memory():
    assert "order kept" in run("stream_memory.py", "--sentences", "20000", "--cache-words", "500")


@pytest.mark.skipif(sys.platform != "linux", reason="forks a process that has torch loaded")
def test_a_killed_job_resumes_to_the_same_bytes():
    quick = "--kills", "3", "--lines", "600", "--formats", "parquet", "--trainings", "3"
    assert "all outputs are equal" in run("kill_resume.py", *quick)


@pytest.mark.skipif(sys.platform != "linux", reason="forks a process that has torch loaded")
def test_two_jobs_with_one_output_neither_mix_nor_lose_anything():
    assert "8 pairs, 0 mixed or lost" in run(
        "racing_jobs.py", "--pairs", "8", "--lines", "400", "--kinds", "npy", "train"
    )
