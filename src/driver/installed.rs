//! Which driver the machine has, by its files.

use std::fs;

/// The files that tell it to everyone.
const FILES: [&str; 2] = ["/proc/driver/nvidia/version", "/sys/module/nvidia/version"];

/// The version of the loaded driver, by the files that it makes, without opening a node; `None` where
/// there are none.
pub fn installed() -> Option<String> {
    let texts = FILES.iter().filter_map(|path| fs::read_to_string(path).ok());
    texts.filter_map(|text| version_in(&text).map(str::to_owned)).next()
}

/// The first word of a text that is a version: `550.90.07`.
fn version_in(text: &str) -> Option<&str> {
    let is_version = |word: &&str| {
        let mut parts = word.split('.');
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        word.contains('.') && parts.all(is_number)
    };
    text.lines().next()?.split_whitespace().find(is_version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_in_what_the_files_say() {
        let closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.90.07  Fri May 31 09:35:42 UTC 2024\n\
                      GCC version:  gcc version 12.3.0\n";
        let open = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build  (dvs)\n";
        assert_eq!(version_in(closed), Some("550.90.07"));
        assert_eq!(version_in(open), Some("580.159.03"));
        let revised =
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.09  Release Build";
        assert_eq!(version_in(revised), Some("580.126.09"));
        assert_eq!(version_in("550.100\n"), Some("550.100"));
        for text in ["", "\n", "no version", "550", "550.", ".5", "550.x"] {
            assert_eq!(version_in(text), None, "{text}");
        }
    }
}
