//! Compiles the C++ boundary and links libtorch with its GPU library, where there is one.

use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

/// The PyTorch that tch 0.24 is made for.
const TORCH_VERSION: &str = "2.11.0";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=src/boundary.cpp");
    println!("cargo::rerun-if-env-changed=LIBTORCH_BYPASS_VERSION_CHECK");
    // Given by torch-sys, which has found libtorch by its own rules.
    let lib = PathBuf::from(env::var_os("DEP_TCH_LIBTORCH_LIB").ok_or("torch-sys names no libtorch folder")?);
    let include = lib.parent().ok_or("the libtorch folder has no parent")?.join("include");
    check_version(&include)?;
    compile_early_start();
    compile_boundary(&include);
    link(&lib);
    Ok(())
}

fn check_version(include: &Path) -> Result<(), Box<dyn Error>> {
    let header = include.join("torch/headeronly/version.h");
    println!("cargo::rerun-if-changed={}", header.display());
    let text = fs::read_to_string(&header).map_err(|error| format!("{}: {error}", header.display()))?;
    // The macro's value, a quoted text, stands on the line after its name.
    let define = text.split_once("#define TORCH_VERSION ").map(|(_, rest)| rest).unwrap_or_default();
    let version = define.split('"').nth(1).unwrap_or_default();
    println!("cargo::rustc-env=ITERAGPU_TORCH_VERSION={version}");
    if version != TORCH_VERSION && env::var_os("LIBTORCH_BYPASS_VERSION_CHECK").is_none() {
        return Err(format!("the worker is made for PyTorch {TORCH_VERSION}, this libtorch is {version}").into());
    }
    Ok(())
}

fn compile_early_start() {
    println!("cargo::rerun-if-changed=src/early_start.c");
    let mut build = cc::Build::new();
    build.file("src/early_start.c").flag("-Wall").flag("-Wextra").flag("-Werror");
    // Nothing calls into it by name either.
    build.link_lib_modifier("+whole-archive").compile("early_start");
}

fn compile_boundary(include: &Path) {
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").file("src/boundary.cpp").flag("-Wall").flag("-Wextra").flag("-Werror");
    // libtorch's own headers are not ours to judge.
    for folder in [include.to_path_buf(), include.join("torch/csrc/api/include")] {
        build.flag("-isystem").flag(folder);
    }
    build.compile("boundary");
}

fn link(lib: &Path) {
    println!("cargo::rustc-link-search=native={}", lib.display());
    println!("cargo::rustc-env=ITERAGPU_LIBTORCH_LIB={}", lib.display());
    // The program starts without LD_LIBRARY_PATH where libtorch stays in its place.
    println!("cargo::rustc-link-arg=-Wl,-rpath,{}", lib.display());
    // Nothing calls into libtorch_cuda by name: it registers itself when loaded. The linker would
    // drop it, and no GPU would be seen.
    if lib.join("libtorch_cuda.so").exists() {
        println!("cargo::rustc-link-arg=-Wl,--no-as-needed");
        println!("cargo::rustc-link-arg=-ltorch_cuda");
        println!("cargo::rustc-link-arg=-Wl,--as-needed");
    }
}
