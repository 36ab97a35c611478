"""A host as another user may open it: by owner, group and mode."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpubind import open_host
from gpubind.errors import UsageError
from gpubind.formats.driver.kernel import ACL_ATTRIBUTE
from gpubind.host.live import LiveHost
from gpubind.model import Missing, ResolvedFile
from gpubind.model.files import FORBIDDEN
from tests.support.acl import acl_for
from tests.support.commands import gpubind
from tests.support.driver import V, rhel
from tests.support.trees import Dir, File, Spec, make_tree

USERS = {
    "/etc/passwd": "root:x:0:0::/root:/bin/sh\nbroken\nalice:x:4242:100::/:/bin/sh\n",
    "/etc/group": "users:x:100:\nvideo:x:44:bob,alice\nrender:x:105:bob\nodd\n",
}


def test_the_groups_of_a_user_are_those_of_the_hosts_own_files(tmp_path: Path) -> None:
    make_tree(tmp_path, USERS)
    assert LiveHost(str(tmp_path), str(tmp_path)).as_user("alice").identity == (4242, (44, 100))


@pytest.mark.parametrize("name", ["nosuchuser", "", "broken", "a\0b", "users"])
def test_an_unknown_user_is_refused(tmp_path: Path, name: str) -> None:
    make_tree(tmp_path, USERS)
    for host in (LiveHost(str(tmp_path), str(tmp_path)), LiveHost("/")):
        with pytest.raises(UsageError) as caught:
            host.as_user(name)
        assert caught.value.code == "unknown-user"


def test_a_record_holds_no_users() -> None:
    with pytest.raises(UsageError, match="unknown-user"):
        open_host("mi300x-rocm62").as_user("root")


def test_the_users_of_this_machine_are_those_that_may_log_in() -> None:
    assert LiveHost("/").as_user("root").identity.euid == 0


def test_what_modes_forbid_is_forbidden_and_what_is_absent_is_absent(tmp_path: Path) -> None:
    tree: Spec = {
        **USERS,
        "/open": File(b"1", 0o644),
        "/closed": File(b"2", 0o600),
        "/shut/file": File(b"3", 0o644),
        "/shut/below/file": File(b"4", 0o644),
        "/shut": Dir(0o700),
        "/unlisted/file": File(b"5", 0o644),
        "/unlisted": Dir(0o711),
    }
    make_tree(tmp_path, tree)
    found = LiveHost(str(tmp_path), str(tmp_path)).as_user("alice").driver
    assert (found.text("/open"), found.text("/unlisted/file")) == ("1", "5")
    assert found.read("/closed", 9) == found.read("/shut/file", 9) == found.read("/shut/below/file", 9) == FORBIDDEN
    assert found.list("/unlisted") == found.list("/shut") == FORBIDDEN
    for path in ("/none", "/unlisted/none"):
        answer = found.read(path, 9)
        assert isinstance(answer, Missing)
        assert answer.why == "absent"


def test_access_to_a_node_is_the_users(tmp_path: Path) -> None:
    make_tree(tmp_path, {**USERS, "/node": File(b"", 0o640)})
    os.chown(tmp_path / "node", os.getuid(), 44 if os.getuid() == 0 else -1)
    host = LiveHost(str(tmp_path), str(tmp_path)).as_user("alice")
    found = host.dev.find("/node")
    assert isinstance(found, ResolvedFile)
    assert host.access(found._replace(stat=found.stat._replace(gid=44))) == "r"
    assert host.access(found._replace(stat=found.stat._replace(gid=105))) == "none"


def test_an_access_control_list_counts_for_another_user_and_in_a_record(tmp_path: Path) -> None:
    make_tree(tmp_path, {**USERS, "/node": File(b"", 0o600), "/shut/file": File(b"1", 0o644), "/shut": Dir(0o700)})
    for path, bits in (("node", 6), ("shut", 5)):
        os.setxattr(tmp_path / path, ACL_ATTRIBUTE, acl_for(4242, bits))
    alice = LiveHost(str(tmp_path), str(tmp_path)).as_user("alice")
    found = alice.dev.find("/node")
    assert isinstance(found, ResolvedFile)
    assert found.stat.acl == "user::rwx,user:4242:rw-,group::---,mask::rw-,other::---"
    assert (alice.access(found), alice.driver.text("/shut/file")) == ("rw", "1")
    os.setxattr(tmp_path / "shut", ACL_ATTRIBUTE, acl_for(4243, 5))
    assert LiveHost(str(tmp_path), str(tmp_path)).as_user("alice").driver.text("/shut/file") is None


def test_a_library_that_the_user_may_not_read_is_an_error_and_the_report_names_the_user(tmp_path: Path) -> None:
    make_tree(tmp_path, {**rhel(), **USERS})
    library = next(tmp_path.rglob(f"libcuda.so.{V}"))
    words = ("check", "--nv", "--root", str(tmp_path), "--dev-root", str(tmp_path))
    assert "no-libcuda" not in gpubind(*words, "--as-user", "alice").stdout
    library.chmod(0o600)
    os.chown(library, 0 if os.getuid() == 0 else -1, -1)
    told = gpubind(*words, "--as-user", "alice").stdout
    assert "error: no-libcuda: " in told
    assert told.splitlines()[0].endswith(", as alice")
