//! Commands of the older interface, which were written to the device and come wrapped in
//! `DEVICE.INVOKE_WRITE` now.

use crate::{Errno, Refusal};

/// One command.
#[derive(Clone, Copy, Debug)]
pub struct WriteCommand {
    /// Its name in the kernel's headers.
    pub name: &'static str,
    /// Its number, with bit 31 for the extended form.
    pub id: u32,
    /// Bytes of input and of output at least; `None` for a command that is known by name only, and
    /// refused.
    pub sizes: Option<(usize, usize)>,
}

/// Bit of an extended command.
pub(crate) const EXTENDED: u32 = 1 << 31;

const fn command(name: &'static str, id: u32, input: usize, output: usize) -> WriteCommand {
    WriteCommand { name, id, sizes: Some((input, output)) }
}

const fn refused(name: &'static str, id: u32) -> WriteCommand {
    WriteCommand { name, id, sizes: None }
}

pub(crate) mod id {
    pub(crate) const QUERY_DEVICE: u32 = 1;
    pub(crate) const ALLOC_PD: u32 = 3;
    pub(crate) const CREATE_AH: u32 = 5;
    pub(crate) const REG_MR: u32 = 9;
    pub(crate) const CREATE_COMP_CHANNEL: u32 = 17;
    pub(crate) const RESIZE_CQ: u32 = 19;
    pub(crate) const QUERY_QP: u32 = 25;
    pub(crate) const MODIFY_QP: u32 = 26;
    pub(crate) const MODIFY_SRQ: u32 = 33;
    pub(crate) const QUERY_SRQ: u32 = 34;
    pub(crate) const EX_QUERY_DEVICE: u32 = super::EXTENDED | 1;
    pub(crate) const EX_MODIFY_QP: u32 = super::EXTENDED | 26;
}

/// Every command of the headers of rdma-core 44.
pub const WRITE_COMMANDS: &[WriteCommand] = &[
    refused("IB_USER_VERBS_CMD_GET_CONTEXT", 0),
    command("IB_USER_VERBS_CMD_QUERY_DEVICE", id::QUERY_DEVICE, 8, 176),
    refused("IB_USER_VERBS_CMD_QUERY_PORT", 2),
    command("IB_USER_VERBS_CMD_ALLOC_PD", id::ALLOC_PD, 8, 4),
    refused("IB_USER_VERBS_CMD_DEALLOC_PD", 4),
    command("IB_USER_VERBS_CMD_CREATE_AH", id::CREATE_AH, 56, 4),
    refused("IB_USER_VERBS_CMD_MODIFY_AH", 6),
    refused("IB_USER_VERBS_CMD_QUERY_AH", 7),
    refused("IB_USER_VERBS_CMD_DESTROY_AH", 8),
    command("IB_USER_VERBS_CMD_REG_MR", id::REG_MR, 40, 12),
    refused("IB_USER_VERBS_CMD_REG_SMR", 10),
    refused("IB_USER_VERBS_CMD_REREG_MR", 11),
    refused("IB_USER_VERBS_CMD_QUERY_MR", 12),
    refused("IB_USER_VERBS_CMD_DEREG_MR", 13),
    refused("IB_USER_VERBS_CMD_ALLOC_MW", 14),
    refused("IB_USER_VERBS_CMD_BIND_MW", 15),
    refused("IB_USER_VERBS_CMD_DEALLOC_MW", 16),
    command("IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL", id::CREATE_COMP_CHANNEL, 8, 4),
    refused("IB_USER_VERBS_CMD_CREATE_CQ", 18),
    command("IB_USER_VERBS_CMD_RESIZE_CQ", id::RESIZE_CQ, 16, 8),
    refused("IB_USER_VERBS_CMD_DESTROY_CQ", 20),
    refused("IB_USER_VERBS_CMD_POLL_CQ", 21),
    refused("IB_USER_VERBS_CMD_PEEK_CQ", 22),
    refused("IB_USER_VERBS_CMD_REQ_NOTIFY_CQ", 23),
    refused("IB_USER_VERBS_CMD_CREATE_QP", 24),
    command("IB_USER_VERBS_CMD_QUERY_QP", id::QUERY_QP, 16, 128),
    command("IB_USER_VERBS_CMD_MODIFY_QP", id::MODIFY_QP, 112, 0),
    refused("IB_USER_VERBS_CMD_DESTROY_QP", 27),
    refused("IB_USER_VERBS_CMD_POST_SEND", 28),
    refused("IB_USER_VERBS_CMD_POST_RECV", 29),
    refused("IB_USER_VERBS_CMD_ATTACH_MCAST", 30),
    refused("IB_USER_VERBS_CMD_DETACH_MCAST", 31),
    refused("IB_USER_VERBS_CMD_CREATE_SRQ", 32),
    command("IB_USER_VERBS_CMD_MODIFY_SRQ", id::MODIFY_SRQ, 16, 0),
    command("IB_USER_VERBS_CMD_QUERY_SRQ", id::QUERY_SRQ, 16, 16),
    refused("IB_USER_VERBS_CMD_DESTROY_SRQ", 35),
    refused("IB_USER_VERBS_CMD_POST_SRQ_RECV", 36),
    refused("IB_USER_VERBS_CMD_OPEN_XRCD", 37),
    refused("IB_USER_VERBS_CMD_CLOSE_XRCD", 38),
    refused("IB_USER_VERBS_CMD_CREATE_XSRQ", 39),
    refused("IB_USER_VERBS_CMD_OPEN_QP", 40),
    command("IB_USER_VERBS_EX_CMD_QUERY_DEVICE", id::EX_QUERY_DEVICE, 8, 184),
    refused("IB_USER_VERBS_EX_CMD_CREATE_CQ", EXTENDED | 18),
    refused("IB_USER_VERBS_EX_CMD_CREATE_QP", EXTENDED | 24),
    command("IB_USER_VERBS_EX_CMD_MODIFY_QP", id::EX_MODIFY_QP, 112, 8),
    refused("IB_USER_VERBS_EX_CMD_CREATE_FLOW", EXTENDED | 50),
    refused("IB_USER_VERBS_EX_CMD_DESTROY_FLOW", EXTENDED | 51),
    refused("IB_USER_VERBS_EX_CMD_CREATE_WQ", EXTENDED | 52),
    refused("IB_USER_VERBS_EX_CMD_MODIFY_WQ", EXTENDED | 53),
    refused("IB_USER_VERBS_EX_CMD_DESTROY_WQ", EXTENDED | 54),
    refused("IB_USER_VERBS_EX_CMD_CREATE_RWQ_IND_TBL", EXTENDED | 55),
    refused("IB_USER_VERBS_EX_CMD_DESTROY_RWQ_IND_TBL", EXTENDED | 56),
    refused("IB_USER_VERBS_EX_CMD_MODIFY_CQ", EXTENDED | 57),
];

impl WriteCommand {
    /// The command of this number.
    pub fn find(id: u32) -> Option<&'static Self> {
        WRITE_COMMANDS.iter().find(|command| command.id == id)
    }

    /// Its name without what the headers put before every name.
    pub fn short_name(&self) -> &'static str {
        self.name
            .strip_prefix("IB_USER_VERBS_")
            .map_or(self.name, |name| name.strip_prefix("CMD_").unwrap_or(name))
    }

    /// The command that a call asks for, which has buffers of these lengths.
    pub(crate) fn decode(id: u64, input: usize, output: usize) -> Result<&'static Self, Refusal> {
        let found = u32::try_from(id).ok();
        let Some(id) = found.filter(|id| id & !(EXTENDED | 0xff) == 0) else {
            return Err(Refusal::invalid(format!("there is no command {id:#x}")));
        };
        let Some(command) = Self::find(id) else {
            let errno = if id & EXTENDED == 0 { Errno::EINVAL } else { Errno::EOPNOTSUPP };
            return Err(Refusal::new(errno, format!("there is no command {id:#x}")));
        };
        let Some((want_input, want_output)) = command.sizes else {
            return Err(command.refuse(Refusal::unsupported("this command is not modelled")));
        };
        if input < want_input || output < want_output {
            let why = format!(
                "{input} bytes of input and {output} of output, \
                 expected {want_input} and {want_output}"
            );
            return Err(command.refuse(Refusal::new(Errno::ENOSPC, why)));
        }
        Ok(command)
    }

    /// Names the command in a refusal.
    pub(crate) fn refuse(&self, refusal: Refusal) -> Refusal {
        refusal.of(format!("DEVICE.INVOKE_WRITE({})", self.short_name()))
    }
}
