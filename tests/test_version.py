"""Which elmokit a result was made with: the commit is what git itself says, in a clone, packed, and in a worktree."""

import subprocess

from elmokit.version import describe_version, find_commit, find_version


def git(folder, *arguments) -> str:
    settings = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *settings, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_commit_is_what_git_says(tmp_path, monkeypatch):
    monkeypatch.delenv("ELMOKIT_COMMIT", raising=False)
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    (one / "pyproject.toml").write_text('[project]\nversion = "7.8.9"\n')
    git(one, "init", "-q")
    assert find_commit(one) is None  # there is none yet
    git(one, "add", ".")
    git(one, "commit", "-qm", "first")
    git(one, "worktree", "add", "-qb", "branch", str(other))
    git(other, "commit", "-qm", "second", "--allow-empty")

    def assert_equal_to_git():
        for folder in (one, other):
            assert find_commit(folder) == git(folder, "rev-parse", "HEAD")[:10]

    assert_equal_to_git()
    git(one, "pack-refs", "--all")
    assert_equal_to_git()
    git(other, "checkout", "-q", "--detach")
    assert_equal_to_git()
    assert find_commit(one) != find_commit(other)


def test_without_a_checkout_the_environment_may_say_it(tmp_path, monkeypatch):
    monkeypatch.delenv("ELMOKIT_COMMIT", raising=False)
    assert find_commit(tmp_path) is None
    monkeypatch.setenv("ELMOKIT_COMMIT", "1a2b3c4d5e6f7a8b")
    assert find_commit(tmp_path) == "1a2b3c4d5e"
    assert describe_version() == f"{find_version()} (1a2b3c4d5e)"


def test_a_checkout_that_is_not_installed_knows_its_version(tmp_path, monkeypatch):
    from importlib import metadata

    def missing(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "elmokit"\nversion = "7.8.9"\n')
    assert find_version(tmp_path) == "7.8.9"
    assert find_version(tmp_path / "nowhere") == "unknown"
