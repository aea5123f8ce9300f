"""A program that tries the doors of its sandbox and says which of them opened."""

PROBES = """
import ctypes, os, resource, socket, subprocess, sys, threading

libc = ctypes.CDLL(None, use_errno=True)

def libc_call(name, *arguments):
    if getattr(libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), name)

def system_call(*arguments):
    if libc.syscall(*map(ctypes.c_long, arguments)) < 0:
        raise OSError(ctypes.get_errno(), "system call")

def raised_limit():
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

def signal_owner():
    import fcntl
    fcntl.fcntl(3, fcntl.F_SETOWN, os.getppid())

def written(path):
    with open(path, "w") as file:
        file.write("x")

def read(path):
    with open(path, "rb") as file:
        file.read(1)

DOORS = {
    "read /etc/passwd": lambda: read("/etc/passwd"),
    "read /etc/hostname": lambda: read("/etc/hostname"),
    "list /": lambda: os.listdir("/"),
    "list /tmp": lambda: os.listdir("/tmp"),
    "list /home": lambda: os.listdir("/home"),
    "write /tmp": lambda: written("/tmp/x"),
    "write the library": lambda: written(os.path.join(os.path.dirname(os.__file__), "x.py")),
    "make a folder": lambda: os.mkdir("/tmp/d"),
    "link": lambda: os.symlink("/etc/passwd", "/tmp/l"),
    "remove": lambda: os.remove(os.__file__),
    "rename": lambda: os.rename(os.__file__, "/tmp/os.py"),
    "chmod": lambda: os.chmod(os.__file__, 0o777),
    "installed packages": lambda: os.listdir(os.path.join(os.path.dirname(os.__file__), "site-packages"))[0],
    "inet socket": lambda: socket.socket(),
    "unix socket": lambda: socket.socket(socket.AF_UNIX),
    "netlink socket": lambda: socket.socket(16, 3),
    "socket pair": lambda: socket.socketpair(),
    "fork": lambda: os.fork(),
    "vfork and exec": lambda: subprocess.run(["/bin/true"]),
    "exec": lambda: os.execv(sys.executable or "/bin/true", ["x"]),
    "clone with a new namespace": lambda: system_call(56, 0x10000000, 0, 0, 0, 0),
    "signal the parent": lambda: os.kill(os.getppid(), 0),
    "signal process 1": lambda: os.kill(1, 0),
    "signal all": lambda: os.kill(-1, 0),
    "signal through a descriptor": signal_owner,
    "pidfd of the parent": lambda: os.pidfd_open(os.getppid()),
    "memory of the parent": lambda: read("/proc/%d/maps" % os.getppid()),
    "own memory file": lambda: read("/proc/self/mem"),
    "ptrace": lambda: libc_call("ptrace", 16, os.getppid(), 0, 0),
    "process_vm_readv": lambda: system_call(310, os.getppid(), 0, 0, 0, 0, 0),
    "memfd": lambda: os.memfd_create("x"),
    "io_uring": lambda: system_call(425, 1, 0),
    "unshare": lambda: libc_call("unshare", 0x10000000),
    "mount": lambda: libc_call("mount", b"x", b"/", b"tmpfs", 0, None),
    "become root": lambda: os.setuid(0),
    "other core": lambda: os.sched_setaffinity(0, {0}),
    "priority": lambda: os.nice(-5),
    "raise a limit": raised_limit,
    "bpf": lambda: system_call(321, 0, 0, 0),
    "user fault handling": lambda: system_call(323, 0),
    "keys": lambda: system_call(250, 0, 0, 0),
    "performance events": lambda: system_call(298, 0, 0, 0, 0, 0),
    "host name": lambda: socket.sethostname("x"),
    "a timer": lambda: system_call(222, 0, 0, 0),
}

def probe():
    opened = {}
    for name, door in DOORS.items():
        try:
            door()
            opened[name] = "open"
        except (OSError, IndexError, ValueError) as error:
            if isinstance(error, OSError) and error.errno == 38:
                opened[name] = "not tried"
    return opened, len(DOORS)

def refused(numbers):
    answered = []
    for number in numbers:
        ctypes.set_errno(0)
        result = libc.syscall(*map(ctypes.c_long, (number, -1, -1, -1, -1, -1, -1)))
        if result >= 0 or ctypes.get_errno() not in (1, 38):  # EPERM, ENOSYS
            answered.append(number)
    return answered

def descriptors():
    found = []
    for number in range(256):
        try:
            os.fstat(number)
            found.append(number)
        except OSError:
            pass
    return found

def environment():
    return dict(os.environ), sys.argv, sys.path, os.getuid(), os.getcwd()
"""

# Numbers of system calls on x86-64 that reach beyond the process, or undo what holds it.
REACHING = {
    "shmget": 29, "alarm": 37, "setitimer": 38, "socket": 41, "connect": 42, "sendto": 44, "sendmsg": 46, "recvmsg": 47,
    "shutdown": 48, "bind": 49, "listen": 50, "socketpair": 53, "setsockopt": 54, "fork": 57, "vfork": 58, "execve": 59,
    "kill": 62, "semget": 64, "msgget": 68, "flock": 73, "truncate": 76, "ftruncate": 77, "chdir": 80, "rename": 82,
    "mkdir": 83, "link": 86, "unlink": 87, "symlink": 88, "chmod": 90, "chown": 92, "umask": 95, "ptrace": 101,
    "syslog": 103, "setuid": 105, "setgid": 106, "setpgid": 109, "setsid": 112, "setgroups": 116, "setresuid": 117,
    "capset": 126, "rt_sigqueueinfo": 129, "mknod": 133, "personality": 135, "setpriority": 141,
    "sched_setscheduler": 144, "mlockall": 151, "modify_ldt": 154, "pivot_root": 155, "prctl": 157, "arch_prctl": 158,
    "setrlimit": 160, "chroot": 161, "mount": 165, "swapon": 167, "reboot": 169, "init_module": 175, "setxattr": 188,
    "tkill": 200, "sched_setaffinity": 203, "io_setup": 206, "timer_create": 222, "tgkill": 234, "mq_open": 240,
    "kexec_load": 246, "add_key": 248, "keyctl": 250, "ioprio_set": 251, "inotify_init": 253, "unlinkat": 263,
    "unshare": 272, "splice": 275, "vmsplice": 278, "signalfd": 282, "timerfd_create": 283, "eventfd": 284,
    "fallocate": 285, "rt_tgsigqueueinfo": 297, "perf_event_open": 298, "fanotify_init": 300, "name_to_handle_at": 303,
    "open_by_handle_at": 304, "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312,
    "finit_module": 313, "sched_setattr": 314, "seccomp": 317, "memfd_create": 319, "bpf": 321, "execveat": 322,
    "userfaultfd": 323, "copy_file_range": 326, "pidfd_send_signal": 424, "io_uring_setup": 425, "open_tree": 428,
    "move_mount": 429, "fsopen": 430, "pidfd_open": 434, "clone3": 435, "openat2": 437, "pidfd_getfd": 438,
    "process_madvise": 440, "mount_setattr": 442, "landlock_create_ruleset": 444, "memfd_secret": 447,
}  # fmt: skip
