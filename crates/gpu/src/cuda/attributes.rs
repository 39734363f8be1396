//! Which devices the driver has, and what it says of them.

use super::api::{Api, driver};
use crate::library::text;
use crate::{GpuError, GpuInfo, GpuKind};
use cudarc::driver::sys;
use cudarc::driver::sys::CUdevice_attribute_enum as Attribute;

/// `CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER`: kernels of the device consume writes of other devices
/// consistently. Of larger values, kernels of all devices do.
const WRITES_ORDERED: i32 = 100;

/// How many CUDA devices the driver sees.
pub(crate) fn device_count() -> Result<u32, GpuError> {
    let mut count = 0;
    // SAFETY: the pointer is to a live local.
    unsafe { driver()?.cuDeviceGetCount(&mut count) }?;
    Ok(count as u32)
}

/// Describes device `ordinal`, without making a context on it.
pub(crate) fn describe(ordinal: u32) -> Result<GpuInfo, GpuError> {
    let driver = driver()?;
    let mut device = 0;
    // SAFETY: the pointer is to a live local; a wrong ordinal is refused.
    unsafe { driver.cuDeviceGet(&mut device, ordinal as i32) }?;
    // SAFETY: the buffer has the length given.
    let name = text(|out, len| unsafe { driver.cuDeviceGetName(out, len, device) })?;
    let mut memory = 0;
    // SAFETY: the pointer is to a live local.
    unsafe { driver.cuDeviceTotalMem_v2(&mut memory, device) }?;
    let get = |attribute: Attribute| driver.attribute(device, attribute as i32);
    let has = |attribute| get(attribute).is_ok_and(|yes| yes != 0);
    let shareable = has(Attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)
        && has(Attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
    let major = get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = get(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let (bus, slot) = (
        get(Attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?,
        get(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)?,
    );
    let domain = get(Attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?;
    Ok(GpuInfo {
        kind: GpuKind::Cuda,
        ordinal,
        name,
        arch: format!("sm_{major}{minor}"),
        warp_size: get(Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE)? as u32,
        sm_count: get(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as u32,
        memory_bytes: memory as u64,
        // GPUs have one function of interest, the first.
        pci: Some(format!("{domain:04x}:{bus:02x}:{slot:02x}.0")),
        dmabuf: has(Attribute::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED),
        ordered_nic_writes: get(Attribute::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING)
            .map_or(true, |order| order >= WRITES_ORDERED),
        shareable,
        uuid: uuid(driver, device),
    })
}

/// Absent if the driver is too old to report it.
fn uuid(driver: &Api, device: sys::CUdevice) -> Option<String> {
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: the pointer is to a live local.
    unsafe { driver.cuDeviceGetUuid_v2(&mut uuid, device) }.ok()?;
    let hex: String = uuid.bytes.iter().map(|&byte| format!("{:02x}", byte as u8)).collect();
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    Some(format!("GPU-{}", parts.join("-")))
}
