//! The structures of Broadcom's own libbnxt_re against its header, where that is at hand: installed, or named by
//! `WARPVERBS_BNXT_DV_H`. rdma-core does not have it.

use crate::tools::{cc, scratch, verbs_h};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use warpverbs_bnxt::dv;
use warpverbs_layout::Item;

fn header() -> Option<PathBuf> {
    let named = std::env::var_os("WARPVERBS_BNXT_DV_H").map(PathBuf::from);
    let installed = || Path::new("/usr/include/infiniband/bnxt_re_dv.h").to_owned();
    Some(named.unwrap_or_else(installed)).filter(|path| path.exists() && verbs_h())
}

/// One assertion for each structure and member.
fn assertions() -> String {
    let mut out = String::new();
    let mut same = |c: &str, value: u64| {
        writeln!(out, "_Static_assert({c} == {value}, \"{c}\");").unwrap();
    };
    for item in [
        dv::UmemRegAttr::LAYOUT,
        dv::CqInitAttr::LAYOUT,
        dv::QpInitAttr::LAYOUT,
        dv::DbRegionAttr::LAYOUT,
        dv::Obj::LAYOUT,
        dv::CqInfo::LAYOUT,
        dv::PdInfo::LAYOUT,
    ] {
        let Item::Structure(of) = item else { panic!("no structure") };
        same(&format!("sizeof(struct {})", of.name), of.size as u64);
        for field in of.fields.iter().filter(|field| !field.name.starts_with("reserved")) {
            let member = format!("struct {}, {}", of.name, field.name);
            same(&format!("offsetof({member})"), field.offset as u64);
            let value = format!("((struct {} *)0)->{}", of.name, field.name);
            same(&format!("sizeof({value})"), field.size as u64);
        }
    }
    same("BNXT_RE_DV_OBJ_CQ", dv::OBJ_CQ);
    same("BNXT_RE_DV_OBJ_PD", dv::OBJ_PD);
    same("BNXT_RE_DV_UMEM_FLAGS_DMABUF", dv::UMEM_DMABUF);
    // Each function is declared.
    for name in dv::NEEDED {
        same(&format!("sizeof(&{name})"), 8);
    }
    out
}

#[test]
fn the_vendors_header_says_the_same_of_libbnxt_re() {
    let Some(header) = header() else {
        return eprintln!(
            "SKIPPED: needs bnxt_re_dv.h, of Broadcom's package or in WARPVERBS_BNXT_DV_H"
        );
    };
    let folder = scratch("bnxt_dv");
    let compiles = |assertions: &str| {
        let file = folder.join("bnxt_dv.c");
        let source =
            format!("#include <stddef.h>\n#include \"{}\"\n{assertions}", header.display());
        std::fs::write(&file, source).unwrap();
        cc().arg("-fsyntax-only").arg(&file).output().unwrap()
    };
    let output = compiles(&assertions());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let wrong = "_Static_assert(sizeof(struct bnxt_re_dv_cq_init_attr) == 31, \"\");";
    assert!(!compiles(wrong).status.success(), "a wrong size is found");
}
