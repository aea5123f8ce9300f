# ruff: noqa: E501 (programs, as long as they are)
"""More programs that try to pass without the answer: at the wire, at what runs them, at the kernel."""

from sandbox_attacks import LIAR, E, F, L, M, S, T, method

from corrgrpo_envs.sandbox import Outcome

FRAME = "import os\ndef frame(text, to=3): os.write(to, len(text).to_bytes(4, 'big') + text)\n"
MACHINE = """
import ctypes, mmap
def run(code):
    page = mmap.mmap(-1, 4096, prot=7)
    page.write(code)
    return ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
"""

TRICKS: dict[str, tuple[str, set[Outcome]]] = {
    # at the wire
    "answers before it is asked": (
        FRAME + "frame(b'K')\nfor _ in range(9): frame(b'V[]\\n\\n\"the-answer-\"\\n')\n" + method("return 1"),
        {F},
    ),
    "half a frame and silence": (
        method("import time; os.write(3, b'\\0\\0\\0\\x09V'); time.sleep(1000)", FRAME),
        {T},
    ),
    "a flood of frames": (method("while True: frame(b'V[]\\n\\n' + b'[' + b'1,' * 9999 + b'1]\\n')", FRAME), {F, T}),
    "talks to itself": (method("r, w = os.pipe(); os.dup2(r, 3); frame(b'Cxx', w); return 1", FRAME), {E}),
    "a frame of 4 GiB": (method("os.write(3, b'\\xff\\xff\\xff\\xff'); return 1", FRAME), {L}),
    "brackets on the wire": (method("frame(b'V[]\\n\\n' + b'[' * 200000 + b'\\n'); return 1", FRAME), {F}),
    "digits on the wire": (method("frame(b'V[]\\n\\n' + b'7' * 2000000 + b'\\n'); return 1", FRAME), {F}),
    "collisions on the wire": (
        method(
            "text = ','.join(str(k * (2**61 - 1)) for k in range(150000)).encode()\n"
            "frame(b'V[]\\n\\n{\"s\":[' + text + b']}\\n')\nimport time; time.sleep(100)",
            FRAME,
        ),
        {F, T},
    ),
    "two tags at once": (method('frame(b\'V[]\\n\\n{"t":[],"s":[]}\\n\'); return 1', FRAME), {F}),
    "a tag that is none": (method("frame(b'V[]\\n\\n{\"__class__\":[]}\\n'); return 1", FRAME), {F}),
    "a range without end": (method("frame(b'V[]\\n\\n{\"r\":[0,1e400,1]}\\n'); return 1", FRAME), {F}),
    "a node of a class of its own": (method('frame(b\'V["Candidate"]\\n[[]]\\n{"n":0}\\n\'); return 1', FRAME), {F}),
    "attributes of the test's objects": (
        method("frame(b'V[]\\n[[[\"__class__\",1]]]\\n1\\n'); return 1", FRAME),
        {F},
    ),
    "edits of arguments that are none": (method("frame(b'V[]\\n\\n1\\n[[[1,2,3],[4]],5]'); return 1", FRAME), {F}),
    "a failure that is a pass": (
        method(
            'frame(b\'E{"classes":["AssertionError"],"message":"","line":null,"missing":null,"outcome":"passed"}\'); return 1',
            FRAME,
        ),
        {F},
    ),
    "a failure of no class": (
        method('frame(b\'E{"classes":[],"message":"","line":null,"missing":null}\'); return 1', FRAME),
        {F},
    ),
    "raises what ends the test": (
        method(
            'frame(b\'E{"classes":["Stop","BaseException"],"message":"","line":null,"missing":null}\'); return 1', FRAME
        ),
        {E},
    ),
    # values
    "metaclass that is every class": (
        method(
            "return C()",
            "class Meta(type):\n    def __eq__(c, o): return True\n    def __hash__(c): return hash(str)\n"
            "    def mro(c): return type.mro(c)\nclass C(metaclass=Meta): pass",
        ),
        {F},
    ),
    "metaclass with a name of its own": (
        method(
            "raise C",
            "class Meta(type):\n    @property\n    def __name__(c): raise SystemExit\nclass C(Exception, metaclass=Meta): pass",
        ),
        {E},
    ),
    "a trace without end": (
        method(
            "raise C",
            "class L:\n    tb_frame = property(lambda s: s)\n    f_code = tb_frame\n    co_filename = ''\n    tb_next = tb_frame\n"
            "class C(Exception):\n    __traceback__ = property(lambda s: L())",
        ),
        {E, T},
    ),
    "a missing module that lies": (
        method("raise C", "class C(ModuleNotFoundError):\n    name = property(lambda s: s)"),
        {E},
    ),
    "liar as key": (method("return {Liar(): 1}", LIAR.format(base="")), {F}),
    "named tuple": (method("from collections import namedtuple; return namedtuple('str', 'x')(1)"), {F}),
    "enumeration": (method("import enum; return enum.StrEnum('X', {'a': 'b'}).a"), {F}),
    "views and proxies": (
        method("import types; return [types.MappingProxyType({}), memoryview(b'x'), {}.keys()]"),
        {F},
    ),
    "a dict that makes its values": (
        method("import collections, os; return collections.defaultdict(os._exit)"),
        {F},
    ),
    "copyreg": (
        method(
            "return C()",
            "import copyreg, os\nclass C(str): pass\ncopyreg.pickle(C, lambda c: (os._exit, (0,)))\ncopyreg.add_extension('os', 'x', 1)",
        ),
        {F},
    ),
    "edited while it is read": (
        method(
            "import threading\nx = list(range(200000))\ndef edit():\n    while True: x.append(x); x.clear(); x.extend([x] * 9)\n"
            "threading.Thread(target=edit, daemon=True).start()\nreturn x"
        ),
        {F, L, E, T},
    ),
    # at what runs it
    "no built-in names": (method("return 1", "import builtins\nvars(builtins).clear()"), {F, E}),
    "no modules": (method("return 1", "import sys\nsys.modules.clear()"), {F, E}),
    "an audit hook that refuses": (
        method("return 1", "import sys\ndef hook(*a): raise SystemExit\nsys.addaudithook(hook)"),
        {F, E},
    ),
    "recursion limit of ten": (method("return 1", "import sys\nsys.setrecursionlimit(12)"), {F, E}),
    "never switches threads": (
        method(
            "return 1",
            "import sys, threading\nsys.setswitchinterval(1e6)\ndef spin():\n    while True: pass\nthreading.Thread(target=spin, daemon=True).start()",
        ),
        {T},
    ),
    "two is three": (
        method("return [2, 1 + 1]", "import ctypes\nctypes.memset(id(2) + 24, 3, 1)"),
        {F, E},
    ),
    "patched runner": (
        method(
            "for o in gc.get_objects():\n    if type(o) is type and o.__name__ in ('Encoder', 'Channel', 'Call', 'Bounds'):\n"
            "        for name in list(vars(o)):\n            if callable(vars(o)[name]): setattr(o, name, lambda *a, **k: b'V[]\\n\\n1\\n')\nreturn 1",
            "import gc",
        ),
        {F, E},
    ),
    "objects of a frozen past": (
        method("gc.unfreeze()\nfor o in gc.get_objects():\n    if type(o) is dict: o.clear()\nreturn 1", "import gc"),
        {F, E, M},
    ),
    "comes back from the dead": (
        method(
            "x = Z(); del x; gc.collect(); return 1",
            "import gc\nclass Z:\n    def __del__(s): global z; z = Z(); del z",
        ),
        {F, E, T},
    ),
    "finalisers at the end": (
        method(
            "return x",
            "import weakref, os, gc\nclass X(list): pass\nx = X()\nweakref.finalize(x, os._exit, 0)\ngc.callbacks.append(lambda *a: os._exit(0))",
        ),
        {F, E},
    ),
    "the entry point exits": (
        "class Solution:\n    @property\n    def f(self): raise SystemExit(0)\n",
        {E},
    ),
    "the entry point is a spy": (
        "class Spy:\n    def __call__(self, *a): return self\n    __eq__ = lambda s, o: True\nclass Solution:\n    f = Spy()\n",
        {F},
    ),
    "ends by fault handler": (
        method(
            "import faulthandler, time; faulthandler.dump_traceback_later(0.05, exit=True); time.sleep(9); return 1"
        ),
        {E},
    ),
    "a hundred warnings": (
        method("import warnings\nfor k in range(10**5): warnings.warn(str(k))\nreturn 1"),
        {F, T},
    ),
    "a codec that is slow to fail": (
        "# -*- coding: idna -*-\n" + method("return ('\\u0661' * 10**5).encode('idna')"),
        {E, T, S},
    ),
    # at the kernel
    "stops itself": (method("import os, signal; os.kill(os.getpid(), signal.SIGSTOP); return 1"), {E}),
    "signals its own thread": (
        method("import signal, threading; signal.pthread_kill(threading.get_ident(), 19); return 1"),
        {E},
    ),
    "calls of another machine": (method("return run(b'\\xb8\\x14\\0\\0\\0\\xcd\\x80\\xc3')", MACHINE), {E}),
    "calls of a third machine": (  # getpid's number with the bit of x32
        method(
            "import errno\nfound = run(b'\\xb8\\x27\\0\\0\\x40\\x0f\\x05\\xc3')\nif found < 0: raise OSError(-found)\nreturn found",
            MACHINE,
        ),
        {E},
    ),
    "illegal instruction": (method("return run(b'\\x0f\\x0b')", MACHINE), {E}),
    "jumps nowhere": (method("import ctypes; return ctypes.CFUNCTYPE(ctypes.c_int)(1)()"), {E}),
    "smashes its stack": (method("import ctypes; ctypes.memset(ctypes.addressof(ctypes.c_char()), 65, 1 << 22)"), {E}),
    "smashes its heap": (
        method("import ctypes\nfor back in range(1, 64): ctypes.memset(id(n) - (back << 12), 255, 4096)\nreturn 1"),
        {E, F, T},
    ),
    "wakes at its end": (
        method("import signal; signal.signal(signal.SIGXCPU, lambda *a: None)\nwhile True: pass"),
        {T},
    ),
    "a pipe to nowhere": (method("import os; os.dup2(os.pipe()[1], 3); return 1"), {E, T}),
    "maps all addresses": (
        method(
            "import mmap\nx = []\nsize = 1 << 28\nwhile size >= 4096:\n    try: x.append(mmap.mmap(-1, size))\n    except OSError: size >>= 1\nreturn 1"
        ),
        {E, F, M, T, L},
    ),
    "a thread with all the stack": (
        method(
            "import threading\nthreading.stack_size(1 << 28)\nfor _ in range(9): threading.Thread(target=print, daemon=True).start()\nreturn 1"
        ),
        {F, E},
    ),
    "closes what watches it": (
        method(
            "import os\nfor fd in range(3, 256):\n    if fd != 3:\n        try: os.dup2(3, fd)\n        except OSError: pass\nreturn 1"
        ),
        {F},
    ),
}
