//! Which devices the run time has, and what it says of them.

use super::abi::{ARCH_NAME, ARCH_NAME_OF_FIVE, Attribute, NO_DEVICE, PROPERTIES};
use super::api::{Api, api};
use crate::library::text;
use crate::{GpuError, GpuInfo, GpuKind};
use std::ffi::c_int;

/// The first version of HIP that maps uncached memory: 7.1, of which versions of 7.0 with this patch have it too.
const UNCACHED_MAPPINGS: u32 = 70_051_831;

/// How many HIP devices there are.
pub(crate) fn device_count() -> Result<u32, GpuError> {
    let (api, mut count) = (api()?, 0);
    // SAFETY: the pointer is to a live local.
    match unsafe { api.hipGetDeviceCount(&mut count) } {
        Err(GpuError::Driver { code: NO_DEVICE, .. }) => Ok(0),
        done => done.map(|()| count as u32),
    }
}

/// Describes device `ordinal`.
pub(crate) fn describe(ordinal: u32) -> Result<GpuInfo, GpuError> {
    let (api, device) = (api()?, ordinal as c_int);
    // SAFETY: the buffer has the length given; a wrong ordinal is refused.
    let name = text(|out, len| unsafe { api.hipDeviceGetName(out, len, device) })?;
    let mut memory = 0;
    // SAFETY: the pointer is to a live local.
    unsafe { api.hipDeviceTotalMem(&mut memory, device) }?;
    // SAFETY: the buffer has the length given.
    let pci = text(|out, len| unsafe { api.hipDeviceGetPCIBusId(out, len, device) });
    Ok(GpuInfo {
        kind: GpuKind::Hip,
        ordinal,
        name,
        arch: arch(api, device)?,
        warp_size: api.attribute(device, Attribute::WarpSize)? as u32,
        sm_count: api.attribute(device, Attribute::MultiprocessorCount)? as u32,
        memory_bytes: memory as u64,
        pci: pci.ok().map(|pci| pci.to_lowercase()),
        dmabuf: api.has_dmabuf(),
        // Of memory that is uncached or fine-grained, and this crate allocates no other.
        ordered_nic_writes: true,
        shareable: api.version()? >= UNCACHED_MAPPINGS,
        uuid: uuid(api, device),
    })
}

/// `gfx942`, without the features that may follow behind a colon: code for it runs with each of them.
fn arch(api: &Api, device: c_int) -> Result<String, GpuError> {
    let mut properties = [0u8; PROPERTIES];
    let out = properties.as_mut_ptr().cast();
    let offset = match api.is_five() {
        // SAFETY: room for more than any version of the structure.
        true => unsafe { api.hipGetDeviceProperties(out, device) }.map(|()| ARCH_NAME_OF_FIVE),
        // SAFETY: as above.
        false => unsafe { api.hipGetDevicePropertiesR0600(out, device) }.map(|()| ARCH_NAME),
    }?;
    let name = properties[offset..offset + 256].split(|&byte| byte == 0).next().unwrap_or(&[]);
    let name = String::from_utf8_lossy(name);
    let arch = name.split(':').next().unwrap_or_default();
    if !arch.starts_with("gfx") {
        let reason = format!("device {device} calls its architecture {name:?}, expected gfx…");
        return Err(GpuError::Library { library: "AMD's HIP run time", reason });
    }
    Ok(arch.to_owned())
}

fn uuid(api: &Api, device: c_int) -> Option<String> {
    let mut uuid = [0; 16];
    // SAFETY: the pointer is to a live local.
    unsafe { api.hipDeviceGetUuid(&mut uuid, device) }.ok()?;
    // ROCm writes 16 hexadecimal digits, as text.
    let is_text = uuid.iter().all(u8::is_ascii_alphanumeric);
    let hex = || uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let id = if is_text { String::from_utf8_lossy(&uuid).into_owned() } else { hex() };
    Some(format!("GPU-{id}"))
}
