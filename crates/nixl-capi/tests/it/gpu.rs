//! Memory of an NVIDIA GPU that the program has allocated by itself, with its driver alone.

use crate::bed::{Bed, at, end, last_error, made, ok, run, seeded, text};
use libloading::Library;
use rand::Rng;
use std::ffi::{c_int, c_void};
use std::sync::LazyLock;

static DRIVER: LazyLock<Library> = LazyLock::new(|| {
    // SAFETY: the driver's library.
    unsafe { Library::new("libcuda.so.1") }.unwrap()
});

type Function = unsafe extern "C" fn(u64, u64, u64) -> c_int;

/// Calls a function of the driver, which must succeed.
fn driver(name: &str, args: [u64; 3]) {
    // SAFETY: the functions that are called so take at most three integers or pointers.
    let function = unsafe { DRIVER.get::<Function>(name) }.unwrap();
    let [a, b, c] = args;
    // SAFETY: numbers, or addresses of places that are there.
    assert_eq!(unsafe { function(a, b, c) }, 0, "{name}");
}

/// Memory of the GPU, freed by the driver.
struct Memory(u64);

impl Memory {
    fn new(bytes: &[u8]) -> Self {
        let mut address = 0_u64;
        driver("cuMemAlloc_v2", [at(&mut address), bytes.len() as u64, 0]);
        let from = bytes.as_ptr().expose_provenance() as u64;
        driver("cuMemcpyHtoD_v2", [address, from, bytes.len() as u64]);
        Self(address)
    }

    fn read(&self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        driver("cuMemcpyDtoH_v2", [at(&mut bytes[0]), self.0, len as u64]);
        bytes
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        driver("cuMemFree_v2", [self.0, 0, 0]);
    }
}

/// Lists of one range of the GPU's memory, to be registered and to be moved.
fn lists(addr: u64, len: u64) -> (u64, u64) {
    let reg = made("nixl_capi_create_reg_dlist", &[1]);
    ok("nixl_capi_reg_dlist_add_desc", &[reg, addr, len, 0, 0, 0]);
    let list = made("nixl_capi_create_xfer_dlist", &[1]);
    ok("nixl_capi_xfer_dlist_add_desc", &[list, addr, len, 0]);
    (reg, list)
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn memory_of_a_gpu_is_reached_wherever_it_begins() {
    const LEN: usize = 3 << 20;
    driver("cuInit", [0; 3]);
    let mut context = std::ptr::null_mut::<c_void>();
    driver("cuDevicePrimaryCtxRetain", [at(&mut context), 0, 0]);
    driver("cuCtxSetCurrent", [context.expose_provenance() as u64, 0, 0]);
    let mut rng = seeded();
    let (mut one, mut two) = (vec![0; LEN], vec![0; LEN]);
    rng.fill_bytes(&mut one);
    rng.fill_bytes(&mut two);
    let (here, there) = (Bed::new("g1", 64, &mut rng), Bed::new("g2", 64, &mut rng));
    let (ours, theirs) = (Memory::new(&one), Memory::new(&two));
    // Neither at a multiple of 16.
    let (from, to, len) = (8_usize, 4099_usize, LEN - 5000);
    let (ours_reg, local) = lists(ours.0 + from as u64, len as u64);
    let (theirs_reg, remote) = lists(theirs.0 + to as u64, len as u64);
    ok("nixl_capi_register_mem", &[here.agent, ours_reg, 0]);
    ok("nixl_capi_register_mem", &[there.agent, theirs_reg, 0]);
    here.load(&there);
    let mut request = 0_u64;
    let args = [here.agent, 1, local, remote, text(c"g2"), at(&mut request), 0];
    ok("nixl_capi_create_xfer_req", &args);
    assert_eq!(run(here.agent, request, 0), 0, "{}", last_error());
    end(here.agent, request);
    two[to..to + len].copy_from_slice(&one[from..from + len]);
    assert!(theirs.read(LEN) == two, "other bytes than those that were written");
    // After this the memory may be freed, and is.
    ok("nixl_capi_deregister_mem", &[here.agent, ours_reg, 0]);
    ok("nixl_capi_deregister_mem", &[there.agent, theirs_reg, 0]);
    drop((ours, theirs));
}
