"""Copies of the rig's machines, to be changed."""

from __future__ import annotations

import os
import re
import stat
import subprocess

OF_THE_DRIVER = re.compile(r"nvidia|cuda|libnv|nvoptix", re.IGNORECASE)


def copy_without_driver(source: str, root: str) -> None:
    """Copy *source* to *root* by links, except what is written to; of the driver nothing."""
    for name in ("proc", "sys", "dev", "run", "tmp", "var/lib", "var/tmp", "var/log", "srv"):
        os.makedirs(f"{root}/{name}")
    for name in ("tmp", "var/tmp"):
        os.chmod(f"{root}/{name}", 0o1777)
    for name in ("bin", "sbin", "lib", "lib64", "usr", "opt", "root", "home", "etc"):
        subprocess.run(["cp", "-al" if name in ("usr", "opt") else "-a", f"{source}/{name}", root], check=True)
    subprocess.run(["cp", "-a", f"{source}/var/lib/apptainer", f"{root}/var/lib"], check=True)
    for directory, directories, files in (*os.walk(f"{root}/usr"), *os.walk(f"{root}/etc")):
        for name in (*files, *directories):
            path = f"{directory}/{name}"
            if OF_THE_DRIVER.search(path[len(root) :]) and (name in files or os.path.islink(path)):
                os.unlink(path)
    for name in os.listdir(f"{source}/dev"):
        facts = os.lstat(f"{source}/dev/{name}")
        if not OF_THE_DRIVER.search(name) and name not in ("dri", "kfd"):
            if stat.S_ISCHR(facts.st_mode) or stat.S_ISBLK(facts.st_mode):
                os.mknod(f"{root}/dev/{name}", facts.st_mode, facts.st_rdev)
                os.chmod(f"{root}/dev/{name}", stat.S_IMODE(facts.st_mode))
            elif stat.S_ISLNK(facts.st_mode):
                os.symlink(os.readlink(f"{source}/dev/{name}"), f"{root}/dev/{name}")
