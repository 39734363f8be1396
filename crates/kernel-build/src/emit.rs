//! Generated C++ and Rust.

use crate::count;
use crate::signature::{Parameter, Signature, is_rust_keyword};
use crate::types::{Structure, Type};
use crate::{Nic, Unit};
use std::fmt::Write as _;

/// `some_name` as `SomeName`.
pub(crate) fn launcher_name(kernel: &str) -> String {
    let words = kernel.split('_').filter(|w| !w.is_empty());
    words
        .map(|word| {
            let (first, rest) = word.split_at(1);
            first.to_ascii_uppercase() + rest
        })
        .collect()
}

/// A line of C++ comment as text for rustdoc, which would take `sums[0]` for a link and `<T>` for HTML.
fn plain(line: &str) -> String {
    let mut out = String::new();
    for c in line.chars() {
        if matches!(c, '[' | ']' | '<' | '>' | '*' | '_' | '`') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

/// A package's name as part of a symbol.
pub(crate) fn identifier(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

fn entry_symbol(package: &str, unit: &Unit, kernel: &Signature, nic: &Nic) -> String {
    let nic = if nic.is_usual() { String::new() } else { format!("_for_{}", nic.name) };
    format!("wv_entry_{}_{}_{}{nic}", identifier(package), unit.name, kernel.name)
}

/// `name` as a Rust identifier.
pub(crate) fn raw(name: &str) -> String {
    if is_rust_keyword(name) { format!("r#{name}") } else { name.to_owned() }
}

/// The unit's text with a trampoline for every kernel, which takes its parameters as an array of
/// pointers to them.
///
/// One program has the unit for several NICs, and inline functions of one name are one function there.
/// So the library and all else have names of their own for each NIC but the first: the headers, which come only once,
/// are included ahead of a namespace for the rest.
pub(crate) fn host_source(unit: &Unit, package: &str, nic: &Nic) -> String {
    if nic.is_usual() {
        return with_trampolines(unit, package, nic);
    }
    let name = nic.name;
    let mut out = format!("#define WV_NIC {name}\n#define wv wv_{name}\n");
    for line in unit.text.lines().filter(|line| line.starts_with("#include \"")) {
        let _ = writeln!(out, "{line}");
    }
    let text = with_trampolines(unit, package, nic);
    let _ = writeln!(out, "namespace wv_kernels_{name} {{\n{text}}}");
    out
}

fn with_trampolines(unit: &Unit, package: &str, nic: &Nic) -> String {
    let mut out = unit.text.clone();
    let _ = writeln!(out, "#line 1 \"{} (trampolines)\"", unit.name);
    unit.structures.iter().for_each(|structure| out += &structure.assertions());
    for kernel in &unit.kernels {
        for p in &kernel.parameters {
            let cpp = unqualified(&p.cpp);
            let size = p.ty.layout(&unit.structures).map_or(0, |layout| layout.size);
            let _ = writeln!(
                out,
                "static_assert(sizeof({cpp}) == {size}, \"{}: {}\");",
                kernel.name, p.name
            );
        }
        let symbol = entry_symbol(package, unit, kernel, nic);
        let _ = writeln!(
            out,
            "extern \"C\" void {symbol}([[maybe_unused]] const void* const* args) {{"
        );
        let args =
            kernel.parameters.iter().enumerate().map(|(i, p)| {
                format!("\n    *static_cast<{} const*>(args[{i}])", unqualified(&p.cpp))
            });
        let args: Vec<_> = args.collect();
        let _ = writeln!(out, "  {}({});\n}}", kernel.name, args.join(","));
    }
    out
}

/// The type without what qualifies the parameter itself.
fn unqualified(cpp: &str) -> String {
    let cut = cpp.rfind('*').map_or(0, |at| at + 1);
    let (pointed, own) = cpp.split_at(cut);
    let own: Vec<_> = own
        .split_whitespace()
        .filter(|w| !matches!(*w, "const" | "__restrict__" | "__restrict" | "WV_RESTRICT"))
        .collect();
    format!("{pointed}{}", own.join(" "))
}

/// A check at compile time that GPUs are given the headers that the host's compiler has.
pub(crate) fn same_headers(hash: u64, gpu: &str) -> String {
    format!(
        "const _: () = assert!({gpu}::HEADERS_HASH == {hash:#x}, \"warpverbs-kernel-build and warpverbs-gpu have \
         other device headers than each other, expected one version of both\");\n"
    )
}

/// `kernels.rs`.
pub(crate) fn launchers(units: &[Unit], package: &str, gpu: &str) -> String {
    let mut out = String::from("// Generated from the .cu files of this package.\n");
    for unit in units {
        module(&mut out, unit, package, gpu);
    }
    out
}

fn module(out: &mut String, unit: &Unit, package: &str, gpu: &str) {
    let name = &unit.name;
    let _ = writeln!(out, "\n/// Kernels of `{name}.cu`.\npub mod {name} {{");
    if !unit.kernels.is_empty() {
        let _ = writeln!(out, "    unsafe extern \"C\" {{");
        for (nic, kernel) in
            unit.nics().iter().flat_map(|nic| unit.kernels.iter().map(move |k| (nic, k)))
        {
            let symbol = entry_symbol(package, unit, kernel, nic);
            let _ = writeln!(out, "        fn {symbol}(args: *const *const ::core::ffi::c_void);");
        }
        let _ = writeln!(out, "    }}");
    }
    for nic in unit.nics() {
        entries(out, unit, package, gpu, nic);
    }
    let others = unit.nics()[1..].iter().map(|nic| {
        let image = image(unit, gpu, nic, "");
        format!("\n            ({gpu}::layout::NicFormat::{}, {image}),", nic.format)
    });
    let others: String = others.collect();
    let image = image(unit, gpu, &unit.nics()[0], &others);
    let _ = writeln!(
        out,
        "    /// Source and entries of `{name}.cu`.\n    pub static IMAGE: {gpu}::Image = {image};"
    );
    unit.structures.iter().for_each(|structure| structure_type(out, structure, gpu));
    for (index, kernel) in unit.kernels.iter().enumerate() {
        launcher(out, unit, kernel, index, gpu);
    }
    let _ = writeln!(out, "}}");
}

fn entries(out: &mut String, unit: &Unit, package: &str, gpu: &str, nic: &Nic) {
    let (of, count) = (nic.name.to_ascii_uppercase(), unit.kernels.len());
    let _ = writeln!(out, "    static {of}_ENTRIES: [{gpu}::Entry; {count}] = [");
    for kernel in &unit.kernels {
        let symbol = entry_symbol(package, unit, kernel, nic);
        let size = |p: &Parameter| format!("<{} as {gpu}::KernelArg>::SIZE", p.ty.rust(gpu));
        let sizes: Vec<_> = kernel.parameters.iter().map(size).collect();
        let (kernel, sizes) = (&kernel.name, sizes.join(", "));
        let _ = writeln!(
            out,
            "        {gpu}::Entry {{ name: {kernel:?}, params: &[{sizes}], host: {symbol} }},"
        );
    }
    let _ = writeln!(out, "    ];");
}

fn image(unit: &Unit, gpu: &str, nic: &Nic, others: &str) -> String {
    let name = &unit.name;
    let word =
        if nic.is_usual() { String::new() } else { format!("#define WV_NIC {}\\n", nic.name) };
    format!(
        "{gpu}::Image {{\n        name: {name:?},\n        \
         source: concat!(\"{word}\", include_str!(concat!(env!(\"OUT_DIR\"), \"/{name}.cu\"))),\n        \
         entries: &{}_ENTRIES,\n        others: &[{others}],\n    }}",
        nic.name.to_ascii_uppercase()
    )
}

fn doc(out: &mut String, lines: &[String]) {
    for line in lines {
        let _ = writeln!(out, "    /// {}", plain(line));
    }
    if !lines.is_empty() {
        let _ = writeln!(out, "    ///");
    }
}

fn structure_type(out: &mut String, structure: &Structure, gpu: &str) {
    let Structure { name, doc: lines, members, layout } = structure;
    doc(out, lines);
    let _ = writeln!(out, "    /// `struct {name}`, {} bytes in C++.", layout.size);
    let _ = writeln!(out, "    #[derive(Clone, Debug)]\n    pub struct {name} {{");
    for m in members {
        let _ = writeln!(out, "        /// `{} {}`", m.cpp, m.name);
        let _ = writeln!(out, "        pub {}: {},", raw(&m.name), m.ty.rust(gpu));
    }
    let _ = writeln!(
        out,
        "    }}\n    // SAFETY: the C++ compiler has checked size, alignment and offsets.\n    \
         unsafe impl {gpu}::KernelArg for {name} {{\n        \
         const SIZE: usize = {};\n        const ALIGN: usize = {};\n        \
         fn write(&self, out: &mut {gpu}::ArgBytes<'_>, offset: usize) {{",
        layout.size, layout.align
    );
    let of = |m: &str, call: &str| format!("{gpu}::KernelArg::{call}(&self.{}", raw(m));
    for m in members {
        // The first member's offset is left out: clippy refuses `+ 0` in generated code as well.
        let offset = if m.offset == 0 { String::new() } else { format!(" + {}", m.offset) };
        let _ = writeln!(out, "            {}, out, offset{offset});", of(&m.name, "write"));
    }
    let _ = writeln!(
        out,
        "        }}\n        \
         fn check(&self) -> ::core::result::Result<(), &'static str> {{"
    );
    for m in members {
        let _ = writeln!(out, "            {})?;", of(&m.name, "check"));
    }
    let _ = writeln!(out, "            Ok(())\n        }}\n    }}");
}

fn launcher(out: &mut String, unit: &Unit, kernel: &Signature, index: usize, gpu: &str) {
    let launcher = launcher_name(&kernel.name);
    doc(out, &kernel.doc);
    let (name, line) = (&kernel.name, kernel.line);
    let _ = writeln!(out, "    /// `{name}` at line {line} of `{}.cu`.", unit.name);
    let _ = writeln!(out, "    #[derive(Clone, Debug)]\n    pub struct {launcher} {{");
    for p in &kernel.parameters {
        let count = p.count.as_ref().map(|count| format!(", elements: `{count}`"));
        let _ = writeln!(out, "        /// `{} {}`{}", p.cpp, p.name, count.unwrap_or_default());
        let _ = writeln!(out, "        pub {}: {},", raw(&p.name), p.ty.rust(gpu));
    }
    let _ = writeln!(
        out,
        "    }}\n    // SAFETY: the arguments are pushed in the order and with the types of the \
         entry's\n    // parameters, whose sizes the C++ compiler has checked.\n    \
         unsafe impl {gpu}::Kernel for {launcher} {{\n        \
         fn image(&self) -> &'static {gpu}::Image {{\n            &IMAGE\n        }}\n        \
         fn entry(&self) -> &'static {gpu}::Entry {{\n            &MLX5_ENTRIES[{index}]\n        }}\n        \
         fn args(&self) -> {gpu}::KernelArgs {{\n            \
         #[allow(unused_mut)]\n            let mut args = {gpu}::KernelArgs::new();"
    );
    for p in &kernel.parameters {
        let _ = writeln!(out, "            args.push(&self.{});", raw(&p.name));
    }
    let _ = writeln!(out, "            args\n        }}\n    }}");
    if kernel.safe {
        safe_kernel(out, kernel, &launcher, gpu);
    }
}

fn safe_kernel(out: &mut String, kernel: &Signature, launcher: &str, gpu: &str) {
    let _ = writeln!(
        out,
        "    // SAFETY: the kernel's author promises it by `WV_SAFE_KERNEL` of what passes the check.\n    \
         unsafe impl {gpu}::SafeKernel for {launcher} {{\n        \
         fn check(&self, dim: {gpu}::Dim) -> ::core::result::Result<(), {gpu}::GpuError> {{\n            \
         #[allow(unused_variables)]\n            \
         let bounds = {gpu}::Bounds::new({:?}, dim);",
        kernel.name
    );
    for p in &kernel.parameters {
        let (field, name) = (raw(&p.name), &p.name);
        let _ = match (&p.ty, &p.count) {
            (Type::Pointer(_), count) => {
                let count = count.as_deref().unwrap_or("1");
                // Checked when the unit was parsed.
                let count = count::rust(count, &kernel.parameters, gpu).unwrap_or_default();
                writeln!(out, "            bounds.pointer({name:?}, &self.{field}, {count})?;")
            }
            (Type::Structure(_), _) => {
                writeln!(out, "            bounds.value({name:?}, &self.{field})?;")
            }
            _ => Ok(()),
        };
    }
    let _ = writeln!(out, "            Ok(())\n        }}\n    }}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NICS, signature};
    use std::path::Path;

    fn unit(source: &str) -> Unit {
        let kernels = signature::parse(Path::new("u.cu"), source).unwrap();
        let structures = crate::structure::of_kernels(Path::new("u.cu"), source, &kernels).unwrap();
        Unit {
            name: "u".to_owned(),
            text: source.to_owned(),
            kernels,
            every_nic: false,
            structures,
        }
    }

    #[test]
    fn comments_are_no_markup() {
        assert_eq!(plain("sums[0]: of a<b>"), "sums\\[0\\]: of a\\<b\\>");
    }

    #[test]
    fn names_become_rust_names() {
        assert_eq!(launcher_name("write_one"), "WriteOne");
        assert_eq!(launcher_name("put_8B"), "Put8B");
        assert_eq!(identifier("warpverbs-x"), "warpverbs_x");
    }

    #[test]
    fn trampolines_drop_what_qualifies_the_parameter_itself() {
        let u = unit("WV_KERNEL(k)(const wv::Qp* const __restrict__ qp, const u32 n) {}");
        let text = host_source(&u, "p", &NICS[0]);
        assert!(text.contains("*static_cast<const wv::Qp* const*>(args[0])"), "{text}");
        assert!(text.contains("*static_cast<u32 const*>(args[1])"), "{text}");
        assert!(text.contains("static_assert(sizeof(const wv::Qp*) == 8"), "{text}");
    }

    #[test]
    fn keywords_become_raw_fields() {
        let text = launchers(&[unit("// Does.\nWV_KERNEL(k)(u32* type, f32 x) {}")], "p", "::g");
        assert!(text.contains("pub r#type: ::g::KernelPtr<u32>,"), "{text}");
        assert!(text.contains("args.push(&self.r#type);"), "{text}");
        assert!(
            text.contains("params: &[<::g::KernelPtr<u32> as ::g::KernelArg>::SIZE, "),
            "{text}"
        );
        assert!(text.contains("/// Does.\n"), "{text}");
        assert!(!text.contains("SafeKernel for"), "{text}");
    }

    #[test]
    fn safe_kernels_check_what_they_touch() {
        let source = "struct Two { Remote to; u8* flag; };\n\
            WV_SAFE_KERNEL(k)(const Qp* qp, Two two, u64* out WV_COUNT(n + 1), u32 n) {}";
        let unit = unit(source);
        let text = launchers(std::slice::from_ref(&unit), "p", "::g");
        for want in [
            "pub struct Two {",
            "pub flag: ::g::KernelPtr<u8>,",
            "const SIZE: usize = 24;",
            "::g::KernelArg::write(&self.flag, out, offset + 16);",
            "bounds.pointer(\"qp\", &self.qp, ::g::Count::from(1u64))?;",
            "bounds.value(\"two\", &self.two)?;",
            "bounds.pointer(\"out\", &self.out, ::g::Count::from(self.n) + ::g::Count::from(1u64))?;",
        ] {
            assert!(text.contains(want), "no {want} in {text}");
        }
        let text = host_source(&unit, "p", &NICS[0]);
        assert!(text.contains("static_assert(sizeof(Two) == 24 && alignof(Two) == 8"), "{text}");
        assert!(text.contains("__builtin_offsetof(Two, flag) == 16"), "{text}");
    }
}
