"""What bubblewrap's options bring beside the plan."""

from __future__ import annotations

import pytest

from gpubind.runtimes.bwrap_brought import brought
from gpubind.runtimes.start import Start

HERE = {"HOME": "/home/me", "PWD": "/work/run"}


def start(*arguments: str, **environ: str) -> Start:
    values = {**HERE, **environ}
    return Start(
        "bwrap", None, arguments, values, directories=frozenset(HERE.values()), working_directory=values["PWD"]
    )


def binds(*arguments: str) -> list[tuple[str, str]]:
    return [(bind.source, bind.target) for bind in brought(start(*arguments)).binds]


def test_home_working_directory_and_tmp_are_there() -> None:
    assert binds() == [(path, path) for path in ("/tmp", "/home/me", "/work/run")]
    assert brought(start()).working_directory == "/work/run"
    assert brought(start(PWD="/")).working_directory is None


@pytest.mark.parametrize("word", ["--bind", "--ro-bind-try", "--dev-bind"])
def test_binds_of_the_user_come_after_them(word: str) -> None:
    assert binds("--tmpfs", "--bind", "--unshare-net", word, "/opt/a", "/b/../c", word, "lib", "/lib")[3:] == [
        ("/opt/a", "/c"),
        ("/work/run/lib", "/lib"),
    ]


def test_the_arguments_of_other_options_are_no_options() -> None:
    made = brought(start("--symlink", "--bind", "/x", "--setenv", "A", "--chdir", "--chdir", "/srv", "--share-net"))
    assert len(made.binds) == 3
    assert made.working_directory == "/srv"
    assert made.unseen == ("--symlink --bind /x",)


def test_search_paths_that_are_set_count() -> None:
    env = brought(start("--setenv", "PATH", "/opt", "--setenv", "FOO", "x", LD_PRELOAD="/lib/a.so", PATH="/host")).env
    assert [(variable.name, variable.op, variable.value) for variable in env] == [
        ("LD_PRELOAD", "set", "/lib/a.so"),
        ("PATH", "set", "/opt"),
    ]


def test_words_that_are_cut_off_bring_nothing() -> None:
    for arguments in (("--bind",), ("--bind", "/a"), ("--chdir",), ("--setenv", "PATH")):
        assert brought(start(*arguments)) == brought(start())
