//! A libibverbs without a kernel, for tests: two devices, `fake0` (RoCE, of today) and `fake1`
//! (InfiniBand, a driver of before extensions), whose QPs reach each other inside the process.
//!
//! It is written in C over rdma-core's own headers (`fake/` in this crate) and compiled when a
//! test asks for it. Work is done while it is posted; a send to a QP without a receive fails at
//! once; a dmabuf may be any file, and no byte of it can be moved, unless
//! [`Fake::dmabuf_is_here`] says otherwise. `FAKE_IBVERBS_FAIL` in the
//! environment, `ibv_reg_mr:12,ibv_create_qp:22`, makes calls fail with these error numbers;
//! `FAKE_IBVERBS_NULL` makes sends do nothing at all.
//!
//! This is here and not in `warpverbs-dev`, with the other test beds, because it calls C functions:
//! that crate forbids `unsafe` code, which this one has anyway.

use crate::Verbs;
use libloading::os::unix::{Library, Symbol};
use std::ffi::{CString, c_char, c_int};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

const SOURCES: [(&str, &str); 6] = [
    ("fake.h", include_str!("../fake/fake.h")),
    ("device.c", include_str!("../fake/device.c")),
    ("object.c", include_str!("../fake/object.c")),
    ("work.c", include_str!("../fake/work.c")),
    ("extended.c", include_str!("../fake/extended.c")),
    ("versions.map", include_str!("../fake/versions.map")),
];

/// Path of the library, compiled once for this process. Without a C compiler or rdma-core's
/// headers it is `None`, and [`skip`] has said that the test checks nothing.
pub fn fake_library() -> Option<&'static Path> {
    static BUILT: OnceLock<Result<PathBuf, io::Error>> = OnceLock::new();
    match BUILT.get_or_init(build) {
        Ok(path) => Some(path),
        Err(why) => {
            let packages =
                "needs a C compiler and rdma-core's headers (Debian: gcc, libibverbs-dev)";
            skip(&format!("{packages}: {why}"));
            None
        }
    }
}

/// Says, past the capture of the test harness, that a test checks nothing for want of something of
/// rdma-core's. With `WARPVERBS_REQUIRE_RDMA_CORE` set, this is a failure instead.
pub fn skip(reason: &str) {
    assert!(std::env::var_os("WARPVERBS_REQUIRE_RDMA_CORE").is_none(), "{reason}");
    let test = std::thread::current();
    let line = format!("SKIPPED {}: {reason}\n", test.name().unwrap_or("a test"));
    io::stderr().write_all(line.as_bytes()).expect("stderr");
}

/// Next to the test's own program, so that it goes when build outputs go; built anew when the
/// sources are others.
fn build() -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let folder = program.parent().unwrap_or(Path::new("."));
    let mut hasher = DefaultHasher::new();
    SOURCES.hash(&mut hasher);
    let folder = folder.join(format!("fake-ibverbs-{:016x}", hasher.finish()));
    std::fs::create_dir_all(&folder)?;
    let library = folder.join("libibverbs-fake.so");
    if library.exists() {
        return Ok(library);
    }
    for (name, text) in SOURCES {
        std::fs::write(folder.join(name), text)?;
    }
    // Renamed when it is whole: other tests may be building it too.
    let own = folder.join(format!("{}.so", std::process::id()));
    let mut command = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()));
    command.args(["-D_GNU_SOURCE", "-std=gnu11", "-shared", "-fPIC", "-O1", "-Wall", "-pthread"]);
    command.args(["device.c", "object.c", "work.c", "extended.c"]);
    command.args(["-Wl,--version-script=versions.map", "-o"]);
    let out = command.arg(&own).current_dir(&folder).output()?;
    if !out.status.success() {
        let text = String::from_utf8_lossy(&out.stderr);
        let why = text.lines().find(|line| line.contains("error")).unwrap_or("it fails");
        return Err(io::Error::other(why.to_owned()));
    }
    std::fs::rename(own, &library)?;
    Ok(library)
}

/// The loaded library, for one test at a time.
pub struct Fake {
    verbs: Verbs,
    fail: Symbol<unsafe extern "C" fn(*const c_char, c_int) -> c_int>,
    live: Symbol<unsafe extern "C" fn(c_int) -> c_int>,
    mr_access: Symbol<unsafe extern "C" fn(u32) -> c_int>,
    mr_place: Symbol<unsafe extern "C" fn(u32, *mut [u64; 3]) -> c_int>,
    dmabuf_is_here: Symbol<unsafe extern "C" fn(c_int)>,
    max_inline: Symbol<unsafe extern "C" fn(u32)>,
    solicited: Symbol<unsafe extern "C" fn() -> c_int>,
    port_event: Symbol<unsafe extern "C" fn(*mut crate::sys::ibv_context, c_int)>,
    begun: Symbol<*mut c_int>,
    /// Objects, and begun polls and batches, that earlier tests have left for good.
    left: (Live, i32),
    _turn: MutexGuard<'static, ()>,
}

/// Objects of each kind that a test has made and that are alive, over all devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Live {
    pub contexts: i32,
    pub pds: i32,
    pub mrs: i32,
    pub channels: i32,
    pub cqs: i32,
    pub qps: i32,
    pub srqs: i32,
}

/// The library, loaded; `None` where it cannot be built.
pub fn fake() -> Option<Fake> {
    static TURN: Mutex<()> = Mutex::new(());
    let path = fake_library()?.to_str().expect("a path in UTF-8");
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: it behaves as libibverbs does.
    let verbs = unsafe { Verbs::load_from(path) }.expect("the fake library loads");
    // SAFETY: loaded already.
    let library = unsafe { Library::new(path) }.expect("loaded twice");
    // SAFETY: the library's function, with this signature; `verbs` keeps the library loaded.
    let fail = unsafe { library.get(b"fake_fail") }.expect("fake_fail");
    // SAFETY: as above.
    let live = unsafe { library.get(b"fake_live") }.expect("fake_live");
    // SAFETY: as above.
    let mr_access = unsafe { library.get(b"fake_mr_access") }.expect("fake_mr_access");
    // SAFETY: as above.
    let port_event = unsafe { library.get(b"fake_port_event") }.expect("fake_port_event");
    // SAFETY: as above, a variable.
    let begun = unsafe { library.get(b"fake_begun") }.expect("fake_begun");
    // SAFETY: as above.
    let mr_place = unsafe { library.get(b"fake_mr_place") }.expect("fake_mr_place");
    // SAFETY: as above.
    let dmabuf_is_here = unsafe { library.get(b"fake_dmabuf_is_here") }.expect("its switch");
    // SAFETY: as above.
    let max_inline = unsafe { library.get(b"fake_max_inline") }.expect("fake_max_inline");
    // SAFETY: as above.
    let solicited = unsafe { library.get(b"fake_solicited") }.expect("fake_solicited");
    let mut fake = Fake {
        verbs,
        fail,
        live,
        mr_access,
        mr_place,
        dmabuf_is_here,
        max_inline,
        solicited,
        port_event,
        begun,
        left: (Live::default(), 0),
        _turn: turn,
    };
    fake.left = (fake.live(), fake.begun());
    // An earlier test may have set these.
    fake.dmabuf_is_here(false);
    fake.max_inline(256);
    Some(fake)
}

impl Fake {
    /// The library.
    pub fn verbs(&self) -> Verbs {
        self.verbs
    }

    /// The next call of `call` fails with this error number; with a negative one, it leaves `errno` as it is.
    pub fn fail_next(&self, call: &str, errno: i32) {
        let call = CString::new(call).expect("no NUL");
        // SAFETY: a live string, which is copied.
        assert_eq!(unsafe { (self.fail)(call.as_ptr(), errno) }, 0, "too many failures at once");
    }

    /// The objects that this test has made and that are alive.
    pub fn live(&self) -> Live {
        // SAFETY: any number may be asked for.
        let count = |kind, left| unsafe { (self.live)(kind) } - left;
        let (left, _) = self.left;
        Live {
            contexts: count(0, left.contexts),
            pds: count(1, left.pds),
            mrs: count(2, left.mrs),
            channels: count(3, left.channels),
            cqs: count(4, left.cqs),
            qps: count(5, left.qps),
            srqs: count(6, left.srqs),
        }
    }

    /// The access flags with which the memory of this key is registered.
    pub fn mr_access(&self, key: u32) -> Option<u32> {
        // SAFETY: any number may be asked for.
        u32::try_from(unsafe { (self.mr_access)(key) }).ok()
    }

    /// Polls and batches that this test has begun and not ended.
    pub fn begun(&self) -> i32 {
        // SAFETY: the library's variable, changed by the test that has the turn.
        unsafe { (*self.begun).read() - self.left.1 }
    }

    /// The memory of this key: its offset in a dmabuf, its first address, its bytes.
    pub fn mr_place(&self, key: u32) -> Option<(u64, u64, u64)> {
        let mut place = [0; 3];
        // SAFETY: any number may be asked for, and there is room for the answer.
        let found = unsafe { (self.mr_place)(key, &mut place) } == 0;
        found.then_some((place[0], place[1], place[2]))
    }

    /// The bytes of dmabufs registered from now on are those of this process at their addresses.
    pub fn dmabuf_is_here(&self, here: bool) {
        // SAFETY: any value will do. A device that is told a lie by a test crashes it.
        unsafe { (self.dmabuf_is_here)(here.into()) }
    }

    /// QPs with more inline data than this are refused from now on. 256 at first.
    pub fn max_inline(&self, bytes: u32) {
        // SAFETY: any number will do.
        unsafe { (self.max_inline)(bytes) }
    }

    /// Solicited sends so far.
    pub fn solicited(&self) -> i32 {
        // SAFETY: only counts.
        unsafe { (self.solicited)() }
    }

    /// Reports an event of this type for port 1 of `context`.
    pub fn port_event(&self, context: &crate::Context, event_type: u32) {
        // SAFETY: a live context of the library's.
        unsafe { (self.port_event)(context.ptr().as_ptr(), event_type as c_int) }
    }
}
