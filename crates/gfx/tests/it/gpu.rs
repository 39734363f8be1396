//! A device with a module, and buffers that its kernels reach.
use std::time::{Duration, Instant};
use warpverbs_gfx::{
    Caching, CodeObject, Config, Device, Launch, LaunchError, Module, Registration, Rights, Stop,
};

pub(crate) struct Gpu {
    device: Device,
    pub(crate) module: Module,
}

/// Words that kernels reach, by the address of the first.
pub(crate) struct Buffer<T: Copy> {
    start: *mut T,
    length: usize,
    // Before the memory is freed, by `drop`.
    registration: Option<Registration>,
}

impl<T: Copy> Buffer<T> {
    pub(crate) fn address(&self) -> u64 {
        self.start as u64
    }

    /// Only while no kernel runs.
    pub(crate) fn to_vec(&self) -> Vec<T> {
        // SAFETY: the memory is that of a vector of this length, and launches of these tests return when they ended.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }.to_vec()
    }
}

impl<T: Copy> Drop for Buffer<T> {
    fn drop(&mut self) {
        self.registration = None;
        let slice = std::ptr::slice_from_raw_parts_mut(self.start, self.length);
        // SAFETY: it came from a box of this length, and kernels have lost it.
        drop(unsafe { Box::from_raw(slice) });
    }
}

impl Gpu {
    pub(crate) fn of(object: &[u8], seed: u64) -> Gpu {
        Gpu::with(object, Config { seed, ..Config::default() })
    }

    /// With caches, and accesses that complete late.
    pub(crate) fn lazy(object: &[u8], seed: u64) -> Gpu {
        Gpu::with(object, Config { seed, lazy: true, ..Config::default() })
    }

    fn with(object: &[u8], config: Config) -> Gpu {
        let object = CodeObject::parse(object);
        let object = object.unwrap_or_else(|error| panic!("{error}"));
        let device = Device::new(Config { target: object.target(), ..config });
        let module = device.load(&object).expect("memory for the image");
        Gpu { device, module }
    }

    /// Uncached memory.
    pub(crate) fn buffer<T: Copy>(&self, values: Vec<T>) -> Buffer<T> {
        self.cached(values, Caching::Uncached)
    }

    pub(crate) fn cached<T: Copy>(&self, values: Vec<T>, caching: Caching) -> Buffer<T> {
        let length = values.len();
        let start = Box::into_raw(values.into_boxed_slice()).cast::<T>();
        let bytes = length * size_of::<T>();
        // SAFETY: the buffer drops the registration before the memory, and has no reference to it meanwhile.
        let registration =
            unsafe { self.device.register(start.cast(), bytes, Rights::ReadWrite, caching) };
        Buffer { start, length, registration: Some(registration.expect("a range")) }
    }

    /// Arguments are 8 bytes each, or 4 where the kernel says so.
    pub(crate) fn launch(
        &self,
        kernel: &str,
        grid: [u32; 3],
        block: [u32; 3],
        arguments: &[u64],
    ) -> Result<(), LaunchError> {
        self.launch_for(Duration::from_secs(60), Stop::default(), kernel, grid, block, arguments)
    }

    pub(crate) fn launch_for(
        &self,
        time: Duration,
        stop: Stop,
        kernel: &str,
        grid: [u32; 3],
        block: [u32; 3],
        arguments: &[u64],
    ) -> Result<(), LaunchError> {
        let known = self.module.kernel(kernel).unwrap_or_else(|| panic!("no kernel {kernel}"));
        let known = &known.metadata;
        assert_eq!(known.explicit().count(), arguments.len(), "{kernel}");
        let mut packed = vec![0; known.explicit_size() as usize];
        for (argument, value) in known.explicit().zip(arguments) {
            let size = argument.size as usize;
            packed[argument.offset as usize..][..size]
                .copy_from_slice(&value.to_le_bytes()[..size]);
        }
        self.device.launch(
            &self.module,
            &Launch {
                kernel,
                grid,
                block,
                dynamic_lds: 0,
                arguments: &packed,
                deadline: Instant::now() + time,
                stop,
            },
        )
    }
}
