//! The structures of vendors' own libraries against their headers, where these are at hand: installed, or named by
//! `WARPVERBS_BNXT_DV_H` and `WARPVERBS_IONIC_DV_H`. rdma-core has none of bnxt_re, and less of ionic.

use crate::tools::{cc, scratch, verbs_h};
use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use warpverbs_bnxt::dv as bnxt;
use warpverbs_ionic::dv as ionic;
use warpverbs_layout::Item;
use warpverbs_verbs::ionic_dv::sys::{ALLOCATORS_AND_CONTEXT, CQ_OF_DOMAIN, ParentDomainInitAttr};

/// One assertion for each value.
fn same(out: &mut String, c: &str, value: usize) {
    writeln!(out, "_Static_assert({c} == {value}, \"{c}\");").unwrap();
}

/// One assertion for each structure and member, and one for each function, which is declared.
fn assertions(items: &[Item], functions: &[&str]) -> String {
    let mut out = String::new();
    for item in items {
        let Item::Structure(of) = item else { panic!("no structure") };
        same(&mut out, &format!("sizeof(struct {})", of.name), of.size);
        for field in of.fields.iter().filter(|field| !field.name.starts_with("reserved")) {
            let member = format!("struct {}, {}", of.name, field.name);
            same(&mut out, &format!("offsetof({member})"), field.offset);
            let value = format!("((struct {} *)0)->{}", of.name, field.name);
            same(&mut out, &format!("sizeof({value})"), field.size);
        }
    }
    for name in functions {
        same(&mut out, &format!("sizeof(&{name})"), 8);
    }
    out
}

/// Whether these assertions hold behind this header.
fn compiles(header: &Path, assertions: &str) -> Result<(), String> {
    let name = header.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let file = scratch("vendor_dv").join(format!("{name}.c"));
    let source = format!("#include <stddef.h>\n#include \"{}\"\n{assertions}", header.display());
    std::fs::write(&file, source).unwrap();
    let output = cc().arg("-fsyntax-only").arg(&file).output().unwrap();
    match output.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// The header that the variable names, or that is installed, if it is the vendor's: it declares this function.
fn header(variable: &str, installed: &str, function: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    let path = named.unwrap_or_else(|| Path::new("/usr/include/infiniband").join(installed));
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    if !text.contains(function) {
        eprintln!("SKIPPED: needs {installed} of the vendor's package, installed or in {variable}");
        return None;
    }
    verbs_h().then_some(path)
}

#[test]
fn the_vendors_header_says_the_same_of_libbnxt_re() {
    let header = header("WARPVERBS_BNXT_DV_H", "bnxt_re_dv.h", bnxt::NEEDED[0]);
    let Some(header) = header else { return };
    let items = [
        bnxt::UmemRegAttr::LAYOUT,
        bnxt::CqInitAttr::LAYOUT,
        bnxt::QpInitAttr::LAYOUT,
        bnxt::DbRegionAttr::LAYOUT,
        bnxt::Obj::LAYOUT,
        bnxt::CqInfo::LAYOUT,
        bnxt::PdInfo::LAYOUT,
    ];
    let mut right = assertions(&items, &bnxt::NEEDED);
    for (c, value) in [
        ("BNXT_RE_DV_OBJ_CQ", bnxt::OBJ_CQ),
        ("BNXT_RE_DV_OBJ_PD", bnxt::OBJ_PD),
        ("BNXT_RE_DV_UMEM_FLAGS_DMABUF", bnxt::UMEM_DMABUF),
    ] {
        same(&mut right, c, value as usize);
    }
    assert_eq!(compiles(&header, &right), Ok(()));
    let wrong = "_Static_assert(sizeof(struct bnxt_re_dv_cq_init_attr) == 31, \"\");";
    assert!(compiles(&header, wrong).is_err(), "a wrong size is found");
}

#[test]
fn the_vendors_header_says_the_same_of_libionic() {
    let header = header("WARPVERBS_IONIC_DV_H", "ionic_dv.h", ionic::NEEDED[0]);
    let Some(header) = header else { return };
    let items = [ionic::DvCtx::LAYOUT, ionic::DvQueue::LAYOUT];
    let mut right = assertions(&items, &ionic::NEEDED);
    same(&mut right, "sizeof(struct ionic_dv_cq)", size_of::<ionic::DvQueue>());
    same(&mut right, "sizeof(struct ionic_dv_qp)", size_of::<ionic::DvQp>());
    same(&mut right, "offsetof(struct ionic_dv_qp, rq)", offset_of!(ionic::DvQp, rq));
    same(&mut right, "offsetof(struct ionic_dv_qp, sq)", offset_of!(ionic::DvQp, sq));
    assert_eq!(compiles(&header, &right), Ok(()));
    let wrong = "_Static_assert(sizeof(struct ionic_dv_ctx) == 23, \"\");";
    assert!(compiles(&header, wrong).is_err(), "a wrong size is found");
}

#[test]
fn libibverbs_says_the_same_of_parent_domains() {
    if !verbs_h() {
        return;
    }
    type Attr = ParentDomainInitAttr;
    let mut right = String::new();
    same(&mut right, "sizeof(struct ibv_parent_domain_init_attr)", size_of::<Attr>());
    for (member, offset) in [
        ("pd", offset_of!(Attr, pd)),
        ("td", offset_of!(Attr, td)),
        ("comp_mask", offset_of!(Attr, comp_mask)),
        ("alloc", offset_of!(Attr, alloc)),
        ("free", offset_of!(Attr, free)),
        ("pd_context", offset_of!(Attr, pd_context)),
    ] {
        let c = format!("offsetof(struct ibv_parent_domain_init_attr, {member})");
        same(&mut right, &c, offset);
    }
    let both = "(IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT)";
    same(&mut right, both, ALLOCATORS_AND_CONTEXT as usize);
    same(&mut right, "IBV_CQ_INIT_ATTR_MASK_PD", CQ_OF_DOMAIN as usize);
    assert_eq!(compiles(Path::new("infiniband/verbs.h"), &right), Ok(()));
}
