"""Whose glibc do the image's programs run on?"""

from __future__ import annotations

from typing import Any, Optional

import pytest

from gpubind import plan
from gpubind.host.record import dump_record, parse_record
from gpubind.host.recorded import RecordedHost
from gpubind.image.facts import Image
from gpubind.loader.container import Container
from gpubind.model import Plan, Request
from tests.support.amd import amd_host, cached, glibcxx
from tests.support.amd import kernel as amds_kernel
from tests.support.c_library import LIB, LOADER, c_library, converters, programs
from tests.support.driver import V, host, kernel, ubuntu
from tests.support.elf import I386, elf
from tests.support.images import MUSL, STATIC, glibc, image
from tests.support.surveys import survey
from tests.support.trees import File, Item, Link, Spec

NEW = f"libnvidia-new.so.{V}"
NEEDS_NEWER: Spec = {f"{LIB}/{NEW}": elf(NEW, needs={"libc.so.6": ("GLIBC_2.38",)})}
NEEDY_CUDA: Spec = {f"{LIB}/libcuda.so.{V}": elf("libcuda.so.1", needs={"libc.so.6": ("GLIBC_2.38",)})}
HOSTS = c_library("2.41")
MERGED = (glibc("2.36"), c_library("2.36"))
SPLIT = (glibc("2.30"), {f"{LIB}/libc.so.6": Link("libc-2.31.so")}, c_library("2.30", release="2.31"))


def planned(opened: Optional[Image], *parts: Spec, hosts: Spec = HOSTS, **request: Any) -> Plan:
    return plan(host(ubuntu(), kernel(), hosts, NEEDS_NEWER, *parts), Request(**request), image=opened)


def exchanged(made: Plan) -> dict[str, str]:
    """The host's file at each target."""
    return {mount.target: mount.source or "" for mount in made.mounts if mount.rule == "libc"}


def codes(made: Plan) -> set[str]:
    return {finding.code for finding in made.findings if finding.code.startswith("libc-")}


def libraries(made: Plan) -> set[str]:
    return {mount.target.rpartition("/")[2] for mount in made.mounts if mount.kind == "library"}


def without_the_question(made: Plan) -> Plan:
    return made._replace(request=made.request._replace(libc="image"))


def test_each_file_of_the_image_gets_the_hosts_at_its_real_path() -> None:
    made = exchanged(planned(image(*SPLIT), libc="host"))
    assert made[f"{LIB}/libc-2.31.so"] == f"{LIB}/libc.so.6"
    assert made[f"{LIB}/ld-2.31.so"] == f"{LIB}/{LOADER}"
    assert made[f"{LIB}/libpthread-2.31.so"] == f"{LIB}/libpthread.so.0"
    assert not [target for target in made if target.endswith((".so.6", ".so.2"))]  # these are links in the image


def test_the_loader_is_at_the_path_that_programs_name() -> None:
    opened = image(*MERGED)
    made = planned(opened, libc="host")
    container = Container(opened.loader, host(HOSTS).driver, made.mounts, made.env, "")
    there = container.locate(f"/lib64/{LOADER}")
    assert there is not None
    assert there.mount is not None
    assert there.mount.source == f"{LIB}/{LOADER}"


def test_what_only_loads_with_it_comes_along() -> None:
    assert NEW not in libraries(planned(image(*MERGED)))
    made = planned(image(*MERGED), libc="host")
    assert NEW in libraries(made)
    assert codes(made) == {"libc-host"}
    assert "image-libc" not in {finding.code for finding in made.findings}


def test_what_only_the_host_has_lands_among_the_libraries() -> None:
    more = c_library("2.41", ("libmvec.so.1", "libnss_dns.so.2"))
    made = exchanged(planned(image(*MERGED), more, libc="host"))
    assert made["/.gpubind/libs/libmvec.so.1"] == f"{LIB}/libmvec.so.1"
    assert not [target for target in made if "nss_dns" in target]  # opened by its name, and by nobody in this image


def test_glibcs_own_programs_and_converters_go_with_it() -> None:
    both = (converters(), programs("iconv", "getconf"))
    made = exchanged(planned(image(*MERGED, *both), *both, libc="host"))
    assert {"/usr/bin/iconv", "/usr/bin/getconf", f"{LIB}/gconv"} <= {*made}
    kinds = {
        str(mount.target): (mount.kind, mount.options)
        for mount in planned(image(*MERGED, *both), *both, libc="host").mounts
    }
    assert kinds[f"{LIB}/gconv"] == ("directory", ("ro", "nosuid", "nodev"))  # modules are run from there


def test_a_program_that_is_a_link_to_another_projects_stays() -> None:
    busybox: Spec = {"/usr/bin/busybox": File(elf(kind=2), 0o755), "/usr/bin/getconf": Link("busybox")}
    made = exchanged(planned(image(*MERGED, busybox), programs("getconf"), libc="host"))
    assert not [target for target in made if target.startswith("/usr/bin/")]


AS_IT_IS = {
    "a newer image": (image(glibc("2.41"), c_library("2.41")), c_library("2.38")),
    "an image as new": (image(glibc("2.41"), c_library("2.41")), HOSTS),
    "musl": (image(MUSL), HOSTS),
    "no C library": (image(STATIC), HOSTS),
    "another architecture": (image(glibc("2.36", machine=183)), HOSTS),
}


@pytest.mark.parametrize("libc", ["host", "auto"])
@pytest.mark.parametrize("name", AS_IT_IS)
def test_where_there_is_nothing_to_exchange_the_plan_is_as_it_was(name: str, libc: str) -> None:
    opened, hosts = AS_IT_IS[name]
    made = planned(opened, hosts=hosts, libc=libc)
    assert without_the_question(made) == planned(opened, hosts=hosts)


def test_auto_leaves_the_plan_as_it_was_where_nothing_that_was_asked_for_needs_it() -> None:
    opened = image(*MERGED)
    fine = plan(host(ubuntu(), kernel(), HOSTS), Request(libc="auto"), image=opened)
    assert without_the_question(fine) == plan(host(ubuntu(), kernel(), HOSTS), Request(), image=opened)
    assert exchanged(planned(opened, libc="auto", caps=("utility",))) == {}


def test_auto_is_host_where_cuda_cannot_do_without() -> None:
    opened = image(*MERGED)
    made = planned(opened, NEEDY_CUDA, libc="auto")
    assert exchanged(made) == exchanged(planned(opened, NEEDY_CUDA, libc="host")) != {}
    assert "libcuda.so.1" in libraries(made)


def test_by_default_the_hint_says_what_would_help() -> None:
    made = planned(image(*MERGED))
    (finding,) = [finding for finding in made.findings if finding.code == "image-libc"]
    assert f"{NEW} loads: --libc host" in (finding.hint or "")
    assert exchanged(made) == {}
    (decision,) = [decision for decision in made.decisions if decision.subject == "libc.so.6"]
    assert (decision.verdict, decision.rule, decision.step) == ("left-out", "libc", "side")


def test_what_still_lacks_something_else_is_not_helped() -> None:
    stuck: Spec = {f"{LIB}/{NEW}": elf(NEW, needs={"libc.so.6": ("GLIBC_2.38",), "libz.so.1": ("ZLIB_2",)})}
    own: Spec = {f"{LIB}/libz.so.1": elf("libz.so.1", defines=("libz.so.1", "ZLIB_1"))}
    made = planned(image(*MERGED, own), stuck)
    (finding,) = [finding for finding in made.findings if finding.code == "image-libc"]
    assert "--libc" not in (finding.hint or "")
    assert NEW not in libraries(planned(image(*MERGED, own), stuck, libc="host"))


def test_all_or_nothing() -> None:
    hosts = c_library("2.41", ("libm.so.6", "libdl.so.2"))
    made = planned(image(*SPLIT), hosts=hosts, libc="host")
    assert exchanged(made) == {}
    (finding,) = [finding for finding in made.findings if finding.code == "libc-refused"]
    assert "libpthread.so.0, libresolv.so.2, librt.so.1" in (finding.why or "")


def test_a_loader_that_would_not_find_the_images_libraries_stays_on_the_host() -> None:
    elsewhere = {path: item for path, item in glibc("2.36").items() if "x86_64" not in path}
    red_hat = (
        elsewhere,
        c_library("2.36", directory="/usr/lib64", loader=f"/usr/lib64/{LOADER}"),
        {"/lib64": Link("usr/lib64")},
    )
    made = planned(image(*red_hat), libc="host")
    assert (exchanged(made), codes(made)) == ({}, {"libc-refused"})
    cached = planned(image(*red_hat, {"/etc/ld.so.cache": b""}), libc="host")
    assert exchanged(cached)["/usr/lib64/libc.so.6"] == f"{LIB}/libc.so.6"


@pytest.mark.parametrize("directory", ["/tmp", "/home/user", "/dev/shm", "/var/tmp"])
def test_where_a_container_has_the_hosts_own_files_nothing_is_put(directory: str) -> None:
    """Apptainer would make an empty file there, on the host, by the name that an image gives."""
    moved: Spec = {f"{LIB}/libm.so.6": Link(f"{directory}/libm"), f"{directory}/libm": elf("libm.so.6")}
    made = planned(image(*MERGED, moved), libc="host")
    assert (exchanged(made), codes(made)) == ({}, {"libc-refused"})
    (finding,) = [finding for finding in made.findings if finding.code == "libc-refused"]
    assert f"{directory}/libm" in (finding.why or "")


def test_a_host_without_a_glibc_where_loaders_look_says_that_it_has_none() -> None:
    made = planned(image(*MERGED), hosts={}, libc="host")
    assert (exchanged(made), codes(made)) == ({}, {"libc-refused"})
    (finding,) = [finding for finding in made.findings if finding.code == "libc-refused"]
    assert "store" in (finding.why or "")
    assert codes(planned(image(*MERGED), hosts={}, libc="auto")) == set()
    assert codes(planned(image(glibc("2.36", I386), c_library("2.36", machine=I386)), libc="host")) == set()


def test_without_an_image_nothing_is_exchanged_and_that_is_said() -> None:
    for asked in ("host", "auto"):
        made = planned(None, libc=asked)
        assert (exchanged(made), codes(made)) == ({}, {"libc-without-image"})


def test_32_bit_programs_get_theirs_with_compat32() -> None:
    small: dict[str, Any] = {"directory": "/usr/lib/i386-linux-gnu", "loader": "/lib/ld-linux.so.2", "machine": I386}
    driver: Spec = {f"/usr/lib/i386-linux-gnu/libcuda.so.{V}": elf("libcuda.so.1", machine=I386, bits=32)}
    hosts = {**HOSTS, **c_library("2.41", **small), **driver}
    opened = image(*MERGED, c_library("2.36", **small), {"/etc/ld.so.conf": f"{LIB}\n"})
    assert not [target for target in exchanged(planned(opened, hosts=hosts, libc="host")) if "i386" in target]
    made = planned(opened, hosts=hosts, libc="host", caps=("compute", "compat32"))
    both = {"/usr/lib/i386-linux-gnu/libc.so.6", "/usr/lib/i386-linux-gnu/ld-linux.so.2", f"{LIB}/libc.so.6"}
    assert both <= {*exchanged(made)}


def test_every_other_soname_is_still_decided_by_itself() -> None:
    def rocm(*cxx: str) -> Spec:
        runtime = elf(
            "libhsa-runtime64.so.1", needed=("libstdc++.so.6", "libc.so.6"), needs={"libc.so.6": ("GLIBC_2.38",)}
        )
        return {f"{LIB}/libhsa-runtime64.so.1": runtime, f"{LIB}/libstdc++.so.6": elf("libstdc++.so.6", defines=cxx)}

    newer = rocm("libstdc++.so.6", *glibcxx(33))
    machine = amd_host(HOSTS, {"/lib": Link("usr/lib")}, newer, amds_kernel(gpus=1))
    own: Spec = {f"{LIB}/libstdc++.so.6": elf("libstdc++.so.6", defines=("libstdc++.so.6", *glibcxx(30)))}
    made = plan(machine, Request(vendors=("amd",), libc="auto"), image=image(*MERGED, own))
    assert "libhsa-runtime64.so.1" in libraries(made)
    assert "libstdc++.so.6" not in libraries(made)  # the image's has all that is needed of it


def test_check_sees_the_newer_loaders_rules() -> None:
    stack: Spec = {f"{LIB}/{NEW}": elf(NEW, executable_stack=True)}
    opened = image(*MERGED)
    machine = host(ubuntu(), kernel(), HOSTS, stack)
    for libc, refused in (("image", []), ("host", ["stack"])):
        made = plan(machine, Request(libc=libc), image=opened)  # type: ignore[arg-type]
        container = Container(opened.loader, machine.driver, made.mounts, made.env, "")
        assert [failure.kind for failure in container.failures(f"/.gpubind/libs/{NEW}")] == refused


def test_one_plan_for_two_vendors_has_it_once() -> None:
    both: dict[str, Item] = {**ubuntu(), **kernel(), **HOSTS, **NEEDS_NEWER, **amds_kernel(gpus=1)}
    made = plan(amd_host(both), Request(vendors=("nvidia", "amd"), libc="host"), image=image(*MERGED))
    assert len(exchanged(made)) == len([mount for mount in made.mounts if mount.rule == "libc"])
    assert [finding.code for finding in made.findings].count("libc-host") == 1
    assert not [decision for decision in made.decisions if decision.rule == "collision"]


@pytest.mark.parametrize(
    ("userspace", "bound"), [("auto", set()), ("image", set()), ("host", {"libhsa-runtime64.so.1"})]
)
def test_beside_the_hosts_glibc_the_user_decides_whose_rocm_an_image_with_its_own_gets(
    userspace: str, bound: set[str]
) -> None:
    rocm: Spec = {f"{LIB}/libhsa-runtime64.so.1": elf("libhsa-runtime64.so.1", needed=("libc.so.6",))}
    machine: Spec = {**HOSTS, **rocm, **cached({**HOSTS, **rocm}, LIB), **amds_kernel(gpus=1)}
    request = Request(vendors=("amd",), libc="host", userspace=userspace)  # type: ignore[arg-type]
    made = plan(amd_host(machine), request, image=image(*MERGED, rocm))
    assert codes(made) == {"libc-host"}
    assert {name for name in libraries(made) if name.startswith("libhsa")} == bound


def test_of_an_older_record_nothing_is_exchanged_and_that_is_said() -> None:
    machine = survey(host(ubuntu(), kernel(), HOSTS))
    there = machine.driver.directories[LIB]
    kept = {name: entry for name, entry in there.entries.items() if name != "libm.so.6"}
    older = {**machine.driver.directories, LIB: there._replace(entries=kept, others=(*there.others, "libm.so.6"))}
    again = RecordedHost(machine._replace(driver=machine.driver._replace(directories=older)), "test")
    made = plan(again, Request(libc="host"), image=image(*MERGED))
    assert exchanged(made) == {}
    (finding,) = [finding for finding in made.findings if finding.code == "libc-refused"]
    assert finding.why == "the record of the host has no facts of libm.so.6"


def test_a_record_of_today_plans_as_its_host_does() -> None:
    machine = host(ubuntu(), kernel(), HOSTS, NEEDS_NEWER, converters(), programs("getconf"))
    again = RecordedHost(parse_record(dump_record(survey(machine), "1").encode()), "test")
    opened = image(*MERGED, converters(), programs("getconf"))
    made = plan(again, Request(libc="host"), image=opened)
    assert exchanged(made) == exchanged(plan(machine, Request(libc="host"), image=opened)) != {}
