//! A program that treats the device's descriptors as roughly as it may.

use std::path::PathBuf;
use std::process::Command;

/// The library that cargo has built beside this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().unwrap();
    let places = [folder.to_owned(), folder.parent().unwrap().to_owned()];
    let found = places.iter().map(|place| place.join("libwarpverbs_preload.so"));
    found.into_iter().find(|path| path.exists()).expect("the library is built for its tests")
}

/// An `ioctl` without a valid header is EINVAL on a device, and ENOTTY on anything else.
const PROGRAM: &str = r#"
import errno, fcntl, os, stat, subprocess, sys

DEVICE = "/dev/infiniband/uverbs0"

def asked(fd):
    try:
        fcntl.ioctl(fd, 0xc0181b01, bytes(24))
    except OSError as error:
        return errno.errorcode[error.errno]
    return "answered"

found = os.stat(DEVICE)
assert stat.S_ISCHR(found.st_mode) and os.access(DEVICE, os.R_OK | os.W_OK)
assert not os.path.exists("/dev/infiniband/uverbs250")
# By statx.
told = subprocess.check_output(["stat", "-c", "%F %t:%T", DEVICE], text=True)
assert told == "character special file e7:c0\n", told

fd = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
opened = os.fstat(fd)
assert stat.S_ISCHR(opened.st_mode) and opened.st_rdev == found.st_rdev == os.makedev(231, 192)
assert asked(fd) == "EINVAL", asked(fd)

# A duplicate is the device; the number is another file's when it is used again.
copy = os.dup(fd)
os.close(fd)
null = os.open("/dev/null", os.O_RDWR)
assert null == fd
assert asked(null) == "ENOTTY", asked(null)
assert asked(copy) == "EINVAL", asked(copy)
assert not stat.S_ISCHR(os.fstat(os.memfd_create("other")).st_mode)

# Two opened devices are two files.
second = os.open(DEVICE, os.O_RDWR)
assert os.fstat(second).st_ino != os.fstat(copy).st_ino

# The NIC's thread is not in a child.
child = os.fork()
if child == 0:
    os._exit(0 if asked(copy) == "EIO" else 1)
assert os.waitpid(child, 0)[1] == 0

# All of them closed without close().
os.closerange(copy, second + 1)
assert asked(copy) == "EBADF", asked(copy)
again = os.open(DEVICE, os.O_RDWR)
assert asked(again) == "EINVAL", asked(again)
print("done")
"#;

/// Children of every kind that Python knows, beside threads that call the device.
const CHILDREN: &str = r#"
import errno, fcntl, os, subprocess, sys, threading

DEVICE = "/dev/infiniband/uverbs0"

def asked(fd):
    try:
        fcntl.ioctl(fd, 0xc0181b01, bytes(24))
    except OSError as error:
        return errno.errorcode[error.errno]
    return "answered"

if len(sys.argv) > 1:
    # Executed with a descriptor of the device: it is its parent's, and this process has others.
    assert asked(int(sys.argv[1])) == "EIO"
    assert asked(os.open(DEVICE, os.O_RDWR)) == "EINVAL"
    sys.exit()

fd = os.open(DEVICE, os.O_RDWR | os.O_CLOEXEC)
copy = os.dup(fd)
before = os.listdir("/proc/self/fd")
ended = False

def calls():
    while not ended:
        assert asked(fd) == "EINVAL"
        os.close(os.open("/dev/null", os.O_RDONLY))

threads = [threading.Thread(target=calls) for _ in range(3)]
for thread in threads:
    thread.start()
for n in range(30):
    for way in ({}, {"close_fds": False}, {"preexec_fn": lambda: os.closerange(3, 1024)}):
        subprocess.run(["true"], check=True, timeout=60, **way)
    child = os.fork()
    if child == 0:
        # A child that closes its copies, one by one or all at once, and opens a device of its own.
        if n % 2:
            os.close(fd), os.close(copy)
        else:
            os.closerange(3, 1024)
        os._exit(0 if n % 5 or asked(os.open(DEVICE, os.O_RDWR)) == "EINVAL" else 1)
    assert os.waitpid(child, 0)[1] == 0
again = [sys.executable, "-c", "import sys; sys.argv = sys.argv[1:]; exec(sys.argv[0])"]
subprocess.run(again + [sys.argv[0], str(copy)], pass_fds=[copy], check=True, timeout=60)
ended = True
for thread in threads:
    thread.join()
assert asked(fd) == "EINVAL" and os.listdir("/proc/self/fd") == before

# It takes no bytes, whatever flags it is given; other files get those that are asked for.
fcntl.fcntl(fd, fcntl.F_SETFL, os.O_NONBLOCK)
assert fcntl.fcntl(fd, fcntl.F_GETFL) & (os.O_NONBLOCK | os.O_APPEND) == os.O_NONBLOCK | os.O_APPEND
other = os.memfd_create("warpverbs-uverbs")
fcntl.fcntl(other, fcntl.F_SETFL, os.O_APPEND)
fcntl.fcntl(other, fcntl.F_SETFL, os.O_NONBLOCK)
assert fcntl.fcntl(other, fcntl.F_GETFL) & (os.O_NONBLOCK | os.O_APPEND) == os.O_NONBLOCK
for write in (lambda: os.write(fd, bytes(range(8))), lambda: os.pwrite(fd, bytes(range(8)), 0x1800)):
    try:
        write()
        sys.exit("bytes were written")
    except OSError as error:
        assert error.errno == errno.EPERM, error
print("done")
"#;

/// Paths of the kernel's own `sysfs`, where the machine has no device of this name.
const PATHS: &str = r#"
import os, subprocess, sys

root, sys_class = sys.argv[1], "/sys/class/infiniband"
assert os.listdir(sys_class) == ["wv9"], os.listdir(sys_class)
assert open(sys_class + "/wv9/board_id").read() == "here\n"
assert os.path.exists(sys_class) and os.access(sys_class + "/wv9/board_id", os.R_OK)
assert os.path.islink(sys_class + "/wv9/device")
assert os.readlink(sys_class + "/wv9/device") == "../../../devices/function"
assert open(sys_class + "/wv9/device/vendor").read() == "0x15b3\n"
assert os.stat(sys_class + "/wv9").st_ino == os.stat(root + "/class/infiniband/wv9").st_ino
told = subprocess.check_output(["stat", "-c", "%F", sys_class + "/wv9/board_id"], text=True)
assert told == "regular file\n", told
assert os.listdir("/sys/class/infiniband_verbs") == []
# Other names that begin so are not.
assert not os.path.exists("/sys/class/infiniband-wv9") and os.path.exists("/sys/class")
print("done")
"#;

#[test]
fn paths_of_the_kernels_sysfs_lead_to_ours() {
    let root = tempfile::tempdir().unwrap();
    let class = root.path().join("class/infiniband");
    for folder in ["class/infiniband/wv9", "class/infiniband_verbs", "class/infiniband-wv9"] {
        std::fs::create_dir_all(root.path().join(folder)).unwrap();
    }
    std::fs::create_dir_all(root.path().join("devices/function")).unwrap();
    std::fs::write(root.path().join("devices/function/vendor"), "0x15b3\n").unwrap();
    std::fs::write(class.join("wv9/board_id"), "here\n").unwrap();
    std::os::unix::fs::symlink("../../../devices/function", class.join("wv9/device")).unwrap();
    let mut command = Command::new("python3");
    command.args(["-c", PATHS]).arg(root.path()).env("SYSFS_PATH", root.path());
    succeeds(command);
}

#[test]
fn descriptors_are_not_confused() {
    let mut command = Command::new("python3");
    command.args(["-c", PROGRAM]);
    succeeds(command);
}

#[test]
fn children_close_and_open_what_they_like() {
    let mut command = Command::new("python3");
    // The program is its own first argument, for a child to be given it.
    command.args(["-c", "import sys; sys.argv = sys.argv[1:]; exec(sys.argv[0])", CHILDREN]);
    succeeds(command);
}

/// Runs Python with the library.
fn succeeds(mut command: Command) {
    command.env("LD_PRELOAD", library()).env("WARPVERBS_RUN", "nics=1");
    let Ok(output) = command.output() else {
        return eprintln!("SKIPPED: needs python3");
    };
    let (out, err) = (&output.stdout, String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out == b"done\n", "{err}");
}
