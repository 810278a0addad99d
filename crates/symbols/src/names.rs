//! Names of functions, as they are written in the source code.

use cpp_demangle::DemangleOptions;

/// `name` as in its source, without parameters and hashes; unchanged if it is not mangled.
pub(crate) fn demangled(name: &str) -> String {
    // Removes the version of a symbol, as in `memcpy@@GLIBC_2.14`.
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    let options = DemangleOptions::new().no_params().no_return_type();
    let cpp = name.starts_with("_Z").then(|| cpp_demangle::Symbol::new(name).ok()).flatten();
    cpp.and_then(|symbol| symbol.demangle_with_options(&options).ok())
        .unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::demangled;

    #[test]
    fn names_are_those_of_the_sources() {
        for (mangled, expected) in [
            ("main", "main"),
            ("memcpy@@GLIBC_2.14", "memcpy"),
            ("_ZN5table4growEmi", "table::grow"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backERKi",
                "std::vector<int, std::allocator<int> >::push_back",
            ),
            ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE", "core::fmt::Write::write_fmt"),
            ("_Zwrong", "_Zwrong"),
            ("", ""),
        ] {
            assert_eq!(demangled(mangled), expected);
        }
    }
}
