//! The kernel's drivers that are imitated.

use warpverbs_bnxt::ring::Library as BnxtLibrary;

/// The kernel's driver that is imitated, and so the user library that finds its device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Driver {
    /// NVIDIA's ConnectX.
    #[default]
    Mlx5,
    /// Broadcom's Thor.
    Bnxt {
        /// Offset of the doorbell page that the program gives to `mmap`.
        doorbells: u64,
        /// The program's library: the earlier one until a context is opened.
        library: BnxtLibrary,
    },
    /// AMD Pensando's Pollara, without SRQs and resized CQs.
    Ionic {
        /// Offset of the doorbell page that the program gives to `mmap`.
        doorbells: u64,
    },
}

impl Driver {
    /// The same with queues as GPU libraries write them.
    pub(crate) fn of_gpus(self) -> Self {
        match self {
            Self::Bnxt { doorbells, .. } => Self::Bnxt { doorbells, library: BnxtLibrary::Current },
            other => other,
        }
    }

    /// `enum rdma_driver_id`.
    pub fn number(self) -> u32 {
        match self {
            Self::Mlx5 => 1,
            Self::Bnxt { .. } => 6,
            Self::Ionic { .. } => 21,
        }
    }

    /// Name of the driver.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mlx5 => "mlx5",
            Self::Bnxt { .. } => "bnxt_re",
            Self::Ionic { .. } => "ionic",
        }
    }

    /// The name of its device of this number, as the kernel gives it.
    pub fn device(self, number: u32) -> String {
        match self {
            Self::Mlx5 => format!("mlx5_{number}"),
            Self::Bnxt { .. } => format!("bnxt_re{number}"),
            Self::Ionic { .. } => format!("ionic_{number}"),
        }
    }

    /// Offset in the first page of the device's file, which the program has mapped, of the 32 bits in which
    /// its library reads the number of the newest address handle; `None`: the answer says it, or nobody asks.
    pub fn address_handle_at(self) -> Option<u64> {
        matches!(self, Self::Bnxt { .. }).then_some(0x10)
    }

    /// The devices' vendor, as an IEEE company number or that of PCI, as each driver has it.
    pub(crate) fn vendor(self) -> u32 {
        match self {
            Self::Mlx5 => 0x02c9,
            Self::Bnxt { .. } => 0x14e4,
            Self::Ionic { .. } => 0x1dd8,
        }
    }
}
