"""`elmo completion`: what a shell needs to complete commands, options and their values when Tab is pressed.

The commands arrive as their dataclasses; a script leaves that holds all their names, so that no Python runs at a Tab.
Where nothing of ours fits, the shell completes names of files. (tyro can print such scripts too; those know neither the
files among the arguments nor the values that `metavar` lists.)
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints, is_typeddict

import tyro

from elmokit.commands.base import Command, say
from elmokit.commands.settings import read_docstrings

__all__ = ["Completion", "Option", "list_options", "make_script"]

Kinds = Mapping[str, type[Command]]  # by what is typed behind `elmo`: `embed`, `task train`


@dataclass(frozen=True, kw_only=True)
class Completion(Command):
    """Print what your shell needs to complete elmo's commands, options and values with the Tab key.

    It works in every new shell once it lies where that shell looks for it.

    Example: elmo completion bash > ~/.local/share/bash-completion/completions/elmo

    Example: elmo completion zsh > ~/.elmo.zsh; echo "source ~/.elmo.zsh" >> ~/.zshrc

    Example: elmo completion fish > ~/.config/fish/completions/elmo.fish
    """

    shell: tyro.conf.Positional[Literal["bash", "zsh", "fish"]]
    """Your shell; echo $SHELL tells it."""

    def run(self) -> None:
        """Print the script."""
        from elmokit.commands import COMMANDS, GROUPS  # late: this command is one of them

        kinds = {**COMMANDS}
        for group, (members, _) in GROUPS.items():
            kinds |= {f"{group} {name}": kind for name, kind in members.items()}
        say(make_script(self.shell, kinds))


class Option(NamedTuple):
    """What can be typed at one place of a command line.

    Arguments:
        flags: `("-o", "--output")`; none for an argument that has only a place.
        values: what may follow, where it is listed.
        takes_value: whether something must follow.
        help: one sentence.
    """

    flags: tuple[str, ...]
    values: tuple[str, ...]
    takes_value: bool
    help: str


def list_options(kind: type[Command]) -> list[Option]:
    """The options of a command, and the arguments that have only a place."""
    texts = {name: text for base in reversed(kind.__mro__[:-2]) for name, text in read_docstrings(base).items()}
    hints = get_type_hints(kind, include_extras=True)
    found = [Option(("-h", "--help"), (), False, "Explain the command.")]
    for field in fields(kind):
        inner = _unwrap(hints[field.name])[0]
        if is_typeddict(inner):
            given = get_type_hints(inner, include_extras=True)
            found += [_make_option(name, hint, "") for name, hint in given.items()]
        else:
            found.append(_make_option(field.name, hints[field.name], texts.get(field.name, "")))
    return found


def make_script(shell: Literal["bash", "zsh", "fish"], kinds: Kinds) -> str:
    """The script of a shell for these commands."""
    if shell == "fish":
        return "\n".join(_write_fish(kinds))
    # zsh runs functions that were written for bash.
    start = ["autoload -U +X compinit && compinit", "autoload -U +X bashcompinit && bashcompinit"]
    return "\n".join([*(start if shell == "zsh" else []), *_write_bash(kinds)])


def _make_option(name: str, hint: Any, text: str) -> Option:  # noqa: ANN401
    inner, notes = _unwrap(hint)
    about = next((note for note in notes if hasattr(note, "metavar")), None)
    listed = [value for part in (inner, *get_args(inner)) if get_origin(part) is Literal for value in get_args(part)]
    named = (getattr(about, "metavar", None) or "").split("|")
    values = listed or [value for value in named if len(named) > 1 and value == value.lower()]
    long = "--" + (getattr(about, "name", None) or name).replace("_", "-")
    flags = (*(getattr(about, "aliases", None) or ()), long)
    sentence = (getattr(about, "help", None) or text).partition(". ")[0].rstrip(".")
    is_placed = any(str(note) == "Positional" for note in notes)
    return Option(() if is_placed else flags, tuple(values), inner is not bool, sentence)


def _unwrap(hint: Any) -> tuple[Any, tuple[Any, ...]]:  # noqa: ANN401
    """A type without `Annotated`, and what stood there beside it."""
    return (get_args(hint)[0], get_args(hint)[1:]) if get_origin(hint) is Annotated else (hint, ())


def _write_bash(kinds: Kinds) -> Iterator[str]:
    groups = _find_groups(kinds)
    yield "_elmo() {"
    yield '    local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=""'
    yield '    local command="${COMP_WORDS[1]}" first=2'
    yield f'    case "$command" in {"|".join(groups)}) command="$command ${{COMP_WORDS[2]}}"; first=3 ;; esac'
    yield '    case "$COMP_CWORD $command" in'
    yield f'        "1 "*) words="{" ".join(_find_first_words(kinds))} --version --help" ;;'
    for group, members in groups.items():
        yield f'        "2 {group} "*) words="{" ".join(members)}" ;;'
    yield '        *) case "$command $before" in'
    for name, kind in kinds.items():
        for option in list_options(kind):
            for flag in option.flags if option.values else ():
                yield f'            "{name} {flag}") words="{" ".join(option.values)}" ;;'
    yield "            *)"
    yield '                case "$command $current" in'
    for name, kind in kinds.items():
        options = list_options(kind)
        yield f'                    "{name} -"*) words="{" ".join(flag for each in options for flag in each.flags)}" ;;'
    yield "                esac"
    yield '                case "$COMP_CWORD $command $current" in "$first $command -"*) ;;'
    for name, kind in kinds.items():
        placed = next((option.values for option in list_options(kind) if not option.flags), ())
        if placed:
            yield f'                    "$first {name} "*) words="{" ".join(placed)}" ;;'
    yield "                esac ;;"
    yield "        esac ;;"
    yield "    esac"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$current"))'
    yield "}"
    yield "complete -o bashdefault -o default -F _elmo elmo"


def _write_fish(kinds: Kinds) -> Iterator[str]:
    yield "function __elmo_command"
    yield "    set -l words (commandline -opc) '' ''"
    yield '    contains -- "$argv" "$words[2]" "$words[2] $words[3]"'
    yield "end"
    yield "function __elmo_words"
    yield "    test (count (commandline -opc)) -eq $argv[1]"
    yield "end"
    groups = _find_groups(kinds)
    for name in _find_first_words(kinds):
        yield f"complete -c elmo -n '__elmo_words 1' -f -a {name}{_describe(kinds.get(name))}"
    for group, members in groups.items():
        for name in members:
            kind = kinds[f"{group} {name}"]
            yield f"complete -c elmo -n '__elmo_command {group}; and __elmo_words 2' -f -a {name}{_describe(kind)}"
    for name, kind in kinds.items():
        for option in list_options(kind):
            values = f" -x -a '{' '.join(option.values)}'" if option.values else " -r" if option.takes_value else ""
            if option.flags:
                flags = " ".join(f"-l {flag[2:]}" if flag[:2] == "--" else f"-s {flag[1:]}" for flag in option.flags)
                yield f"complete -c elmo -n '__elmo_command {name}' {flags}{values} -d '{_quote(option.help)}'"
            elif option.values:
                place = f"'__elmo_command {name}; and __elmo_words {1 + len(name.split())}'"
                yield f"complete -c elmo -n {place} -f -a '{' '.join(option.values)}'"


def _find_groups(kinds: Kinds) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for group, _, name in (name.partition(" ") for name in kinds):
        if name:
            groups.setdefault(group, []).append(name)
    return groups


def _find_first_words(kinds: Kinds) -> list[str]:
    return list(dict.fromkeys(name.partition(" ")[0] for name in kinds))


def _describe(kind: type[Command] | None) -> str:
    first = (inspect.getdoc(kind) or "").partition("\n")[0] if kind else ""
    return f" -d '{_quote(first.rstrip('.'))}'" if first else ""


def _quote(text: str) -> str:
    return text.replace("\\", "\\\\").replace("'", "\\'")
