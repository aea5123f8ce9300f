"""What broker and zygote tell each other: records of fixed form, so that reading one touches little memory.

The zygote forks once a program. Every page of memory that it, or a child, writes to after a fork is copied, which
is most of what a program costs; parsing text would write to many.
"""

import struct

START, RENEW, STOP = b"S", b"R", b"X"
STARTED, FAILED, ENDED = b"s", b"f", b"e"
ROLES = ("candidate", "judge", "timed")
REASONS = ("", "cpu", "wall")

# kind, number, group, role, core (-1: any), bytes of memory, CPU seconds, wall seconds
start = struct.Struct("=cIIbhQdd")
# kind, number, group, CPU seconds and wall seconds from now on
renew = struct.Struct("=cIIdd")
# kind, number of the child to kill, number of the child that may rest (0: none)
stop = struct.Struct("=cII")
# kind, number, process
started = struct.Struct("=cIi")
# kind, number; a text follows
failed = struct.Struct("=cI")
# kind, number, status, reason, whether all layers were on, CPU seconds, wall seconds, bytes
ended = struct.Struct("=cIib?ddQ")
