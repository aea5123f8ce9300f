"""What a program may read: the standard library and the shared libraries it needs, no installed packages."""

import glob
import os
import sys

_PACKAGES = ("site-packages", "dist-packages")
_LIBRARY_FOLDERS = ("/lib64", "/usr/lib64", "/lib/*-linux-gnu", "/usr/lib/*-linux-gnu", "/lib", "/usr/lib")


def standard_library() -> str:
    """The folder of the standard library."""
    return os.path.dirname(os.path.realpath(os.__file__))


def library_entries() -> list[str]:
    """Files and folders of the standard library, installed packages left out."""
    folder = standard_library()
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name not in _PACKAGES]


def shared_libraries() -> list[str]:
    """Folders of shared libraries; of folders that hold Python packages too, the libraries one by one."""
    own = [os.path.join(os.path.realpath(prefix), "lib") for prefix in (sys.base_prefix, sys.base_exec_prefix)]
    found: dict[str, None] = {}
    for pattern in (*own, *_LIBRARY_FOLDERS):
        for folder in glob.glob(pattern):
            real = os.path.realpath(folder)
            if _holds_packages(real):
                found.update(dict.fromkeys(filter(os.path.isfile, glob.glob(f"{real}/*.so*"))))
            elif os.path.isdir(real):
                found[real] = None
    return list(found)


def folders_to_show() -> list[str]:
    """Folders that a private root file system must hold, outermost ones only."""
    own = [os.path.join(os.path.realpath(prefix), "lib") for prefix in (sys.base_prefix, sys.base_exec_prefix)]
    wanted = [*own, standard_library(), "/lib64", "/usr/lib64", "/lib", "/usr/lib"]
    return _outermost([folder for folder in dict.fromkeys(wanted) if os.path.isdir(folder)])


def folders_to_hide() -> list[str]:
    """Folders of installed packages inside those that are shown."""
    hidden: list[str] = []
    for shown in folders_to_show():
        for depth in ("", "*/", "*/*/"):
            for name in _PACKAGES:
                hidden += filter(os.path.isdir, glob.glob(f"{shown}/{depth}{name}"))
    return _outermost(list(dict.fromkeys(map(os.path.realpath, hidden))))


def _outermost(folders: list[str]) -> list[str]:
    return [one for one in folders if not any(one.startswith(other + "/") for other in folders)]


def _holds_packages(folder: str) -> bool:
    return bool(glob.glob(f"{folder}/python3*"))
