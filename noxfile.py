"""`nox -s NAME`: each integration's tests in an environment of its own, with its framework's versions.

    pip install nox
    nox --list
    nox -s transformers4 transformers5

`make test` runs in one environment, without most frameworks: some of them exclude each other, and all of them together
are gigabytes. Here each has its own. torch comes first and pinned, as in the Makefile, then the framework, then the
tests; versions are those of constraints.txt, but for the names that a session frees because its framework excludes
them. A new integration is a function below: one call of `install`, one of `test`.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import nox

ROOT = Path(__file__).parent
TORCH = "torch==2.13.0"
PAGES = "tests/docs/test_examples.py::test_the_page_runs"  # blocks that say **Needs:** run where that is installed

nox.options.default_venv_backend = "venv"
nox.options.reuse_existing_virtualenvs = True


@nox.session
def transformers4(session: nox.Session) -> None:
    """The adapter with the last transformers before 5, which needs a huggingface_hub before 1."""
    install(
        session,
        ".[transformers]",
        "transformers==4.57.*",
        "accelerate",
        frees=["accelerate", "huggingface_hub", "tokenizers", "transformers"],
    )
    test(session, "tests/integrations/test_transformers.py", "tests/probe/test_extras.py")
    test(session, f"{PAGES}[docs/how-to/transformers.md]", "-W", "ignore")


@nox.session
def transformers5(session: nox.Session) -> None:
    """The adapter with transformers 5."""
    install(session, ".[transformers]", "accelerate")
    test(session, "tests/integrations/test_transformers.py", "tests/probe/test_extras.py")
    test(session, f"{PAGES}[docs/how-to/transformers.md]", "-W", "ignore")


@nox.session
def sentence_transformers(session: nox.Session) -> None:
    """The adapter under sentence-transformers and MTEB."""
    install(session, ".[transformers]", "sentence-transformers", "mteb", "accelerate", "datasets")
    test(session, "tests/integrations/test_sentence_transformers.py")
    test(session, f"{PAGES}[docs/how-to/transformers.md]", "-W", "ignore")


@nox.session
def sklearn(session: nox.Session) -> None:
    """The scikit-learn transformer."""
    install(session, ".[sklearn]")
    test(session, "tests/integrations/test_sklearn.py", f"{PAGES}[docs/how-to/scikit-learn.md]")


@nox.session
def gensim(session: nox.Session) -> None:
    """KeyedVectors of gensim."""
    install(session, ".[gensim]")
    test(session, "tests/integrations/test_gensim.py", f"{PAGES}[docs/how-to/gensim.md]")


@nox.session
def spacy(session: nox.Session) -> None:
    """The components of spaCy's pipelines."""
    install(session, ".[spacy]")
    test(session, "tests/integrations/test_spacy.py", f"{PAGES}[docs/how-to/spacy.md]")


@nox.session
def flair(session: nox.Session) -> None:
    """Flair's embeddings; Flair needs transformers before 5, and so a huggingface_hub before 1."""
    install(session, ".[flair]", frees=["huggingface_hub", "python-dateutil", "tokenizers", "transformers"])
    old_names = ("-W", "ignore::FutureWarning")  # of torch, by which Flair's trainer calls
    test(session, "tests/integrations/test_flair.py", f"{PAGES}[docs/how-to/flair.md]", *old_names)


@nox.session
def ray(session: nox.Session) -> None:
    """Embedding and training on a Ray cluster of this machine, and the callable under datasets and Dask."""
    install(session, ".[ray]", "dask[dataframe]", "datasets")
    pages = ["tests/docs/test_examples.py::test_the_page_runs[docs/how-to/scale-out.md]"]
    test(session, "tests/integrations/test_ray.py", "tests/embed/test_mapping.py", *pages)


@nox.session
def two_nodes(session: nox.Session) -> None:
    """Training on two hosts, which are network namespaces: needs root and iproute2."""
    install(session, ".")
    session.run("python", "benchmarks/two_nodes.py", *session.posargs, env={"OMP_NUM_THREADS": "1"})


@nox.session
def export(session: nox.Session) -> None:
    """`elmo export`; with npm and a Chromium also its page in a browser."""
    install(session, ".[export,serve]", "playwright")
    env = {}
    if shutil.which("npm"):
        modules = Path(session.create_tmp())
        session.run("npm", "install", "--silent", "--prefix", str(modules), "onnxruntime-web@1.30.0", external=True)
        env["ONNXRUNTIME_WEB"] = str((modules / "node_modules" / "onnxruntime-web").resolve())
    test(session, "tests/export", "tests/browser/test_exported_page.py", env=env)


def install(session: nox.Session, *requirements: str, frees: list[str] | None = None) -> None:
    """Install torch, then elmokit with these requirements and pytest.

    Arguments:
        session: of nox.
        requirements: what pip is given, say `".[sklearn]"`.
        frees: names that are not held to constraints.txt.
    """
    constraints = _write_constraints(session, frees or [])
    session.install("-c", constraints, TORCH)
    session.install("-c", constraints, TORCH, "-e", requirements[0], *requirements[1:], "pytest", "hypothesis")


def test(session: nox.Session, *paths: str, env: dict[str, str] | None = None) -> None:
    """Run these tests, after a line with the versions that matter; what follows `--` on nox's line is for pytest."""
    names = "torch|numpy|transformers|huggingface|sentence|mteb|scikit|gensim|spacy|flair|ray|onnx"
    code = (
        "import importlib.metadata as m, re;"
        "print(*sorted({f'{d.name}=={d.version}' for d in m.distributions() if re.match(r'" + names + "', d.name)}))"
    )
    session.run("python", "-c", code)
    session.run("pytest", "-q", *paths, *session.posargs, env={"OMP_NUM_THREADS": "1", **(env or {})})


def _write_constraints(session: nox.Session, frees: list[str]) -> str:
    """The path of constraints.txt, or of a copy without the freed names."""
    given = ROOT / "constraints.txt"
    if not frees:
        return str(given)
    freed = re.compile(rf"(?i)({'|'.join(frees)})==")
    lines = [line for line in given.read_text(encoding="utf-8").splitlines(keepends=True) if not freed.match(line)]
    path = Path(session.create_tmp()) / "constraints.txt"
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)
