"""What a worker left in shared memory is removed; what may be anybody's is not."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from ngraphbench.session.residue import SharedMemory
from ngraphbench.session.wording import leftovers

SIZE = 2 * 1024**2


def test_only_what_is_proven_to_be_the_workers_goes(tmp_path: Path) -> None:
    (tmp_path / "before-123").write_bytes(b"x")
    shared = SharedMemory(tmp_path)
    (tmp_path / "of-somebody").write_bytes(b"x" * SIZE)
    (tmp_path / "torch_123_7").write_bytes(b"x" * SIZE)
    (tmp_path / "pid-1234").write_bytes(b"x")
    mapped = tmp_path / "mapped"
    mapped.write_bytes(b"x" * SIZE)
    with mapped.open("r+b") as file, mmap.mmap(file.fileno(), SIZE):
        shared.note([os.getpid()])
    left = shared.clear([123])
    assert left >= 2 * SIZE
    assert {path.name for path in tmp_path.iterdir()} == {"before-123", "of-somebody", "pid-1234"}
    assert leftovers(0, left) == "4 MiB of shared memory"


def test_a_folder_that_is_not_there_is_empty(tmp_path: Path) -> None:
    shared = SharedMemory(tmp_path / "nowhere")
    shared.note([os.getpid()])
    assert shared.clear([os.getpid()]) == 0
