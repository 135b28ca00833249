"""Opens Parquet that nobody vouches for, in a process that can do little else: the other end of `limited`.

It is run as a file, imports nothing of this package, and is told its limits on the command line. Requests come
on stdin (columns as JSON, then the file, each behind its length), answers go to stdout (T and a table as an
Arrow stream, or E and a sentence, behind its length).
"""

from __future__ import annotations

import json
import resource
import sys


def _limit(memory: int, seconds: int) -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime) + seconds
    _lower(resource.RLIMIT_CORE, 0, 0)
    _lower(resource.RLIMIT_FSIZE, 0, 0)
    _lower(resource.RLIMIT_AS, memory, memory)
    _lower(resource.RLIMIT_CPU, soft, resource.RLIM_INFINITY)


def _lower(what: int, soft: int, hard: int) -> None:
    # Whoever started this may have set a lower limit, which nobody can raise again.
    most = resource.getrlimit(what)[1]
    if most != resource.RLIM_INFINITY:
        soft, hard = min(soft, most), most if hard == resource.RLIM_INFINITY else min(hard, most)
    resource.setrlimit(what, (soft, hard))


def _take() -> bytes | None:
    head = sys.stdin.buffer.read(8)
    return sys.stdin.buffer.read(int.from_bytes(head)) if len(head) == 8 else None


def _serve(memory: int, seconds: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    # No more files from here on: what is to be read comes through the pipe.
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
    while (asked := _take()) is not None and (data := _take()) is not None:
        _limit(memory, seconds)
        columns = json.loads(asked)
        try:
            with pq.ParquetFile(pa.BufferReader(data)) as file:
                absent = sorted(set(columns or ()) - set(file.schema_arrow.names))
                if absent:
                    raise ValueError(f"no column {absent[0]!r}")  # noqa: TRY301, TRY003, EM102 - it is an answer
                table = file.read(columns=columns, use_threads=False)
            table.validate(full=True)
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
            kind, answer = b"T", memoryview(sink.getvalue())
        except Exception as error:  # whatever the library says about a strange file is an answer
            said = (str(error) or type(error).__name__).splitlines()[0][:500]
            kind, answer = b"E", memoryview(said.encode("utf-8", "replace"))
        sys.stdout.buffer.write(kind + len(answer).to_bytes(8))
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]))
