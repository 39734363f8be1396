//! A vendor's library, and the files that it may be.

use std::fs;

/// A library of a vendor's own package, with functions that rdma-core's library of the same name does not have.
#[derive(Debug, PartialEq, Eq)]
pub struct VendorLibrary {
    /// The vendor.
    pub maker: &'static str,
    /// Its name; so begin the names of its files, whichever version of libibverbs they are for.
    pub name: &'static str,
    /// The kernel's driver of its devices.
    pub devices: &'static str,
    /// PCI number of the vendor, [`DeviceAttr::vendor_id`](crate::DeviceAttr::vendor_id) of its devices.
    pub vendor: u32,
    /// The environment's variable that names the file to load instead of those that are looked for: a path or a
    /// file name. It must be the one that libibverbs uses as its driver, or go with it.
    pub variable: &'static str,
    /// The first function that is needed.
    pub first: &'static str,
}

impl VendorLibrary {
    /// The files to try: the one that the environment names; otherwise the driver that libibverbs has loaded,
    /// then the vendor's by its name.
    pub(super) fn candidates(&self) -> Vec<String> {
        if let Ok(file) = std::env::var(self.variable) {
            return vec![file];
        }
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let mut files: Vec<String> = self.loaded(&maps).into_iter().collect();
        files.push(format!("{}.so", self.name));
        files
    }

    /// The driver's file among those that are mapped.
    fn loaded(&self, maps: &str) -> Option<String> {
        let files = maps.lines().filter_map(|line| line.find('/').map(|at| &line[at..]));
        let is_driver = |file: &&str| {
            file.rsplit('/').next().is_some_and(|name| name.starts_with(self.name))
                && !file.ends_with(" (deleted)")
        };
        files.into_iter().find(is_driver).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use crate::bnxt_dv::sys::BnxtApi;
    use crate::vendor::VendorApi;

    const MAPS: &str = "\
7f00-7f01 r-xp 00000000 08:01 1 /usr/lib/x86_64-linux-gnu/libibverbs.so.1.14.44
7f02-7f03 r--p 00000000 08:01 2 /usr/lib/x86_64-linux-gnu/libibverbs/libbnxt_re-rdmav34.so
7f04-7f05 rw-p 00000000 00:00 0 [heap]
";

    #[test]
    fn the_driver_that_is_loaded_is_found() {
        let expected = "/usr/lib/x86_64-linux-gnu/libibverbs/libbnxt_re-rdmav34.so";
        let library = BnxtApi::LIBRARY;
        assert_eq!(library.loaded(MAPS).as_deref(), Some(expected));
        assert_eq!(library.loaded(&MAPS.replace("libbnxt_re-", "libmlx5-")), None);
    }
}
