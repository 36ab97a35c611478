"""Root and a hostile user on one machine: what the user has planted is not followed, not believed and not run.

Each script has a /tmp, homes and an /opt of its own, which end with it.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gpubind.errors import UnseenError
from gpubind.image.open import open_image
from tests.live.machine import PYTHON_ENV, Bind, Machine
from tests.support.driver import kernel, rhel
from tests.support.race import LEVELS, SECRET, racing
from tests.support.trees import Node, Spec, make_tree

pytestmark = pytest.mark.live

RACES = 5000
FRESH = """
for place in /root /opt; do mount -t tmpfs -o mode=755 tmpfs $place; done
mount -t tmpfs -o mode=1777 tmpfs /tmp
mount -t tmpfs -o mode=755,uid=$(id -u user),gid=$(id -g user) tmpfs /home/user
echo mine > /opt/victim
as_user() { su user -c "$1"; }
"""
PLAN = "python3 -m gpubind plan --nv -q --host debian13-nvidia550 --json"
STAGED = "python3 -m gpubind plan --nv -q --root /srv/driver --dev-root /srv/driver"
"""A plan of `driver`, with a generated file."""


def shell(machine: Machine, script: str, *binds: Bind, status: int = 0) -> subprocess.CompletedProcess[str]:
    """*script* as root on the machine."""
    words = ["sh", "-ec", FRESH + script]
    return machine.run(words, driver=True, binds=[*machine.modules, *binds], env=PYTHON_ENV, status=status)


def believed(machine: Machine, script: str) -> tuple[dict[str, Any], dict[str, str]]:
    """The plan that *script* prints, which is of the machine's own driver; what of others it names, and how serious."""
    plan = json.loads(shell(machine, script).stdout)
    assert plan["drivers"][0]["root"] == "/"
    told = {one["subject"]: one["severity"] for one in plan["findings"] if one["code"] == "writable-by-others"}
    return plan, told


def planted(how: str) -> str:
    return f"as_user {shlex.quote(how)}\n"


@pytest.mark.parametrize(
    "how",
    [
        "ln -s /opt/victim /tmp/plan.json",
        "ln -s /opt/new /tmp/plan.json",
        "echo theirs > /tmp/plan.json; chmod 666 /tmp/plan.json",
        "mkfifo /tmp/plan.json; chmod 666 /tmp/plan.json",
        "mkdir /home/user/d; ln -s /opt/victim /home/user/d/plan.json; ln -s /home/user/d /tmp/d",
    ],
    ids=["link", "dangling", "file", "fifo", "link-on-the-way"],
)
def test_root_writes_through_nothing_that_a_user_has_planted(trixie: Machine, how: str) -> None:
    path = "/tmp/d/plan.json" if "/tmp/d" in how else "/tmp/plan.json"
    script = planted(how) + f"{PLAN} -o {path} || echo exit $?; cat /opt/victim; ls /opt"
    done = shell(trixie, script)
    assert done.stdout.splitlines() == ["exit 4", "mine", "victim"]
    assert "unwritable-file" in done.stderr


def test_a_users_file_that_root_writes_stays_the_users(trixie: Machine) -> None:
    script = planted("echo old > ~/plan.json; chmod 4640 ~/plan.json")
    script += f"{PLAN} -o /home/user/plan.json; stat -c '%U %G %a' /home/user/plan.json; wc -l < /home/user/plan.json"
    owner, lines = shell(trixie, script).stdout.splitlines()
    assert owner == "user user 640"
    assert int(lines) > 100


def test_a_user_follows_no_link_of_anothers_in_tmp(trixie: Machine) -> None:
    script = "echo -n > /home/user/prey; chown user /home/user/prey\n"
    script += "su nobody -s /bin/sh -c 'ln -s /home/user/prey /tmp/plan.json'\n"
    script += f"su user -c 'PYTHONPATH=$PYTHONPATH {PLAN} -o /tmp/plan.json' || echo exit $?; wc -c < /home/user/prey"
    assert shell(trixie, script).stdout.split() == ["exit", "4", "0"]


def test_root_believes_no_configuration_list_or_program_of_a_users_home(trixie: Machine) -> None:
    script = planted(
        "mkdir -p ~/.config/gpubind ~/bin; echo 'root = \"/home/user\"' > ~/.config/gpubind/config.toml;"
        "ln -s /etc/shadow ~/.config/gpubind/nvliblist.conf;"
        "printf '#!/bin/sh\\ntouch /opt/was-run\\n' > ~/bin/apptainer; chmod 755 ~/bin/apptainer"
    )
    script += "export HOME=/home/user PATH=/home/user/bin:$PATH\n"
    script += "python3 -m gpubind record -o /opt/record.json; ! grep -q 'root:' /opt/record.json\n"
    script += "python3 -m gpubind plan --nv --json -o /opt/plan.json\n"
    script += "python3 -m gpubind check --nv --backend apptainer > /opt/check || true\n"
    script += "python3 -m gpubind plan --nv --format apptainer > /opt/words\n"
    script += "test ! -e /opt/was-run; test ! -e /home/user/.cache; cat /opt/plan.json"
    assert believed(trixie, script)[1] == {
        "/home/user/.config/gpubind/config.toml": "warning",
        "/home/user/.config/gpubind/nvliblist.conf": "warning",
        "/home/user/.cache/gpubind": "note",
        "/home/user/bin": "note",
    }


def test_root_believes_no_path_that_a_users_variable_names(trixie: Machine) -> None:
    """As `sudo -E` hands them on: a secret of root's, CDI specs and a driver root of the user's."""
    spec = '{"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "all", "containerEdits":'
    spec += ' {"env": ["LD_PRELOAD=/evil.so"], "mounts": [{"hostPath": "/etc/shadow", "containerPath": "/etc/x"}]}}]}'
    script = planted(
        f"mkdir -p ~/cdi ~/tree/usr/lib; echo '{spec}' > ~/cdi/evil.json; cp /bin/true ~/tree/usr/lib/libcuda.so.1"
    )
    script += "umask 077; echo password-of-root > /root/secret; umask 022\n"
    script += "export GPUBIND_LIST=/root/secret GPUBIND_ROOT=/home/user/tree\n"
    script += f"{PLAN} -v > /opt/listed 2>&1; ! grep -q password-of-root /opt/listed\n"
    script += "unset GPUBIND_LIST; export GPUBIND_CDI_DIR=/home/user/cdi\n"
    script += "python3 -m gpubind plan --nv --source cdi > /opt/cdi 2>&1 || true\n"
    script += "! grep -qe evil.so -e shadow /opt/cdi; grep -q 'home/user/cdi is ignored' /opt/cdi\n"
    script += "unset GPUBIND_CDI_DIR; python3 -m gpubind plan --nv --json -o /opt/plan.json; cat /opt/plan.json"
    assert [*believed(trixie, script)[1]] == ["/home/user/tree"]


FUSE = r"""
# An image of libraries, programs and a configuration file, all of them root's.
echo user_allow_other > /opt/fuse.conf; mount --bind /opt/fuse.conf /etc/fuse.conf
mkdir -p /opt/tree/bin /opt/tree/lib /opt/tree/gpubind
for name in bwrap apptainer; do printf '#!/bin/sh\ntouch /opt/was-run\n' > /opt/tree/bin/$name; done
chmod 755 /opt/tree/bin/*; cp -L /lib/x86_64-linux-gnu/libcuda.so.1 /opt/tree/lib/libnvidia-sandboxutils.so.1
echo 'caps = "utility"' > /opt/tree/gpubind/config.toml
touch -d @1600000000 $(find /opt/tree)
mksquashfs /opt/tree /opt/tree.sq -all-root -quiet > /opt/made
as_user 'mkdir /tmp/fuse'
trap 'mountpoint -q /tmp/fuse && umount /tmp/fuse' EXIT
of_user() { as_user 'squashfuse -o allow_other /opt/tree.sq /tmp/fuse'; test "$(stat -c %u%a /tmp/fuse)" = 0755; }
of_root() { squashfuse -o allow_other /opt/tree.sq /tmp/fuse; }
"""
"""A user's FUSE file system that says that root owns all of it, and the same one mounted by root."""


def test_root_believes_no_owner_that_a_users_fuse_file_system_reports(trixie: Machine) -> None:
    script = FUSE + "of_user; export XDG_CONFIG_HOME=/tmp/fuse XDG_CACHE_HOME=/tmp/fuse TMPDIR=/tmp/fuse\n"
    script += "PATH=/tmp/fuse/bin /usr/bin/python3 -m gpubind exec --backend bwrap / true > /opt/said 2>&1 || true\n"
    script += "PATH=/tmp/fuse/bin:$PATH python3 -m gpubind check --nv --backend apptainer > /opt/checked 2>&1 || true\n"
    script += "grep -q 'users other than root could change' /opt/said; test ! -e /opt/was-run\n"
    script += "export PATH=$PATH:/tmp/fuse/bin GPUBIND_LIBRARY_PATH=/tmp/fuse/lib\n"
    script += "python3 -m gpubind plan --nv --json -o /opt/plan.json; cat /opt/plan.json"
    plan, told = believed(trixie, script)
    assert not [mount for mount in plan["mounts"] if "/tmp/fuse" in mount["source"]]
    assert len(plan["request"]["caps"]) > 1
    assert told.keys() == {f"/tmp/fuse{path}" for path in ("", "/bin", "/gpubind", "/gpubind/config.toml", "/lib")}


@pytest.mark.parametrize(
    ("place", "begin"), [("/home/user", ""), ("/tmp/fuse", f"{FUSE}of_user\n")], ids=["home", "fuse"]
)
def test_root_stages_nothing_where_a_user_decides(trixie: Machine, driver: Bind, place: str, begin: str) -> None:
    script = f"{begin}export HOME={place} TMPDIR={place}; find {place} > /opt/before\n"
    script += f"{STAGED} --format apptainer; find {place} | diff /opt/before - && ls -A /tmp"
    printed = shell(trixie, script, driver).stdout
    assert "/tmp/gpubind-0/" in printed
    assert printed.splitlines()[-1] == "gpubind-0"


def test_root_believes_its_own_fuse_file_system_and_no_memo_outlives_the_change_to_a_users(trixie: Machine) -> None:
    script = FUSE + "mount -t tmpfs -o mode=755 tmpfs /run\n"
    script += "export GPUBIND_MEMO=on GPUBIND_LIBRARY_PATH=/tmp/fuse/lib\n"
    script += "libraries() { python3 -m gpubind plan --nv -q --format apptainer | grep -c '/tmp/fuse/lib/' || true; }\n"
    script += "of_root; libraries; umount /tmp/fuse; of_user; libraries; umount /tmp/fuse\n"
    script += "unset GPUBIND_LIBRARY_PATH; export XDG_CONFIG_HOME=/tmp/fuse\n"
    script += "plan() { python3 -m gpubind plan --nv -vv --json > /opt/plan.json 2> /opt/said; }\n"
    script += "asks() { sleep 0.1; plan; plan; grep -o '^memo: .*served' /opt/said\n"
    script += "  grep -q '\"caps_explicit\": true' /opt/plan.json && echo one || echo all; }\n"
    script += "of_root; asks; umount /tmp/fuse; of_user; asks; umount /tmp/fuse; of_root; asks"
    done = shell(trixie, script)
    assert done.stdout.split("\n")[:2] == ["1", "0"]
    assert done.stdout.split("\n")[2:-1] == ["memo: served", "one", "memo: served", "all", "memo: served", "one"]


def test_roots_runtime_is_not_one_that_a_user_has_made(trixie: Machine) -> None:
    script = planted("mkdir ~/bin; printf '#!/bin/sh\\ntouch /opt/was-run\\n' > ~/bin/ch-run; chmod 755 ~/bin/ch-run")
    script += "export PATH=/home/user/bin\n"
    script += "/usr/bin/python3 -m gpubind exec --backend ch-run / true; echo exit $?; test ! -e /opt/was-run"
    done = shell(trixie, "set +e\n" + script)
    assert done.stdout == "exit 125\n"
    assert "users other than root could change" in done.stderr


@pytest.fixture
def driver(tmp_path: Path) -> Bind:
    """A driver with a manifest that must be changed for any container."""
    manifest = {"file_format_version": "1.0.1", "ICD": {"library_path": "/nix/store/x/lib/libGLX_nvidia.so.0"}}
    files: Spec = {**rhel(), **kernel(), "/usr/share/vulkan/icd.d/nvidia_icd.x86_64.json": json.dumps(manifest)}
    make_tree(tmp_path, {path: item for path, item in files.items() if not isinstance(item, Node)})
    return Bind(str(tmp_path), "/srv/driver")


@pytest.mark.parametrize(
    ("directory", "why"),
    [
        ("/opt/gpubind", None),
        ("/tmp/gpubind", "users other than root may write to /tmp"),
        ("/home/user/gpubind", "users other than root may write to /home/user"),
        ("/opt/link/gpubind", "users other than root may write to /home/user"),
        ("/opt/closed/gpubind", "not everybody may enter /opt/closed"),
    ],
)
def test_what_root_stages_for_everybody_lasts(trixie: Machine, driver: Bind, directory: str, why: str) -> None:
    script = "umask 077; ln -s /home/user /opt/link; mkdir -m 700 /opt/closed\n"
    script += f"{STAGED} --format cdi -o /opt/spec.json --stage-dir {directory} || echo exit $?\n"
    script += f"as_user 'cat {directory}/*.json' || true; ls /home/user /tmp"
    done = shell(trixie, script, driver)
    if why is None:
        assert json.loads(done.stdout.partition("/home/user:")[0])["ICD"]
    else:
        assert done.stdout.startswith("exit 4\n")
        assert why in done.stderr
    assert "gpubind" not in done.stdout.partition("/home/user:")[2]


@pytest.mark.parametrize("level", LEVELS)
def test_5000_looks_at_an_image_that_is_exchanged_meanwhile_see_nothing_outside(tmp_path: Path, level: str) -> None:
    with racing(tmp_path, level) as image:
        seen = []
        for _ in range(RACES):
            with suppress(UnseenError):  # a link that has become a directory while it is read: nobody could look
                seen.append(open_image(image).facts.env.get("LD_LIBRARY_PATH"))
    assert {*seen} == {None, "/own"}, seen.count(SECRET)


def test_an_image_that_a_user_may_not_read_is_forbidden(trixie: Machine) -> None:
    script = "mkdir -p /opt/image/usr/lib; chmod 000 /opt/image/usr/lib; ln -s usr/lib /opt/image/lib\n"
    script += "as_user 'PYTHONPATH=$PYTHONPATH python3 -m gpubind check --nv --image /opt/image' || echo exit $?"
    done = shell(trixie, script)
    assert done.stdout == "exit 4\n"
    assert "you may not look into /lib" in done.stderr
