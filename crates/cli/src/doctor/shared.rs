//! Which routes of the symmetric heap this machine offers, found out by taking them.

use super::root::Root;
use serde::Serialize;
use warpverbs::gpu::{self, GpuChoice};
use warpverbs::raw::peer::{SharingSurvey, survey};

#[derive(Debug, Serialize)]
pub(crate) struct Shared {
    /// Attempts to share memory of the SIMT device, which travels as that of a GPU does.
    pub(crate) survey: Option<SharingSurvey>,
    /// Why nothing was tried.
    pub(crate) why_not: Option<String>,
    /// `kernel.yama.ptrace_scope`: from 1 on, processes may not trace their siblings.
    pub(crate) ptrace_scope: Option<u32>,
}

pub(crate) fn shared(root: &Root) -> Shared {
    let ptrace_scope = root.read("proc/sys/kernel/yama/ptrace_scope");
    let ptrace_scope = ptrace_scope.and_then(|text| text.parse().ok());
    match gpu::open(GpuChoice::Simt) {
        Ok(simt) => Shared { survey: Some(survey(&*simt)), why_not: None, ptrace_scope },
        Err(error) => Shared { survey: None, why_not: Some(error.to_string()), ptrace_scope },
    }
}
