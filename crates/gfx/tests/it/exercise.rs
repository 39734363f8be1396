//! A hostile code object is refused, or runs until an error or the deadline. Also the body of a fuzz target.
use std::time::{Duration, Instant};
use warpverbs_gfx::{CodeObject, Config, Device, Launch, Stop, Target};

/// As a code object whose kernels are run, and as instructions.
pub(crate) fn exercise(data: &[u8]) {
    for target in Target::ALL {
        let mut rest = data;
        while let Ok(inst) = warpverbs_gfx::decode(target, rest) {
            let _ = inst.to_string();
            rest = &rest[inst.size()..];
        }
    }
    let Ok(object) = CodeObject::parse(data) else { return };
    let lazy = data.len() % 2 == 1;
    let device =
        Device::new(Config { target: object.target(), waves: 4, lazy, ..Config::default() });
    let Ok(module) = device.load(&object) else { return };
    for kernel in module.kernels().iter().take(4) {
        let launch = Launch {
            kernel: &kernel.metadata.name,
            grid: [2, 1, 1],
            block: [kernel.metadata.block_at_most.min(100), 1, 1],
            dynamic_lds: 0,
            arguments: &vec![0; kernel.metadata.explicit_size() as usize],
            deadline: Instant::now() + Duration::from_millis(5),
            stop: Stop::default(),
        };
        let _ = device.launch(&module, &launch).map_err(|error| error.to_string());
    }
}
