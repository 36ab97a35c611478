"""What was read of an image in docker's store is remembered by its ID: a user in group docker, a private dockerd."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from tests.live.containers import CONTAINERS, EXCLUDES
from tests.live.engine_starts import IMPORT, SOCKET, Engine, dockerd, run
from tests.live.machine import PYTHON_ENV, Machine
from tests.live.test_memo import TMPFS

pytestmark = pytest.mark.live

SUITES = ("bookworm", "bullseye")
FRONT = '#!/bin/sh\necho "$*" >> /mnt/calls\nexec /mnt/docker "$@"\n'
"""In the place of docker; it writes down what docker is asked."""
PREPARED = f"""
mount -t tmpfs -o mode=755 own /mnt
cp /usr/bin/docker /mnt/docker
printf %s {shlex.quote(FRONT)} > /mnt/front && chmod 755 /mnt/front
touch /mnt/calls && chmod 666 /mnt/calls
mount --bind /mnt/front /usr/bin/docker
start() {{
    setpriv --reuid=user --regid=user --groups=user,docker env -C /home/user HOME=/home/user GPUBIND_MEMO=on \\
        python3 -m gpubind wrap -q -- docker run --rm --network none --gpus all "$@"
}}
saved() {{ echo "$(grep -c ^save /mnt/calls) saved"; }}
show='. /etc/os-release; echo $VERSION_CODENAME; ls /.gpubind/libs | grep -c libcuda.so.1'
"""
SEEN = """
/mnt/docker tag engines:bookworm job:1
for options in '' '-v /tmp:/data/x' '-w /tmp --mount=type=tmpfs,target=/var/lib/stg/y'; do
    start $options job:1 sh -c "$show"
    saved
done
/mnt/docker tag engines:bullseye job:1
start job:1 sh -c "$show"
saved
/mnt/docker save engines:bookworm > /mnt/image.tar
/mnt/docker rmi engines:bookworm > /dev/null
start engines:bookworm true 2> /mnt/missing && echo started
/mnt/docker load -q < /mnt/image.tar > /dev/null
/mnt/docker tag engines:bookworm job:1
start job:1 sh -c "$show"
saved
"""


@pytest.fixture(scope="module")
def docker(trixie: Machine) -> Iterator[Machine]:
    """The machine with two images in docker's store."""
    with dockerd(trixie):
        for suite in SUITES:
            engine = Engine("docker", f"engines:{suite}")
            words = IMPORT.format(program="docker", suite=suite, changes="", excludes=EXCLUDES)
            run(trixie, engine, "sh", "-ec", words)
        yield trixie


def test_an_image_is_saved_once_however_it_is_called_and_whatever_its_start_asks(docker: Machine) -> None:
    """Another image under its name is noticed, and one that was removed and comes back is the same."""
    script = "\n".join(["set -u", *TMPFS, PREPARED, SEEN])
    env = {**PYTHON_ENV, "DOCKER_HOST": SOCKET}
    said = docker.run(["sh", "-c", script], driver=True, binds=[*docker.modules, CONTAINERS], env=env).stdout
    first, other = ["bookworm", "1"], ["bullseye", "1"]
    assert said.splitlines() == [*(*first, "1 saved") * 3, *other, "2 saved", *first, "2 saved"]
