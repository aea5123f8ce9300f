"""What runs inside a sandbox worker: the standard library alone, relative imports only.

The sources of this package are handed to a fresh interpreter as text (`boot`), so that the same code runs in a
process beside the caller and in a container that has nothing but Python.

| module | what |
| --- | --- |
| `boot` | makes the modules importable from the text received on standard input |
| `broker` | takes requests from the caller, has programs run, answers |
| `zygote` | the warm interpreter; forks one child per program, watches limits |
| `layers`, `namespaces`, `landlock`, `seccomp`, `syscalls`, `paths` | what holds a child |
| `candidate` | the child that runs the program under test |
| `judge` | the child that runs the test, with a proxy for the program |
| `timing` | alternated rounds of two programs, timed from outside |
| `values`, `frames`, `textmatch` | values and messages on the wire, comparison of printed output |
"""
