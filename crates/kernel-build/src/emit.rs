//! Generated C++ and Rust.

use crate::Unit;
use crate::signature::{Parameter, Signature, Type, is_rust_keyword};
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

fn entry_symbol(package: &str, unit: &Unit, kernel: &Signature) -> String {
    format!("wv_entry_{}_{}_{}", identifier(package), unit.name, kernel.name)
}

fn field(parameter: &Parameter) -> String {
    let raw = if is_rust_keyword(&parameter.name) { "r#" } else { "" };
    format!("{raw}{}", parameter.name)
}

/// The unit's text with a trampoline for every kernel, which takes its parameters as an array of
/// pointers to them.
pub(crate) fn host_source(unit: &Unit, package: &str) -> String {
    let mut out = unit.text.clone();
    let _ = writeln!(out, "#line 1 \"{} (trampolines)\"", unit.name);
    for kernel in &unit.kernels {
        for p in &kernel.parameters {
            let (cpp, size) = (unqualified(&p.cpp), p.ty.size());
            let _ = writeln!(
                out,
                "static_assert(sizeof({cpp}) == {size}, \"{}: {}\");",
                kernel.name, p.name
            );
        }
        let symbol = entry_symbol(package, unit, kernel);
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

/// `kernels.rs`.
pub(crate) fn launchers(units: &[Unit], package: &str) -> String {
    let mut out = String::from("// Generated from the .cu files of this package.\n");
    for unit in units {
        module(&mut out, unit, package);
    }
    out
}

fn module(out: &mut String, unit: &Unit, package: &str) {
    let name = &unit.name;
    let _ = writeln!(out, "\n/// Kernels of `{name}.cu`.\npub mod {name} {{");
    if !unit.kernels.is_empty() {
        let _ = writeln!(out, "    unsafe extern \"C\" {{");
        for kernel in &unit.kernels {
            let symbol = entry_symbol(package, unit, kernel);
            let _ = writeln!(out, "        fn {symbol}(args: *const *const ::core::ffi::c_void);");
        }
        let _ = writeln!(out, "    }}");
    }
    let count = unit.kernels.len();
    let _ = writeln!(out, "    static ENTRIES: [::warpverbs_gpu::Entry; {count}] = [");
    for kernel in &unit.kernels {
        let symbol = entry_symbol(package, unit, kernel);
        let sizes: Vec<_> = kernel.parameters.iter().map(|p| p.ty.size()).collect();
        let kernel = &kernel.name;
        let _ = writeln!(
            out,
            "        ::warpverbs_gpu::Entry {{ name: {kernel:?}, params: &{sizes:?}, host: {symbol} }},"
        );
    }
    let _ = writeln!(
        out,
        "    ];\n    /// Source and entries of `{name}.cu`.\n    \
         pub static IMAGE: ::warpverbs_gpu::Image = ::warpverbs_gpu::Image {{\n        \
         name: {name:?},\n        \
         source: include_str!(concat!(env!(\"OUT_DIR\"), \"/{name}.cu\")),\n        \
         entries: &ENTRIES,\n    }};"
    );
    for (index, kernel) in unit.kernels.iter().enumerate() {
        launcher(out, unit, kernel, index);
    }
    let _ = writeln!(out, "}}");
}

fn launcher(out: &mut String, unit: &Unit, kernel: &Signature, index: usize) {
    let launcher = launcher_name(&kernel.name);
    for line in &kernel.doc {
        let _ = writeln!(out, "    /// {}", plain(line));
    }
    if !kernel.doc.is_empty() {
        let _ = writeln!(out, "    ///");
    }
    let (name, line) = (&kernel.name, kernel.line);
    let _ = writeln!(out, "    /// `{name}` at line {line} of `{}.cu`.", unit.name);
    let _ = writeln!(out, "    #[derive(Clone, Debug)]\n    pub struct {launcher} {{");
    for p in &kernel.parameters {
        let ty = match p.ty {
            Type::Pointer => "::warpverbs_gpu::KernelPtr",
            Type::Scalar(rust) => rust,
        };
        let _ = writeln!(out, "        /// `{} {}`", p.cpp, p.name);
        let _ = writeln!(out, "        pub {}: {ty},", field(p));
    }
    let _ = writeln!(out, "    }}");
    let _ = writeln!(
        out,
        "    // SAFETY: the arguments are pushed in the order and with the sizes of the entry's\n    \
         // parameters, which the C++ compiler has checked, and a `KernelPtr` keeps its memory.\n    \
         unsafe impl ::warpverbs_gpu::Kernel for {launcher} {{\n        \
         fn image(&self) -> &'static ::warpverbs_gpu::Image {{\n            &IMAGE\n        }}\n        \
         fn entry(&self) -> &'static ::warpverbs_gpu::Entry {{\n            &ENTRIES[{index}]\n        }}\n        \
         fn args(&self) -> ::warpverbs_gpu::KernelArgs {{"
    );
    arguments(out, kernel);
    let _ = writeln!(out, "        }}\n    }}");
}

fn arguments(out: &mut String, kernel: &Signature) {
    const NEW: &str = "::warpverbs_gpu::KernelArgs::new()";
    if kernel.parameters.is_empty() {
        let _ = writeln!(out, "            {NEW}");
        return;
    }
    let _ = writeln!(out, "            let mut args = {NEW};");
    for p in &kernel.parameters {
        let field = field(p);
        let _ = match p.ty {
            Type::Pointer => writeln!(out, "            args.push_ptr(&self.{field});"),
            Type::Scalar(_) => {
                writeln!(out, "            args.push(&self.{field}.to_le_bytes());")
            }
        };
    }
    let _ = writeln!(out, "            args");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::signature;
    use std::path::Path;

    fn unit(source: &str) -> Unit {
        let kernels = signature::parse(Path::new("u.cu"), source).unwrap();
        Unit { name: "u".to_owned(), text: source.to_owned(), kernels }
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
        let text = host_source(&u, "p");
        assert!(text.contains("*static_cast<const wv::Qp* const*>(args[0])"), "{text}");
        assert!(text.contains("*static_cast<u32 const*>(args[1])"), "{text}");
        assert!(text.contains("static_assert(sizeof(const wv::Qp*) == 8"), "{text}");
    }

    #[test]
    fn keywords_become_raw_fields() {
        let text = launchers(&[unit("// Does.\nWV_KERNEL(k)(u32* type, f32 x) {}")], "p");
        assert!(text.contains("pub r#type: ::warpverbs_gpu::KernelPtr,"), "{text}");
        assert!(text.contains("args.push(&self.x.to_le_bytes());"), "{text}");
        assert!(text.contains("/// Does.\n"), "{text}");
    }
}
