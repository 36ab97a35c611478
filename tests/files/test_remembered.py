"""Files that never change: what was asked once is answered without them."""

from __future__ import annotations

import marshal
from pathlib import Path
from typing import Any, Optional

import pytest

from gpubind.files.facts import CONSTANTS, FIRST_CODE, GPU_CODE, NAMED_LIBRARIES
from gpubind.files.live import LiveTree
from gpubind.files.remembered import BYTES_LIMIT, Answers, RememberedTree, packed, packed_size, unpacked
from gpubind.files.tree import Tree
from gpubind.model import ABSENT, CudaNote, HostPath, Missing
from gpubind.model.gpucode import CodeModule, GpuCode, Ptx
from tests.support.elf import elf
from tests.support.images import glibc
from tests.support.trees import File, Link, Spec, make_tree

SPEC: Spec = {
    **glibc("2.36"),
    "/usr/lib/libx.so.1": elf("libx.so.1", needed=("libc.so.6",)),
    "/usr/lib/libx.so": Link("libx.so.1"),
    "/usr/lib/script.so": b"INPUT(libx.so.1)",
    "/opt/large": bytes(BYTES_LIMIT + 1),
    "/opt/next": b"n",
    "/closed/file": File(b"x"),
}


def questions(tree: Tree) -> list[Any]:
    """The answers to questions of each kind."""
    library, script = "/usr/lib/libx.so", "/usr/lib/script.so"
    return [
        *(tree.lstat(path) for path in ("/", "/usr/lib", library, "/nowhere/x", "/opt/none")),
        *(tree.resolve(library), tree.readlink(library), tree.list("/opt"), tree.list(library), tree.list("/opt/none")),
        *(tree.read("/etc/passwd"), tree.read(library, 10), tree.head(library, 8), tree.read("/opt")),
        *(tree.ident(library), tree.ident(script), tree.elf(library), tree.elf(script), tree.is_stub(library)),
        *(
            tree.fact(library, GPU_CODE),
            tree.fact(library, NAMED_LIBRARIES),
            tree.fact(library, CONSTANTS),
            tree.fact(library, FIRST_CODE),
        ),
        tree.restarts,
    ]


class Store:
    """An image in a directory, what is remembered of it, and how often it was opened."""

    def __init__(self, root: Path) -> None:
        self.root = str(make_tree(root, SPEC).root)
        self.answers: Answers = {}
        self.opened = 0

    def open(self) -> RememberedTree:
        known = marshal.loads(marshal.dumps(self.answers, 2))
        return RememberedTree(HostPath("podman:x"), known, self._open, self._keep)

    def _open(self) -> Tree:
        self.opened += 1
        return LiveTree(self.root)

    def _keep(self, answers: Answers) -> None:
        self.answers = answers


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "image")


def ask(store: Store, *paths: str) -> list[Any]:
    tree = store.open()
    answers = [tree.lstat(path) for path in paths] if paths else questions(tree)
    tree.close()
    return answers


def test_the_same_questions_are_answered_the_same_without_the_files(store: Store) -> None:
    right = questions(LiveTree(store.root))
    assert [ask(store), store.opened] == [right, 1]
    assert [ask(store), store.opened] == [right, 1]


def test_another_question_opens_the_files_once_and_is_remembered_then(store: Store) -> None:
    ask(store, "/opt/next")
    for _ in range(2):
        tree = store.open()
        assert tree.read("/opt/next") == b"n"
        assert tree.read("/etc/passwd") is not ABSENT
        tree.close()
        assert store.opened == 2


def test_what_is_next_to_an_asked_path_is_known_too(store: Store) -> None:
    """Each job of a workflow mounts something else, and asks whether that is in the image."""
    right = ask(store, "/usr/lib/libx.so")
    assert ask(store, "/usr/lib/libx.so") == right
    found = ask(store, "/stg1234", "/stg5678/deep", "/usr/lib/libx.so.1", "/usr/none")
    assert [found[0], found[1], found[3], store.opened] == [ABSENT, ABSENT, ABSENT, 1]
    assert found[2] == LiveTree(store.root).lstat("/usr/lib/libx.so.1")


def test_a_large_text_is_read_again(store: Store) -> None:
    for number in (1, 2):
        tree = store.open()
        assert tree.read("/opt/large") == SPEC["/opt/large"]
        tree.close()
        assert store.opened == number
    assert len(marshal.dumps(store.answers, 2)) < BYTES_LIMIT


def test_what_is_forbidden_to_this_user_is_not_remembered(store: Store) -> None:
    class Closed(LiveTree):
        def _list(self, path: str) -> Any:
            return Missing("forbidden", "permission denied") if path == "/closed" else super()._list(path)

    tree = RememberedTree(HostPath("podman:x"), {}, lambda: Closed(store.root), store._keep)
    assert tree.list("/closed") == Missing("forbidden", "permission denied")
    tree.close()
    assert ask(store, "/closed/file") == [LiveTree(store.root).lstat("/closed/file")]
    assert store.opened == 1


def test_an_answer_that_failed_is_not_remembered(store: Store) -> None:
    class Broken(LiveTree):
        def _lstat(self, path: str) -> Any:
            raise OSError(5, "Input/output error")

    tree = RememberedTree(HostPath("podman:x"), {}, lambda: Broken(store.root), store._keep)
    with pytest.raises(OSError, match="Input/output"):
        tree.lstat("/opt/next")
    tree.close()
    assert not any(store.answers.values())


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 3, "text", "\udcff", b"bytes", (), ("a", ("b",)), ABSENT, Missing("unreadable", "damaged")),
        *(CudaNote("13.2", (535, 570)), GpuCode((CodeModule(("sm_80",), (Ptx("compute_90", "8.0"),), 2),), None)),
    ],
)
def test_a_value_is_the_same_after_it_was_stored(value: Optional[object]) -> None:
    made = unpacked(marshal.loads(marshal.dumps(packed(value), 2)))
    assert made == value
    assert type(made) is type(value)
    assert made is ABSENT or value is not ABSENT


@pytest.mark.parametrize("value", [b"x", "x", ["a", "b"], ("Missing", "absent", ""), 7, None, [["a"], b""]])
def test_a_stored_value_has_about_its_size(value: Any) -> None:
    sizes = {"b'x'": 9, "'x'": 9, "['a', 'b']": 26, "('Missing', 'absent', '')": 45, "7": 8, "None": 8}
    assert packed_size(value) == sizes.get(repr(value), 33)


@pytest.mark.parametrize(("size", "is_kept"), [(BYTES_LIMIT - 41, True), (BYTES_LIMIT - 40, False)])
def test_a_text_up_to_a_limit_is_remembered(size: int, is_kept: bool, tmp_path: Path) -> None:
    store = Store(tmp_path / "image")
    (tmp_path / "image/opt/text").write_bytes(bytes(size))
    for _ in range(2):
        tree = store.open()
        assert tree.read("/opt/text") == bytes(size)
        tree.close()
    assert store.opened == (1 if is_kept else 2)


def test_names_next_to_a_path_are_remembered_up_to_a_number(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    names = len(LiveTree(store.root).names("/opt"))
    for limit, opened in ((names - 1, 2), (names, 1)):
        monkeypatch.setattr("gpubind.files.remembered.NAMES_LIMIT", limit)
        store.answers, store.opened = {}, 0
        tree = RememberedTree(HostPath("podman:x"), {}, store._open, store._keep)
        assert tree._lstat("/opt/none") == ABSENT
        tree.close()
        tree = store.open()
        tree.lstat("/opt/next")
        tree.close()
        assert store.opened == opened
